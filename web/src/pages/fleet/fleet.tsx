import { Group, Loader, Stack, Tabs, Text, Title } from "@mantine/core";
import { useDocumentTitle } from "@mantine/hooks";
import { keepPreviousData, useQuery, useQueryClient } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { useSearchParams } from "wouter";
import { api, told, type Schemas } from "../../api/client";
import { useLive } from "../../api/live";
import { useMay } from "../../api/session";
import Chart, { type Series } from "../../parts/chart";
import { FirstSteps } from "../../parts/first-steps";
import { visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { SpanChoice, useSpan } from "../../parts/span";
import { useTexts } from "../../texts/texts";
import { ActDialog, type FleetAct } from "./act-dialog";
import { Caches } from "./caches";
import { Hosts } from "./hosts";
import { Peers } from "./peers";
import { Pilots } from "./pilots";
import { Sites } from "./sites";

type Fleet = Schemas["FleetOut"];
const TABS = ["sites", "pilots", "hosts", "caches", "peers"] as const;
type Tab = (typeof TABS)[number];
const DRAWN = 5;
/** The past grows by itself, also when nothing changes. */
const EVERY = 60_000;

const sum = (numbers: number[]) => numbers.reduce((all, one) => all + one, 0);

function Words({ fleet }: { fleet: Fleet }) {
  const words = useTexts().fleet;
  const of = (field: "busy" | "idle" | "silent" | "coming" | "slots" | "running") => sum(fleet.sites.map((one) => one[field]));
  return (
    <Stack gap={4} className="panel" p="md" component="section" aria-label={words.inWords}>
      <Text>{words.pilotsNow(of("busy"), of("idle"), of("coming"), of("silent"))}</Text>
      <Text>{words.capacity(of("running"), of("slots"))}</Text>
      <Text>{fleet.hosts_closed === 0 ? words.allOpen(fleet.hosts_open) : words.someClosed(fleet.hosts_closed, fleet.hosts_open + fleet.hosts_closed)}</Text>
      {!fleet.whole && <Text c="dimmed">{words.notWhole}</Text>}
    </Stack>
  );
}

/** Everything that runs jobs: what it is, what it does, and what is wrong with it. */
export default function FleetPage() {
  const texts = useTexts();
  const words = texts.fleet;
  const queries = useQueryClient();
  const may = useMay("operator");
  const span = useSpan();
  const [search, setSearch] = useSearchParams();
  const asked = search.get("tab");
  const tab: Tab = TABS.find((one) => one === asked) ?? "sites";
  const [act, setAct] = useState<FleetAct | null>(null);
  useDocumentTitle(`${words.title} · Forestay`);
  useLive("/v1/fleet/changes", "fleet", () => void queries.invalidateQueries({ queryKey: ["fleet"] }));
  const found = useQuery({
    queryKey: ["fleet", "sites", span],
    queryFn: () => told(api.GET("/v1/fleet", { params: { query: { span } } })),
    refetchInterval: EVERY,
    placeholderData: keepPreviousData,
  });
  const fleet = found.data;
  const series = useMemo<Series[]>(() => {
    if (fleet === undefined) return [];
    const sites = [...fleet.sites].sort((one, other) => sum(other.pilots_over) - sum(one.pilots_over));
    const shown = sites.slice(0, DRAWN).map((one, place) => ({ words: visible(one.site) || words.noSite, values: one.pilots_over, colour: `chart-${place + 1}` }));
    const others = sites.slice(DRAWN);
    if (others.length === 0) return shown;
    return [...shown, { words: texts.overview.others, values: fleet.starts.map((_, place) => sum(others.map((one) => one.pilots_over[place] ?? 0))), colour: "chart-6" }];
  }, [fleet, texts, words]);
  const choose = (value: string | null) =>
    setSearch(
      (before) => {
        const after = new URLSearchParams(before);
        after.set("tab", value ?? "sites");
        return after;
      },
      { replace: true },
    );
  return (
    <Stack gap="sm" maw={1280}>
      <Group justify="space-between" align="flex-end">
        <Title order={1}>{words.title}</Title>
        <SpanChoice />
      </Group>
      <ProblemBox problem={found.error} />
      {fleet === undefined && found.isPending && <Loader size="sm" aria-label={texts.app.loading} />}
      {fleet !== undefined && fleet.sites.length === 0 && <FirstSteps title={words.first} words={words.firstWords} steps={words.firstSteps} />}
      {fleet !== undefined && fleet.sites.length > 0 && (
        <>
          <Words fleet={fleet} />
          <Stack className="panel" p="md" gap="xs" component="section" aria-labelledby="over">
            <Title order={2} id="over">
              {words.over}
            </Title>
            <Chart title={words.over} starts={fleet.starts} step={fleet.step} series={series} height={150} />
          </Stack>
        </>
      )}
      <Tabs value={tab} onChange={choose} keepMounted={false} className="panel">
        <Tabs.List aria-label={words.title}>
          {TABS.map((one) => (
            <Tabs.Tab key={one} value={one}>
              {words.tabs[one]}
            </Tabs.Tab>
          ))}
        </Tabs.List>
        <Tabs.Panel value="sites" p="md">
          {fleet !== undefined && fleet.sites.length > 0 ? <Sites sites={fleet.sites} act={setAct} /> : <Text>{words.noPilots}</Text>}
        </Tabs.Panel>
        <Tabs.Panel value="pilots" p="md">
          <Pilots act={setAct} />
        </Tabs.Panel>
        <Tabs.Panel value="hosts" p="md">
          <Hosts act={setAct} />
        </Tabs.Panel>
        <Tabs.Panel value="caches" p="md">
          <Caches />
        </Tabs.Panel>
        <Tabs.Panel value="peers" p="md">
          <Peers />
        </Tabs.Panel>
      </Tabs>
      {!may && (
        <Text fz="sm" c="dimmed">
          {texts.app.ofRole("operator")}
        </Text>
      )}
      {act !== null && <ActDialog act={act} close={() => setAct(null)} />}
    </Stack>
  );
}
