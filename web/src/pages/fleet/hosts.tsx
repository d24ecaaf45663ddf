import { Badge, Button, Text } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { api, told, type Schemas } from "../../api/client";
import { useMay } from "../../api/session";
import { Ago } from "../../parts/ago";
import { useCause } from "../../parts/cause";
import { visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { Rows, type Column } from "../../parts/rows";
import { useTexts } from "../../texts/texts";
import type { FleetAct } from "./act-dialog";

type Host = Schemas["FleetHostOut"];
const SHOWN = 100;

function Why({ host }: { host: Host }) {
  const words = useTexts().fleet;
  const cause = useCause();
  if (host.status === "open" && host.failures === 0) return null;
  const causes = host.causes.map((one) => cause(one)[0]).join(", ");
  return (
    <>
      {host.status === "open" ? (
        <Text fz="sm">{words.failedThere(host.failures)}</Text>
      ) : (
        <Text fz="sm">
          {host.by ? words.closedBy(visible(host.by)) : words.closedItself} {visible(host.reason)}
        </Text>
      )}
      <Text fz="xs" c="dimmed">
        {host.since && <Ago at={host.since} />}
        {host.since && causes && " · "}
        {causes}
      </Text>
    </>
  );
}

/** Hosts, those that get no jobs first. */
export function Hosts({ act }: { act(what: FleetAct): void }) {
  const texts = useTexts();
  const words = texts.fleet;
  const may = useMay("operator");
  const found = useQuery({
    queryKey: ["fleet", "hosts"],
    queryFn: () => told(api.GET("/v1/fleet/hosts", { params: { query: { limit: SHOWN } } })),
    placeholderData: keepPreviousData,
  });
  const columns = useMemo<Column<Host>[]>(() => {
    const number = (id: keyof Host & string, header: string): Column<Host> => ({
      accessorKey: id,
      header,
      meta: { numbers: true },
      cell: ({ row }) => Number(row.original[id]).toLocaleString(texts.language),
    });
    return [
      { accessorKey: "host", header: words.host, cell: ({ row }) => <span className="plain">{visible(row.original.host)}</span> },
      {
        accessorKey: "status",
        header: texts.jobs.state,
        cell: ({ row: { original } }) => (
          <Badge miw="max-content" variant="light" color={original.status === "open" ? "green" : "red"} c={original.status === "closed" ? "var(--bad)" : "var(--ink)"} tt="none" data-status={original.status}>
            {words.statuses[original.status]}
          </Badge>
        ),
      },
      { id: "why", header: words.why, enableSorting: false, cell: ({ row }) => <Why host={row.original} /> },
      number("pilots", words.tabs.pilots),
      {
        id: "slots",
        accessorFn: (one) => one.slots,
        header: words.slots,
        meta: { numbers: true },
        cell: ({ row: { original } }) => words.of(original.running, original.slots),
      },
      number("ended", words.endedHour),
      number("faulted", words.faulted),
      {
        id: "acts",
        header: words.act,
        enableSorting: false,
        cell: ({ row: { original } }) => {
          if (!may) return null;
          const verb = original.status === "open" ? "close" : "open";
          return (
            <Button
              size="compact-sm"
              variant="default"
              aria-label={verb === "close" ? words.closeTitle(original.host) : words.openTitle(original.host)}
              onClick={() => act({ do: verb, of: "host", name: original.host })}
            >
              {words.acts[verb]}
            </Button>
          );
        },
      },
    ];
  }, [texts, words, may, act]);
  return (
    <>
      <ProblemBox problem={found.error} />
      {found.data && (
        <>
          <Text fz="sm" c="dimmed" mb="xs">
            {words.shown(found.data.hosts.length, found.data.total)} {words.hostsWords}
          </Text>
          <Rows caption={words.tabs.hosts} columns={columns} rows={found.data.hosts} idOf={(one) => one.host} />
        </>
      )}
    </>
  );
}
