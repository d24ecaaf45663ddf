import { Stack, Text } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { api, told, type Schemas } from "../../api/client";
import { Ago } from "../../parts/ago";
import Chart, { type Series } from "../../parts/chart";
import { visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { Rows, type Column } from "../../parts/rows";
import { useTexts } from "../../texts/texts";

type PilotCache = Schemas["PilotCacheOut"];
const WAYS = ["cache", "neighbour", "peer", "element"] as const;
const COLOURS = { cache: "chart-1", neighbour: "chart-4", peer: "chart-3", element: "chart-6" };
const SHOWN = 100;
const EVERY = 10_000;

/** How inputs came to their jobs: the fewer from storage, the better the caches do. */
export function Caches() {
  const texts = useTexts();
  const words = texts.fleet;
  const found = useQuery({
    queryKey: ["fleet", "caches"],
    queryFn: () => told(api.GET("/v1/fleet/caches", { params: { query: { limit: SHOWN } } })),
    refetchInterval: EVERY,
    placeholderData: keepPreviousData,
  });
  const caches = found.data;
  const series = useMemo<Series[]>(
    () => WAYS.map((way) => ({ words: words.ways[way], colour: COLOURS[way], values: caches?.steps.map((one) => one.inputs[way]) ?? [] })),
    [caches, words],
  );
  const starts = useMemo(() => caches?.steps.map((one) => one.at) ?? [], [caches]);
  const columns = useMemo<Column<PilotCache>[]>(
    () => [
      { accessorKey: "pilot", header: words.pilot, cell: ({ row }) => <span className="plain">{row.original.pilot.slice(0, 13)}</span> },
      { accessorKey: "host", header: words.host, cell: ({ row }) => visible(row.original.host) },
      { accessorKey: "site", header: words.site, cell: ({ row }) => visible(row.original.site) || words.noSite },
      { accessorKey: "files", header: words.files, meta: { numbers: true }, cell: ({ row }) => row.original.files?.toLocaleString(texts.language) ?? "–" },
      ...WAYS.map(
        (way): Column<PilotCache> => ({
          id: way,
          header: words.ways[way],
          accessorFn: (one) => one.inputs[way],
          meta: { numbers: true },
          cell: ({ row }) => row.original.inputs[way].toLocaleString(texts.language),
        }),
      ),
    ],
    [texts, words],
  );
  if (caches === undefined) return <ProblemBox problem={found.error} />;
  const all = WAYS.reduce((sum, way) => sum + caches.inputs[way], 0);
  return (
    <Stack gap="xs">
      <ProblemBox problem={found.error} />
      {all === 0 ? <Text>{words.noInputs}</Text> : <Text>{words.hits(all, Math.round((100 * (all - caches.inputs.element)) / all))}</Text>}
      <Text fz="sm" c="dimmed">
        {words.heardSince} <Ago at={caches.since} />
      </Text>
      {starts.length > 0 && <Chart title={words.tabs.caches} starts={starts} step={caches.step} series={series} height={150} />}
      {caches.pilots.length > 0 && <Rows caption={words.tabs.caches} columns={columns} rows={caches.pilots} idOf={(one) => one.pilot} />}
    </Stack>
  );
}
