import "uplot/dist/uPlot.min.css";

import { Group, Table, Text, useComputedColorScheme } from "@mantine/core";
import { useEffect, useMemo, useRef, useState } from "react";
import UPlot from "uplot";
import type { Texts } from "../texts/en";
import { useTexts } from "../texts/texts";

export interface Series {
  words: string;
  values: (number | null)[];
  /** The name of a colour among the page's variables, without the dashes. */
  colour: string;
  /** A line over what is stacked, and not a part of it. */
  line?: boolean;
}

interface Given {
  title: string;
  starts: string[];
  /** Seconds of a step. */
  step: number;
  series: Series[];
  height?: number;
  shown?: (value: number) => string;
}

const DAY = 86_400;

function moment(texts: Texts, step: number): Intl.DateTimeFormat {
  const time = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" } as const;
  const day = { month: "short", day: "numeric" } as const;
  return new Intl.DateTimeFormat(texts.language, step >= DAY ? day : step > 3_600 ? { ...day, ...time } : time);
}

/** Each on top of those after it: drawn in this order, what is seen of each is its own part. */
function stacked(series: Series[]): (number | null)[][] {
  const parts = series.filter((one) => !one.line);
  return series.map((one) => {
    if (one.line) return one.values;
    const upper = parts.slice(parts.indexOf(one));
    return one.values.map((_, place) => upper.reduce((sum, part) => sum + (part.values[place] ?? 0), 0));
  });
}

function Swatch({ colour, line }: { colour: string; line: boolean }) {
  return (
    <svg width={14} height={12} aria-hidden>
      {line ? <line x1={0} y1={6} x2={14} y2={6} stroke={`var(--${colour})`} strokeWidth={3} /> : <rect y={1} width={11} height={10} fill={`var(--${colour})`} />}
    </svg>
  );
}

/** Numbers over time: drawn, told in a line for the step that is pointed at, and as a table for who does not see the drawing. */
export default function Chart({ title, starts, step, series, height = 180, shown }: Given) {
  const texts = useTexts();
  const scheme = useComputedColorScheme("light");
  const place = useRef<HTMLDivElement>(null);
  const drawn = useRef<UPlot | null>(null);
  const [at, setAt] = useState<number | null>(null);
  const told = useMemo(() => shown ?? ((value: number) => value.toLocaleString(texts.language)), [shown, texts]);
  const format = useMemo(() => moment(texts, step), [texts, step]);
  const times = useMemo(() => starts.map((one) => Date.parse(one) / 1000), [starts]);
  const data = useMemo(() => [times, ...stacked(series)] as UPlot.AlignedData, [times, series]);
  const looks = series.map((one) => `${one.words}|${one.colour}|${one.line ?? false}`).join("\n");
  const latest = useRef({ data, told });
  latest.current = { data, told };

  useEffect(() => {
    const here = place.current;
    if (here === null) return;
    const style = getComputedStyle(here);
    const colour = (name: string) => style.getPropertyValue(`--${name}`).trim();
    const axis = { stroke: colour("mantine-color-dimmed"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line") } };
    const paths = UPlot.paths.bars?.({ size: [0.82, 48], align: 1 });
    const chart = new UPlot(
      {
        width: here.clientWidth,
        height,
        legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false }, points: { show: false } },
        scales: { x: { range: () => [times[0] ?? 0, (times.at(-1) ?? 0) + step] }, y: { range: (_, __, most) => [0, Math.max(1, most * 1.08)] } },
        axes: [
          { ...axis, values: (_, splits) => splits.map((one) => format.format(new Date(one * 1000))), space: step > 3_600 ? 96 : 56 },
          { ...axis, size: 56, values: (_, splits) => splits.map((one) => latest.current.told(one)) },
        ],
        series: [
          {},
          ...series.map((one): UPlot.Series => {
            const ink = colour(one.colour);
            if (one.line) return { label: one.words, stroke: ink, width: 2.5, spanGaps: true, points: { show: true, size: 6, fill: ink } };
            return { label: one.words, stroke: ink, fill: ink, width: 0, points: { show: false }, ...(paths ? { paths } : {}) };
          }),
        ],
        hooks: { setCursor: [(one) => setAt(one.cursor.idx ?? null)] },
      },
      latest.current.data,
      here,
    );
    drawn.current = chart;
    const watcher = new ResizeObserver(() => chart.setSize({ width: here.clientWidth, height }));
    watcher.observe(here);
    return () => {
      watcher.disconnect();
      chart.destroy();
      drawn.current = null;
    };
    // Drawn anew when it looks otherwise; new numbers alone are set below.
  }, [looks, scheme, format, height, step, times]);
  useEffect(() => drawn.current?.setData(data), [data]);

  const pointed = at ?? starts.length - 1;
  const value = (one: Series, which: number) => {
    const number = one.values[which];
    return number === null || number === undefined ? "–" : told(number);
  };
  return (
    <figure className="chart" aria-label={title}>
      <div ref={place} className="drawing" aria-hidden data-drawn={series.length} />
      <Group component="figcaption" gap="md" fz="sm">
        <Text fz="sm" c="dimmed" component="span">
          {starts[pointed] && format.format(new Date(starts[pointed]))}
        </Text>
        {series.map((one) => (
          <Group key={one.words} gap={6} wrap="nowrap" component="span">
            <Swatch colour={one.colour} line={one.line ?? false} />
            <span>
              {one.words} {value(one, pointed)}
            </span>
          </Group>
        ))}
      </Group>
      <details>
        <summary>{texts.overview.asTable}</summary>
        <div className="log" tabIndex={0} role="region" aria-label={`${title}: ${texts.overview.asTable}`}>
          <Table fz="xs" verticalSpacing={2}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th scope="col">{texts.overview.from}</Table.Th>
                {series.map((one) => (
                  <Table.Th key={one.words} scope="col" className="numbers">
                    {one.words}
                  </Table.Th>
                ))}
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {starts.map((start, which) => (
                <Table.Tr key={start}>
                  <Table.Th scope="row">{format.format(new Date(start))}</Table.Th>
                  {series.map((one) => (
                    <Table.Td key={one.words} className="numbers">
                      {value(one, which)}
                    </Table.Td>
                  ))}
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </div>
      </details>
    </figure>
  );
}
