/** The icons that are used, each from its own file: the whole set is five thousand, and a build would read them all. */

export { default as IconAlertTriangle } from "@tabler/icons-react/dist/esm/icons/IconAlertTriangle.mjs";
export { default as IconArrowDown } from "@tabler/icons-react/dist/esm/icons/IconArrowDown.mjs";
export { default as IconArrowUp } from "@tabler/icons-react/dist/esm/icons/IconArrowUp.mjs";
export { default as IconChevronDown } from "@tabler/icons-react/dist/esm/icons/IconChevronDown.mjs";
export { default as IconChevronUp } from "@tabler/icons-react/dist/esm/icons/IconChevronUp.mjs";
export { default as IconCircleCheck } from "@tabler/icons-react/dist/esm/icons/IconCircleCheck.mjs";
export { default as IconInbox } from "@tabler/icons-react/dist/esm/icons/IconInbox.mjs";
export { default as IconInfoCircle } from "@tabler/icons-react/dist/esm/icons/IconInfoCircle.mjs";
export { default as IconLogout } from "@tabler/icons-react/dist/esm/icons/IconLogout.mjs";
export { default as IconMoon } from "@tabler/icons-react/dist/esm/icons/IconMoon.mjs";
export { default as IconPencilPlus } from "@tabler/icons-react/dist/esm/icons/IconPencilPlus.mjs";
export { default as IconPlus } from "@tabler/icons-react/dist/esm/icons/IconPlus.mjs";
export { default as IconSelector } from "@tabler/icons-react/dist/esm/icons/IconSelector.mjs";
export { default as IconSitemap } from "@tabler/icons-react/dist/esm/icons/IconSitemap.mjs";
export { default as IconSun } from "@tabler/icons-react/dist/esm/icons/IconSun.mjs";
export { default as IconUser } from "@tabler/icons-react/dist/esm/icons/IconUser.mjs";
export { default as IconX } from "@tabler/icons-react/dist/esm/icons/IconX.mjs";
export { default as IconRoute } from "@tabler/icons-react/dist/esm/icons/IconRoute.mjs";
export { default as IconListDetails } from "@tabler/icons-react/dist/esm/icons/IconListDetails.mjs";
export { default as IconChartBar } from "@tabler/icons-react/dist/esm/icons/IconChartBar.mjs";
export { default as IconServer2 } from "@tabler/icons-react/dist/esm/icons/IconServer2.mjs";
