import { Anchor, Button, Code, Group, Loader, Select, Stack, Text, Title } from "@mantine/core";
import { useDocumentTitle } from "@mantine/hooks";
import { keepPreviousData, useInfiniteQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { Link } from "wouter";
import { api, told, type Schemas } from "../../api/client";
import { Ago } from "../../parts/ago";
import { visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { Rows, type Column } from "../../parts/rows";
import { useTexts } from "../../texts/texts";

type RunRow = Schemas["RunOut"];
const SHOWN = 50;

export default function Runs() {
  const texts = useTexts();
  const [state, setState] = useState<string | null>(null);
  useDocumentTitle(`${texts.runs.title} · Forestay`);
  const found = useInfiniteQuery({
    queryKey: ["runs", state],
    queryFn: ({ pageParam }) =>
      told(api.GET("/v1/runs", { params: { query: { state: state ?? "", limit: SHOWN, cursor: pageParam } } })),
    initialPageParam: null as string | null,
    getNextPageParam: (last) => last.cursor,
    refetchInterval: 10_000,
    placeholderData: keepPreviousData,
  });
  const columns = useMemo<Column<RunRow>[]>(
    () => [
      {
        accessorKey: "name",
        header: texts.runs.flow,
        cell: ({ row: { original } }) => (
          <Anchor component={Link} href={`/runs/${original.id}`} fz="sm" fw={600}>
            {visible(original.name)} <span className="plain">{original.id.slice(0, 8)}</span>
          </Anchor>
        ),
      },
      { accessorKey: "state", header: texts.runs.state, cell: ({ row }) => texts.runs.states[row.original.state] ?? row.original.state },
      { accessorKey: "owner", header: texts.inbox.owner, cell: ({ row }) => visible(row.original.owner) },
      { accessorKey: "started", header: texts.runs.started, cell: ({ row }) => <Ago at={row.original.started} /> },
      { accessorKey: "ended", header: texts.runs.ended, cell: ({ row }) => (row.original.ended ? <Ago at={row.original.ended} /> : "–") },
    ],
    [texts],
  );
  const rows = useMemo(() => found.data?.pages.flatMap((one) => one.runs) ?? [], [found.data]);
  return (
    <Stack gap="sm" maw={1280}>
      <Group justify="space-between" align="flex-end">
        <div>
          <Title order={1}>{texts.runs.title}</Title>
          <Text c="dimmed">{texts.runs.words}</Text>
        </div>
        <Select
          size="xs"
          clearable
          aria-label={texts.runs.state}
          placeholder={texts.runs.anyState}
          data={Object.entries(texts.runs.states).map(([value, label]) => ({ value, label }))}
          value={state}
          onChange={setState}
        />
      </Group>
      <ProblemBox problem={found.error} />
      {found.isPending && <Loader size="sm" aria-label={texts.app.loading} />}
      {found.data !== undefined && rows.length === 0 && (
        <Stack className="panel" p="lg" gap="xs">
          <Title order={2}>{texts.runs.none}</Title>
          <Text>{texts.runs.noneWords}</Text>
          <Code block>{texts.runs.command}</Code>
        </Stack>
      )}
      {rows.length > 0 && (
        <div className="panel">
          <Rows caption={texts.runs.title} columns={columns} rows={rows} idOf={(one) => one.id} />
        </div>
      )}
      {found.hasNextPage && (
        <Button variant="default" loading={found.isFetchingNextPage} onClick={() => void found.fetchNextPage()}>
          {texts.app.more}
        </Button>
      )}
    </Stack>
  );
}
