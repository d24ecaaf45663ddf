import { Anchor, Card, Group, Loader, SimpleGrid, Stack, Text, Title } from "@mantine/core";
import { useDocumentTitle } from "@mantine/hooks";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { Link } from "wouter";
import { api, told, type Schemas } from "../../api/client";
import { hours } from "../../parts/ago";
import { useCause } from "../../parts/cause";
import Chart, { type Series } from "../../parts/chart";
import { FirstSteps } from "../../parts/first-steps";
import { ProblemBox } from "../../parts/problem-box";
import { Rows, type Column } from "../../parts/rows";
import { SpanChoice, useSpan } from "../../parts/span";
import { useTexts } from "../../texts/texts";

type Past = Schemas["OverviewOut"];
type Cause = Schemas["CauseOut"];
/** As often as the server counts anew. */
const EVERY = 15_000;
const CAUSES = 5;

const sum = (numbers: number[]) => numbers.reduce((all, one) => all + one, 0);

/** Everything below, said in sentences. */
function Words({ past }: { past: Past }) {
  const texts = useTexts();
  const words = texts.overview;
  const well = sum(past.well);
  const ended = well + sum(past.failed) + sum(past.cancelled);
  const { fates, wait } = past;
  const waiting = past.status.available ?? 0;
  const running = past.status.running ?? 0;
  return (
    <Stack gap={4} className="panel" p="md" component="section" aria-label={words.inWords}>
      <Text>{words.ended(words.last[past.span], sum(past.submitted), ended, well)}</Text>
      <Text>{words.now(running, waiting)}</Text>
      {wait.median !== null && wait.most !== null && <Text>{words.waited(words.seconds(wait.median), words.seconds(wait.most), wait.looked)}</Text>}
      {fates.jobs === 0 ? (
        <Text>{words.noFailures}</Text>
      ) : (
        <>
          <Text>{words.failures(fates.jobs, fates.recovered, fates.by_hand, fates.not_well, fates.open)}</Text>
          {fates.recovered > 0 && <Text>{words.saved(hours(texts, fates.core_hours_saved))}</Text>}
        </>
      )}
      {past.looked < past.incidents && <Text c="dimmed">{words.newest(past.looked, past.incidents)}</Text>}
      {past.waiting > 0 && (
        <Text>
          {words.wait(past.waiting)}{" "}
          <Anchor component={Link} href="/inbox" underline="always">
            {texts.pages.inbox}
          </Anchor>
        </Text>
      )}
    </Stack>
  );
}

function Figure({ words, value, note }: { words: string; value: string; note: string }) {
  return (
    <Card withBorder p="sm" bg="var(--mantine-color-body)" component="li">
      <Text fz="sm" c="dimmed">
        {words}
      </Text>
      <Text fz={26} fw={650} lh={1.3} className="figure">
        {value}
      </Text>
      <Text fz="xs" c="dimmed">
        {note}
      </Text>
    </Card>
  );
}

function Figures({ past }: { past: Past }) {
  const texts = useTexts();
  const words = texts.overview;
  const { fates, wait } = past;
  const perHour = (3600 * sum(past.well)) / (past.step * past.well.length);
  return (
    <SimpleGrid cols={{ base: 2, md: 4 }} spacing="sm" component="ul" m={0} p={0} className="bare">
      <Figure words={words.perHour} value={hours(texts, perHour)} note={words.perHourNote(sum(past.well))} />
      <Figure words={words.median} value={wait.median === null ? "–" : words.seconds(wait.median)} note={words.medianNote} />
      <Figure words={words.recovered} value={fates.jobs === 0 ? "–" : `${Math.round((100 * fates.recovered) / fates.jobs)} %`} note={words.recoveredNote(fates.recovered, fates.jobs)} />
      <Figure words={words.savedHours} value={hours(texts, fates.core_hours_saved)} note={words.savedNote} />
    </SimpleGrid>
  );
}

function Causes({ past }: { past: Past }) {
  const texts = useTexts();
  const words = texts.overview;
  const cause = useCause();
  const series = useMemo<Series[]>(() => {
    const first = past.causes.slice(0, CAUSES);
    const others = past.causes.slice(CAUSES);
    const shown = first.map((one, place) => ({ words: cause(one.cause)[0], values: one.steps, colour: `chart-${place + 1}` }));
    if (others.length === 0) return shown;
    const rest = past.starts.map((_, place) => sum(others.map((one) => one.steps[place] ?? 0)));
    return [...shown, { words: words.others, values: rest, colour: "chart-6" }];
  }, [past, cause, words]);
  const columns = useMemo<Column<Cause>[]>(
    () => [
      { accessorKey: "cause", header: texts.inbox.cause, cell: ({ row }) => cause(row.original.cause)[0] },
      ...(
        [
          ["incidents", words.incidents, (one: Cause) => one.incidents],
          ["recovered", words.recovered, (one: Cause) => one.fates.recovered],
          ["by_hand", words.byHand, (one: Cause) => one.fates.by_hand],
          ["not_well", words.notWell, (one: Cause) => one.fates.not_well],
          ["open", words.open, (one: Cause) => one.fates.open],
          ["saved", words.savedHours, (one: Cause) => one.fates.core_hours_saved],
        ] as [string, string, (one: Cause) => number][]
      ).map(
        ([id, header, of]): Column<Cause> => ({
          id,
          header,
          accessorFn: of,
          meta: { numbers: true },
          cell: ({ row }) => (id === "saved" ? hours(texts, of(row.original)) : of(row.original).toLocaleString(texts.language)),
        }),
      ),
    ],
    [texts, words, cause],
  );
  return (
    <Stack className="panel" p="md" gap="xs" component="section" aria-labelledby="causes">
      <Title order={2} id="causes">
        {words.causes}
      </Title>
      {past.causes.length === 0 ? (
        <Text>{words.noFailures}</Text>
      ) : (
        <>
          <Chart title={words.causes} starts={past.starts} step={past.step} series={series} />
          <Rows caption={words.causes} columns={columns} rows={past.causes} idOf={(one) => one.cause} />
        </>
      )}
    </Stack>
  );
}

export default function Overview() {
  const texts = useTexts();
  const words = texts.overview;
  const span = useSpan();
  useDocumentTitle(`${words.title} · Forestay`);
  const found = useQuery({
    queryKey: ["overview", span],
    queryFn: () => told(api.GET("/v1/overview", { params: { query: { span } } })),
    refetchInterval: EVERY,
    placeholderData: keepPreviousData,
  });
  const past = found.data;
  const throughput = useMemo<Series[]>(
    () =>
      past === undefined
        ? []
        : [
            { words: words.well, values: past.well, colour: "chart-1" },
            { words: words.failed, values: past.failed, colour: "chart-5" },
            { words: words.cancelled, values: past.cancelled, colour: "chart-6" },
            { words: words.submitted, values: past.submitted, colour: "chart-2", line: true },
          ],
    [past, words],
  );
  const waits = useMemo<Series[]>(
    () =>
      past === undefined
        ? []
        : [
            { words: words.most, values: past.waits.map((one) => one.most), colour: "chart-3", line: true },
            { words: words.medianLine, values: past.waits.map((one) => one.median), colour: "chart-1", line: true },
          ],
    [past, words],
  );
  const nothing = past !== undefined && sum(past.submitted) === 0 && sum(past.well) === 0 && Object.keys(past.status).length === 0 && past.incidents === 0;
  return (
    <Stack gap="sm" maw={1280}>
      <Group justify="space-between" align="flex-end">
        <Title order={1}>{words.title}</Title>
        <SpanChoice />
      </Group>
      <ProblemBox problem={found.error} />
      {past === undefined && found.isPending && <Loader size="sm" aria-label={texts.app.loading} />}
      {nothing && <FirstSteps title={span === "month" ? texts.inbox.first : words.nothing(words.last[span])} words={texts.inbox.firstWords} steps={words.firstSteps} />}
      {past !== undefined && !nothing && (
        <>
          <Words past={past} />
          <Figures past={past} />
          <Stack className="panel" p="md" gap="xs" component="section" aria-labelledby="throughput">
            <Title order={2} id="throughput">
              {words.throughput}
            </Title>
            <Chart title={words.throughput} starts={past.starts} step={past.step} series={throughput} />
          </Stack>
          <Stack className="panel" p="md" gap="xs" component="section" aria-labelledby="waits">
            <Title order={2} id="waits">
              {words.waits}
            </Title>
            {past.wait.looked === 0 ? <Text>{words.noWaits}</Text> : <Chart title={words.waits} starts={past.starts} step={past.step} series={waits} shown={words.seconds} height={150} />}
          </Stack>
          <Causes past={past} />
        </>
      )}
    </Stack>
  );
}
