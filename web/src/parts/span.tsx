import { SegmentedControl } from "@mantine/core";
import { useSearchParams } from "wouter";
import { useTexts } from "../texts/texts";

export type Span = "hour" | "day" | "week" | "month";
const SPANS: Span[] = ["hour", "day", "week", "month"];

/** How far back the page looks; it stands in the address. */
export function useSpan(): Span {
  const [search] = useSearchParams();
  const asked = search.get("span");
  return SPANS.find((one) => one === asked) ?? "day";
}

export function SpanChoice() {
  const texts = useTexts();
  const [, setSearch] = useSearchParams();
  const span = useSpan();
  return (
    <SegmentedControl
      size="xs"
      aria-label={texts.overview.span}
      value={span}
      onChange={(value) =>
        setSearch(
          (before) => {
            const after = new URLSearchParams(before);
            after.set("span", value);
            return after;
          },
          { replace: true },
        )
      }
      data={SPANS.map((one) => ({ value: one, label: texts.overview.spans[one] }))}
    />
  );
}
