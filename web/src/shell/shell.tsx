import { ActionIcon, Alert, AppShell, Badge, Burger, Button, Group, NavLink, Popover, Text, UnstyledButton, useComputedColorScheme, useMantineColorScheme } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useQueryClient } from "@tanstack/react-query";
import { IconAlertTriangle, IconChartBar, IconInbox, IconInfoCircle, IconListDetails, IconLogout, IconMoon, IconRoute, IconServer2, IconSitemap, IconSun, IconUser } from "../parts/icons";
import { useState, type ReactNode } from "react";
import { Link, useLocation } from "wouter";
import { api, told } from "../api/client";
import { useLive } from "../api/live";
import { useSession } from "../api/session";
import anchor from "../anchor.svg";
import { languages, useLanguage, useTexts } from "../texts/texts";

export function Shell({ children }: { children: ReactNode }) {
  const texts = useTexts();
  const { language, speak } = useLanguage();
  const session = useSession();
  const [opened, { toggle, close }] = useDisclosure(false);
  const [where] = useLocation();
  const { setColorScheme } = useMantineColorScheme();
  const scheme = useComputedColorScheme("light");
  const queries = useQueryClient();
  const [inbox, setInbox] = useState<{ waiting: number; notice: string } | null>(null);
  const { connected, lost } = useLive(
    "/v1/inbox/changes",
    "inbox",
    (data) => {
      setInbox(data as { waiting: number; notice: string });
      for (const what of ["inbox", "error", "incident", "safeguards", "approvals", "members"]) void queries.invalidateQueries({ queryKey: [what] });
    },
    // Whatever changed meanwhile was not told: all of it is read again.
    () => void queries.invalidateQueries(),
  );
  const logOut = async () => {
    await told(api.DELETE("/v1/session"));
    location.assign("/");
  };
  const pages = [
    { at: "/inbox", words: texts.pages.inbox, Icon: IconInbox, badge: inbox?.waiting ?? null },
    { at: "/runs", words: texts.pages.runs, Icon: IconRoute, badge: null },
    { at: "/jobs", words: texts.pages.jobs, Icon: IconListDetails, badge: null },
    { at: "/rules", words: texts.pages.rules, Icon: IconSitemap, badge: null },
    { at: "/fleet", words: texts.pages.fleet, Icon: IconServer2, badge: null },
    { at: "/overview", words: texts.pages.overview, Icon: IconChartBar, badge: null },
  ];
  return (
    <AppShell header={{ height: 48 }} navbar={{ width: 208, breakpoint: "sm", collapsed: { mobile: !opened } }} padding="md">
      <a className="skip" href="#content">
        {texts.app.skip}
      </a>
      <AppShell.Header px="md">
        <Group h="100%" justify="space-between" wrap="nowrap">
          <Group gap="xs" wrap="nowrap">
            <Burger opened={opened} onClick={toggle} hiddenFrom="sm" size="sm" aria-label={texts.app.openMenu} />
            <UnstyledButton component={Link} href="/inbox" aria-label="Forestay">
              <Group gap={8} wrap="nowrap">
                <img src={anchor} width={24} height={24} alt="" />
                <Text fw={700} fz="md">
                  Forestay
                </Text>
              </Group>
            </UnstyledButton>
            <Text fz="sm" c="dimmed" visibleFrom="sm">
              {texts.app.tenant(session.tenant)}
            </Text>
          </Group>
          <Group gap={4} wrap="nowrap">
            <Badge variant="dot" color={connected ? "green" : "gray"} tt="none" fw={500} visibleFrom="xs" c="var(--ink)">
              {connected ? texts.app.live : texts.app.notLive}
            </Badge>
            {languages
              .filter((one) => one.value !== language)
              .map((one) => (
                <UnstyledButton key={one.value} lang={one.value} fz="sm" px={6} py={4} onClick={() => speak(one.value)}>
                  {one.label}
                </UnstyledButton>
              ))}
            <ActionIcon variant="subtle" color="gray" aria-label={texts.app.scheme} onClick={() => setColorScheme(scheme === "dark" ? "light" : "dark")}>
              {scheme === "dark" ? <IconSun size={18} aria-hidden /> : <IconMoon size={18} aria-hidden />}
            </ActionIcon>
            <Popover position="bottom-end" trapFocus withRoles={false}>
              <Popover.Target>
                <UnstyledButton fz="sm" px={6} py={4} aria-label={session.subject}>
                  <Group gap={6} wrap="nowrap">
                    <IconUser size={18} aria-hidden />
                    <Text fz="sm" visibleFrom="sm">
                      {session.subject}
                    </Text>
                  </Group>
                </UnstyledButton>
              </Popover.Target>
              <Popover.Dropdown>
                <Text fz="sm" c="dimmed" mb="xs">
                  {session.roles.join(", ")}
                </Text>
                <Button size="xs" variant="default" leftSection={<IconLogout size={16} aria-hidden />} onClick={() => void logOut()}>
                  {texts.app.logOut}
                </Button>
              </Popover.Dropdown>
            </Popover>
          </Group>
        </Group>
      </AppShell.Header>
      <AppShell.Navbar p="xs" aria-label={texts.app.menu}>
        {pages.map(({ at, words, Icon, badge }) => (
          <NavLink
            key={at}
            component={Link}
            href={at}
            onClick={close}
            label={words}
            active={where.startsWith(at) || (at === "/inbox" && /^\/(incidents|errors)/.test(where))}
            aria-current={where.startsWith(at) ? "page" : undefined}
            leftSection={<Icon size={18} stroke={1.6} aria-hidden />}
            rightSection={
              badge ? (
                <Badge size="sm" variant="filled" circle={badge < 10}>
                  {badge.toLocaleString(texts.language)}
                </Badge>
              ) : null
            }
          />
        ))}
      </AppShell.Navbar>
      <AppShell.Main id="content" tabIndex={-1}>
        {lost !== null && (
          <Alert role="alert" color="orange" mb="sm" icon={<IconAlertTriangle size={18} aria-hidden />}>
            <Text fz="sm" c="var(--ink)">
              {texts.app.lost(lost.toLocaleTimeString(texts.language, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" }))}
            </Text>
          </Alert>
        )}
        {inbox?.notice && (
          <Alert role="status" aria-label={texts.app.notice} mb="sm" icon={<IconInfoCircle size={18} aria-hidden />}>
            <Text fz="sm" c="var(--ink)">
              {inbox.notice}
            </Text>
          </Alert>
        )}
        {children}
      </AppShell.Main>
    </AppShell>
  );
}
