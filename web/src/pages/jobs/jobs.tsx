import { Anchor, Button, Chip, Group, Loader, Stack, Text, TextInput, Title } from "@mantine/core";
import { useDebouncedValue, useDocumentTitle, useLocalStorage } from "@mantine/hooks";
import { keepPreviousData, useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { Link, useSearchParams } from "wouter";
import { api, told, type Schemas } from "../../api/client";
import { Ago } from "../../parts/ago";
import { JobState } from "../../parts/job-state";
import { visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { Rows, type Column } from "../../parts/rows";
import { useTexts } from "../../texts/texts";

type JobRow = Schemas["JobOut"];
type JobState = JobRow["state"];
const SHOWN = 50;

interface View {
  name: string;
  search: string;
}

/** Jobs by any of their fields. What is asked for stands in the address, so that a view can be kept and sent. */
export default function Jobs() {
  const texts = useTexts();
  const [search, setSearch] = useSearchParams();
  const [views, setViews] = useLocalStorage<View[]>({ key: "forestay-job-views", defaultValue: [] });
  const [saving, setSaving] = useState("");
  const state = search.get("state");
  const typed = search.get("name") ?? "";
  const [name] = useDebouncedValue(typed, 300);
  const owner = search.get("owner") ?? "";
  useDocumentTitle(`${texts.jobs.title} · Forestay`);
  const run = search.get("run") ?? "";
  const narrow = { name: name ? [name] : undefined, owner: owner ? [owner] : undefined, run: run ? [run] : undefined };
  const counts = useQuery({
    queryKey: ["job-counts", name, owner, run],
    queryFn: () => told(api.GET("/v1/jobs/counts", { params: { query: { by: "state", ...narrow } } })),
    refetchInterval: 10_000,
    placeholderData: keepPreviousData,
  });
  const found = useInfiniteQuery({
    queryKey: ["jobs", state, name, owner, run],
    queryFn: ({ pageParam }) =>
      told(
        api.GET("/v1/jobs", {
          params: { query: { ...narrow, state: state ? [state as JobState] : undefined, limit: SHOWN, cursor: pageParam } },
        }),
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (last) => last.cursor,
    refetchInterval: 10_000,
    placeholderData: keepPreviousData,
  });
  const ask = (field: string, value: string | null) =>
    setSearch(
      (before) => {
        const after = new URLSearchParams(before);
        if (value) after.set(field, value);
        else after.delete(field);
        return after;
      },
      { replace: true },
    );
  const columns = useMemo<Column<JobRow>[]>(
    () => [
      {
        accessorKey: "name",
        header: texts.jobs.name,
        cell: ({ row: { original } }) => (
          <Anchor component={Link} href={`/jobs/${original.id}`} fz="sm" fw={600}>
            {visible(original.name)} <span className="plain">{original.id.slice(0, 8)}</span>
          </Anchor>
        ),
      },
      { accessorKey: "state", header: texts.jobs.state, cell: ({ row }) => <JobState job={row.original} /> },
      { accessorKey: "owner", header: texts.jobs.owner, cell: ({ row }) => visible(row.original.owner) },
      { accessorKey: "attempt", header: texts.jobs.attempt, meta: { numbers: true }, cell: ({ row }) => row.original.attempt },
      {
        id: "host",
        accessorFn: (one) => one.claim?.host ?? one.last?.host ?? "",
        header: texts.jobs.host,
        cell: ({ row }) => visible(row.original.claim?.host ?? row.original.last?.host ?? ""),
      },
      { accessorKey: "created", header: texts.jobs.created, cell: ({ row }) => <Ago at={row.original.created} /> },
      { accessorKey: "changed", header: texts.jobs.changed, cell: ({ row }) => <Ago at={row.original.changed} /> },
    ],
    [texts],
  );
  const rows = useMemo(() => found.data?.pages.flatMap((one) => one.jobs) ?? [], [found.data]);
  return (
    <Stack gap="sm" maw={1280}>
      <Title order={1}>{texts.jobs.title}</Title>
      <Group align="flex-end" gap="sm">
        <TextInput size="xs" label={texts.jobs.find} value={typed} onChange={(event) => ask("name", event.currentTarget.value)} />
        <TextInput size="xs" label={texts.jobs.owner} value={owner} onChange={(event) => ask("owner", event.currentTarget.value)} />
        {run && <TextInput size="xs" label={texts.jobs.run} value={run} onChange={(event) => ask("run", event.currentTarget.value)} />}
        <TextInput size="xs" label={texts.jobs.viewName} value={saving} onChange={(event) => setSaving(event.currentTarget.value)} />
        <Button
          size="xs"
          variant="default"
          disabled={saving.trim() === ""}
          onClick={() => {
            setViews((before) => [...before.filter((one) => one.name !== saving), { name: saving, search: search.toString() }]);
            setSaving("");
          }}
        >
          {texts.jobs.saveView}
        </Button>
      </Group>
      {views.length > 0 && (
        <Group gap="xs" component="nav" aria-label={texts.jobs.views}>
          {views.map((one) => (
            <Anchor key={one.name} component={Link} href={`/jobs?${one.search}`} fz="sm">
              {one.name}
            </Anchor>
          ))}
        </Group>
      )}
      <Chip.Group value={state ?? "any"} onChange={(value) => ask("state", value === "any" ? null : String(value))}>
        <Group gap={6} role="group" aria-label={texts.jobs.facets}>
          <Chip size="xs" value="any">
            {texts.jobs.any} {Object.values(counts.data?.counts ?? {}).reduce((sum, n) => sum + n, 0).toLocaleString(texts.language)}
          </Chip>
          {Object.entries(texts.jobs.states).map(([value, words]) => (
            <Chip size="xs" key={value} value={value}>
              {words} {(counts.data?.counts[value] ?? 0).toLocaleString(texts.language)}
            </Chip>
          ))}
        </Group>
      </Chip.Group>
      <ProblemBox problem={found.error ?? counts.error} />
      {found.isPending && <Loader size="sm" aria-label={texts.app.loading} />}
      {found.data !== undefined && rows.length === 0 && <Text>{texts.jobs.none}</Text>}
      {rows.length > 0 && (
        <div className="panel">
          <Rows caption={texts.jobs.title} columns={columns} rows={rows} idOf={(one) => one.id} />
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
