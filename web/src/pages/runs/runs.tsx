import { Anchor, Button, Checkbox, Code, Group, Loader, Select, Stack, Text, TextInput, Title } from "@mantine/core";
import { useDebouncedValue, useDocumentTitle } from "@mantine/hooks";
import { keepPreviousData, useInfiniteQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { Link, useSearchParams } from "wouter";
import { api, Problem, told, type Schemas } from "../../api/client";
import { Ago } from "../../parts/ago";
import { visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { Rows, type Column } from "../../parts/rows";
import { useMay, useSession } from "../../api/session";
import { useTexts } from "../../texts/texts";
import { fits, ManyDialog, type Act } from "./many-dialog";

type RunRow = Schemas["RunOut"];
const SHOWN = 50;
const HELD = "suspended,held";
const ACTS: Act[] = ["suspend", "resume", "remove"];

/** The rows that are chosen, and what can be done to them. */
function Chosen({ runs, clear }: { runs: RunRow[]; clear: () => void }) {
  const texts = useTexts();
  const [act, setAct] = useState<Act | null>(null);
  const [touched, setTouched] = useState<RunRow[]>([]);
  const labels: Record<Act, string> = { suspend: texts.runs.suspend, resume: texts.runs.resume, remove: texts.runs.cancel };
  const begin = (wanted: Act) => {
    setTouched(runs.filter((one) => fits(wanted, one)));
    setAct(wanted);
  };
  const close = () => {
    setAct(null);
    clear();
  };
  return (
    <>
      {runs.length > 0 && (
        <Group gap="xs" className="panel" p="xs" role="region" aria-label={texts.runs.selected(runs.length)}>
          <Text fz="sm">{texts.runs.selected(runs.length)}</Text>
          {ACTS.map((one) => (
            <Button key={one} size="xs" variant="default" disabled={!runs.some((run) => fits(one, run))} onClick={() => begin(one)}>
              {labels[one]}
            </Button>
          ))}
        </Group>
      )}
      {act !== null && <ManyDialog act={act} runs={touched} close={close} />}
    </>
  );
}

/** Runs, narrowed by what stands in the address. */
export default function Runs() {
  const texts = useTexts();
  const { subject } = useSession();
  const operator = useMay("operator");
  const submitter = useMay("submitter");
  const [search, setSearch] = useSearchParams();
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const state = search.get("state") ?? "";
  const [owner] = useDebouncedValue(search.get("owner") ?? "", 300);
  const [name] = useDebouncedValue(search.get("flow") ?? "", 300);
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
  useDocumentTitle(`${texts.runs.title} · Forestay`);
  const found = useInfiniteQuery({
    queryKey: ["runs", state, owner, name],
    queryFn: ({ pageParam }) =>
      told(api.GET("/v1/runs", { params: { query: { state, owner, name, limit: SHOWN, cursor: pageParam } } })),
    initialPageParam: null as string | null,
    getNextPageParam: (last) => last.cursor,
    // A server without an engine for runs has none later either.
    refetchInterval: (query) => (query.state.error instanceof Problem && query.state.error.status === 501 ? false : 10_000),
    placeholderData: keepPreviousData,
  });
  const columns = useMemo<Column<RunRow>[]>(
    () => [
      ...(submitter || operator
        ? [
            {
              id: "chosen",
              header: "",
              enableSorting: false,
              cell: ({ row: { original } }: { row: { original: RunRow } }) =>
                (operator || original.owner === subject) && (
                  <Checkbox
                    size="xs"
                    aria-label={texts.runs.select(`${visible(original.name)} ${original.id.slice(0, 8)}`)}
                    checked={chosen.has(original.id)}
                    onChange={(event) => {
                      const after = new Set(chosen);
                      if (event.currentTarget.checked) after.add(original.id);
                      else after.delete(original.id);
                      setChosen(after);
                    }}
                  />
                ),
            } satisfies Column<RunRow>,
          ]
        : []),
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
    [texts, operator, submitter, subject, chosen],
  );
  const rows = useMemo(() => found.data?.pages.flatMap((one) => one.runs) ?? [], [found.data]);
  return (
    <Stack gap="sm" maw={1280}>
      <Group justify="space-between" align="flex-end">
        <div>
          <Title order={1}>{texts.runs.title}</Title>
          <Text c="dimmed">{texts.runs.words}</Text>
        </div>
        <Group gap="xs">
          <TextInput size="xs" aria-label={texts.runs.flow} placeholder={texts.runs.anyFlow} value={search.get("flow") ?? ""} onChange={(event) => ask("flow", event.currentTarget.value)} />
          <TextInput size="xs" aria-label={texts.inbox.owner} placeholder={texts.runs.anyOwner} value={search.get("owner") ?? ""} onChange={(event) => ask("owner", event.currentTarget.value)} />
          <Select
            size="xs"
            clearable
            aria-label={texts.runs.state}
            placeholder={texts.runs.anyState}
            data={[{ value: HELD, label: texts.runs.heldTab }, ...Object.entries(texts.runs.states).map(([value, label]) => ({ value, label }))]}
            value={state || null}
            onChange={(value) => ask("state", value)}
          />
        </Group>
      </Group>
      <ProblemBox problem={found.error} />
      {found.isPending && <Loader size="sm" aria-label={texts.app.loading} />}
      {found.data !== undefined && rows.length === 0 && (state || owner || name) && <Text c="dimmed">{texts.runs.noneSuch}</Text>}
      {found.data !== undefined && rows.length === 0 && !(state || owner || name) && (
        <Stack className="panel" p="lg" gap="xs">
          <Title order={2}>{texts.runs.none}</Title>
          <Text>{texts.runs.noneWords}</Text>
          <Code block>{texts.runs.command}</Code>
        </Stack>
      )}
      <Chosen runs={rows.filter((one) => chosen.has(one.id))} clear={() => setChosen(new Set())} />
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
