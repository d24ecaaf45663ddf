import { Tooltip } from "@mantine/core";
import { useEffect, useState } from "react";
import type { Texts } from "../texts/en";
import { useTexts } from "../texts/texts";

const STEPS = [
  [86_400, "day"],
  [3_600, "hour"],
  [60, "minute"],
  [1, "second"],
] as const;

function words(texts: Texts, seconds: number): string {
  for (const [size, unit] of STEPS) {
    if (seconds >= size && (unit !== "second" || seconds >= 10)) return texts.time.ago(Math.floor(seconds / size), unit);
  }
  return texts.time.now;
}

/** How long ago something was; the time itself for who points at it or hears it. */
export function Ago({ at }: { at: string }) {
  const texts = useTexts();
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 10_000);
    return () => clearInterval(timer);
  }, []);
  const when = new Date(at);
  const exact = when.toLocaleString(texts.language);
  return (
    <Tooltip label={exact}>
      <time dateTime={at}>{words(texts, Math.max(0, (now - when.getTime()) / 1000))}</time>
    </Tooltip>
  );
}

export function Moment({ at }: { at: string }) {
  const texts = useTexts();
  const when = new Date(at);
  const year = when.getFullYear() === new Date().getFullYear() ? {} : ({ year: "numeric" } as const);
  const shown = { ...year, month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" } as const;
  return <time dateTime={at}>{when.toLocaleString(texts.language, shown)}</time>;
}

export function hours(texts: Texts, value: number): string {
  return value.toLocaleString(texts.language, { maximumFractionDigits: value < 10 ? 2 : 0 });
}
