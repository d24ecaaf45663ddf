import { createTheme, type CSSVariablesResolver, type MantineColorsTuple } from "@mantine/core";

/** The blue-green of deep water: dark enough for white text at 7, light enough for dark pages at 3. */
const tide: MantineColorsTuple = [
  "#e6f6f8", "#cfe9ee", "#a2d3dc", "#72bcc9", "#4ba7b7", "#2f93a5", "#197f92", "#0b6a7c", "#0b5563", "#06414d",
];

/** Greys of dark pages with a little of the same blue: Mantine's own are brown beside it. */
const dark: MantineColorsTuple = [
  "#c9d1d9", "#b3bdc8", "#8e9aa8", "#5b6875", "#384450", "#2c3742", "#1d252e", "#151b22", "#11171d", "#0f141a",
];

export const theme = createTheme({
  colors: { tide, dark },
  primaryColor: "tide",
  primaryShade: { light: 7, dark: 7 },
  autoContrast: true,
  luminanceThreshold: 0.35,
  defaultRadius: "sm",
  fontFamily: 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Noto Sans CJK SC", sans-serif',
  fontFamilyMonospace: 'ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace',
  headings: { fontWeight: "650", sizes: { h1: { fontSize: "1.5rem" }, h2: { fontSize: "1.1rem" }, h3: { fontSize: "0.95rem" } } },
  cursorType: "pointer",
});

/** Mantine's own grey for lesser text is too pale to read for many; these pass 4.5 to 1 on every ground used here. */
export const variables: CSSVariablesResolver = () => ({
  variables: {},
  light: {
    "--mantine-color-dimmed": "#56606d",
    "--mantine-color-placeholder": "#616b78",
    "--mantine-color-body": "#ffffff",
    "--ground": "#f5f7f9",
    "--line": "#d9dfe5",
    "--ink": "#1b232d",
    "--well": "#1a6b3c",
    "--bad": "#a8242b",
    "--lit": "#0b6a7c",
    "--soft": "#e6f3f5",
    "--marked": "#ffefcf",
    "--chart-1": "#0b6a7c",
    "--chart-2": "#b4560f",
    "--chart-3": "#6a4fb3",
    "--chart-4": "#1a7f4b",
    "--chart-5": "#a8242b",
    "--chart-6": "#6b7683",
    "--mantine-color-anchor": "#0b6172",
  },
  dark: {
    "--mantine-color-dimmed": "#a9b4c0",
    "--mantine-color-placeholder": "#9aa6b3",
    "--mantine-color-body": "#151b22",
    "--ground": "#0f141a",
    "--line": "#2c3742",
    "--ink": "#e4e9ee",
    "--well": "#6bd196",
    "--bad": "#ff9a94",
    "--lit": "#6cc7d6",
    "--soft": "#163039",
    "--marked": "#43330f",
    "--chart-1": "#4fb3c4",
    "--chart-2": "#f0a35e",
    "--chart-3": "#b9a4f2",
    "--chart-4": "#6bd196",
    "--chart-5": "#ff8a83",
    "--chart-6": "#8e9aa8",
    "--mantine-color-anchor": "#7fd0de",
    "--mantine-color-default": "#1d252e",
    "--mantine-color-default-hover": "#26313c",
  },
});
