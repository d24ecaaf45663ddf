import { Badge, Button, Text } from "@mantine/core";
import { useMemo } from "react";
import type { Schemas } from "../../api/client";
import { useMay } from "../../api/session";
import { Ago } from "../../parts/ago";
import { visible } from "../../parts/plain";
import { Rows, type Column } from "../../parts/rows";
import { useTexts } from "../../texts/texts";
import type { FleetAct } from "./act-dialog";

type Site = Schemas["SiteFleetOut"];

function Status({ site }: { site: Site }) {
  const words = useTexts().fleet;
  const bad = site.overdue || site.trouble !== "";
  const said = site.overdue ? words.overdue : site.trouble ? words.troubled : site.agent ? words.heard : words.noAgent;
  return (
    <>
      <Badge miw="max-content" variant="light" color={bad ? "red" : site.agent ? "green" : "gray"} c={bad ? "var(--bad)" : "var(--ink)"} tt="none" data-status={bad ? "bad" : "well"}>
        {said}
      </Badge>
      {site.trouble && <Text fz="sm">{visible(site.trouble)}</Text>}
      {site.seen !== null && (
        <Text fz="xs" c="dimmed">
          {visible(site.host)} · <Ago at={site.seen} />
        </Text>
      )}
    </>
  );
}

export function Sites({ sites, act }: { sites: Site[]; act(what: FleetAct): void }) {
  const texts = useTexts();
  const words = texts.fleet;
  const may = useMay("operator");
  const columns = useMemo<Column<Site>[]>(() => {
    const number = (id: keyof Site & string, header: string): Column<Site> => ({
      accessorKey: id,
      header,
      meta: { numbers: true },
      cell: ({ row }) => Number(row.original[id]).toLocaleString(texts.language),
    });
    return [
      {
        accessorKey: "site",
        header: words.site,
        cell: ({ row: { original } }) => (
          <>
            <Text fz="sm" fw={600}>
              {visible(original.site) || words.noSite}
            </Text>
            <Text fz="xs" c="dimmed">
              {visible(original.batch)}
            </Text>
          </>
        ),
      },
      { id: "status", header: words.agent, accessorFn: (one) => one.trouble, cell: ({ row }) => <Status site={row.original} /> },
      number("coming", words.coming),
      number("busy", words.busy),
      number("idle", words.idle),
      number("silent", words.silent),
      {
        id: "slots",
        accessorFn: (one) => one.slots,
        header: words.slots,
        meta: { numbers: true },
        cell: ({ row: { original } }) => words.of(original.running, original.slots),
      },
      {
        id: "most",
        accessorFn: (one) => one.max_pilots ?? 0,
        header: words.maxPilots,
        meta: { numbers: true },
        cell: ({ row }) => row.original.max_pilots?.toLocaleString(texts.language) ?? "–",
      },
      {
        id: "acts",
        header: words.act,
        enableSorting: false,
        cell: ({ row: { original } }) =>
          may && original.site !== "" && original.busy + original.idle + original.silent > 0 ? (
            <Button
              size="compact-sm"
              variant="default"
              aria-label={words.drainOf(original.site)}
              onClick={() => act({ do: "drain", of: "site", name: original.site, many: original.busy + original.idle + original.silent })}
            >
              {words.acts.drain}
            </Button>
          ) : null,
      },
    ];
  }, [texts, words, may, act]);
  return <Rows caption={words.tabs.sites} columns={columns} rows={sites} idOf={(one) => one.site} />;
}
