import { Anchor, Badge, Button, Group, Select, Text } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { Link } from "wouter";
import { api, told, type Schemas } from "../../api/client";
import { useMay } from "../../api/session";
import { Ago } from "../../parts/ago";
import { visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { Rows, type Column } from "../../parts/rows";
import { useTexts } from "../../texts/texts";
import type { FleetAct } from "./act-dialog";

type Pilot = Schemas["FleetPilotOut"];
const SHOWN = 100;

export function Pilots({ act }: { act(what: FleetAct): void }) {
  const texts = useTexts();
  const words = texts.fleet;
  const may = useMay("operator");
  const [state, setState] = useState<string | null>(null);
  const found = useQuery({
    queryKey: ["fleet", "pilots", state],
    queryFn: () => told(api.GET("/v1/fleet/pilots", { params: { query: { state: state as Pilot["state"] | null, limit: SHOWN } } })),
    placeholderData: keepPreviousData,
  });
  const columns = useMemo<Column<Pilot>[]>(
    () => [
      { accessorKey: "id", header: words.pilot, cell: ({ row }) => <span className="plain">{row.original.id.slice(0, 13)}</span> },
      { accessorKey: "site", header: words.site, cell: ({ row }) => visible(row.original.site) || words.noSite },
      { accessorKey: "host", header: words.host, cell: ({ row }) => visible(row.original.host) },
      {
        accessorKey: "state",
        header: texts.jobs.state,
        cell: ({ row: { original } }) => (
          <>
            <Badge miw="max-content" variant="light" color={original.state === "alive" ? "green" : original.state === "silent" ? "orange" : "gray"} c="var(--ink)" tt="none" data-status={original.state}>
              {original.drain && original.state === "alive" ? words.draining : words.states[original.state]}
            </Badge>
            {(original.drain || original.note) && (
              <Text fz="xs" className="clamp" maw={280}>
                {visible(original.drain || original.note)}
              </Text>
            )}
          </>
        ),
      },
      {
        id: "running",
        accessorFn: (one) => one.running,
        header: words.slots,
        meta: { numbers: true },
        cell: ({ row: { original } }) => words.of(original.running, original.slots),
      },
      { accessorKey: "cpus", header: words.cpus, meta: { numbers: true }, cell: ({ row }) => row.original.cpus.toLocaleString(texts.language) },
      { accessorKey: "registered", header: words.since, cell: ({ row }) => <Ago at={row.original.registered} /> },
      {
        id: "acts",
        header: words.act,
        enableSorting: false,
        cell: ({ row: { original } }) =>
          may && original.state !== "gone" && original.drain === "" ? (
            <Button size="compact-sm" variant="default" aria-label={words.drainOf(original.id)} onClick={() => act({ do: "drain", of: "pilot", name: original.id, many: 1 })}>
              {words.acts.drain}
            </Button>
          ) : null,
      },
    ],
    [texts, words, may, act],
  );
  return (
    <>
      <Group gap="sm" mb="xs" align="flex-end">
        <Select
          size="xs"
          clearable
          label={texts.jobs.state}
          placeholder={words.notGone}
          value={state}
          onChange={setState}
          data={Object.entries(words.states).map(([value, label]) => ({ value, label }))}
        />
        <Anchor component={Link} href="/jobs?state=running" fz="sm">
          {words.theirJobs}
        </Anchor>
        {found.data && (
          <Text fz="sm" c="dimmed">
            {words.shown(found.data.pilots.length, found.data.total)}
          </Text>
        )}
      </Group>
      <ProblemBox problem={found.error} />
      {found.data && <Rows caption={words.tabs.pilots} columns={columns} rows={found.data.pilots} idOf={(one) => one.id} />}
    </>
  );
}
