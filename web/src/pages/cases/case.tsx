import { Anchor, Badge, Button, Grid, Group, Loader, Stack, Text, Title } from "@mantine/core";
import { useDocumentTitle } from "@mantine/hooks";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useMemo } from "react";
import { Link } from "wouter";
import { api, told, type Schemas } from "../../api/client";
import { useMay, useSession } from "../../api/session";
import { Ago, Moment } from "../../parts/ago";
import { Drawn, type DrawnEdge, type DrawnNode } from "../../parts/drawn";
import { visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { useTexts } from "../../texts/texts";
import { FactTable } from "../incident/evidence";
import { RaisePanel } from "./raise-panel";

type Whole = Schemas["CaseWholeOut"];
type Item = Schemas["ItemOut"];
const OVER = new Set(["completed", "forced_complete", "failed", "removed", "undone", "terminated", "broken", "finished"]);
const LIT: Record<string, string> = { completed: "true", forced_complete: "true", running: "true", failed: "false", faulted: "false", cancelled: "false" };
const STORY = 100;

/** The items of a case, each with its jobs as counts: a million of them is one box. */
function Graph({ whole }: { whole: Whole }) {
  const texts = useTexts();
  const flow = useQuery({
    queryKey: ["flow", whole.version],
    queryFn: () => told(api.GET("/v1/flows/{version}", { params: { path: { version: whole.version } } })),
    staleTime: Infinity,
    retry: false,
  });
  const [nodes, edges] = useMemo(() => {
    const known = new Map(whole.items.map((one) => [one.id, one]));
    const order = flow.data?.order ?? {};
    const names = [...new Set([...Object.keys(order), ...known.keys()])];
    const boxes: DrawnNode[] = names.map((id) => {
      const item: Item | undefined = known.get(id);
      const state = texts.cases.items[item?.state ?? "waiting"] ?? item?.state ?? "";
      const jobs = item && item.count > 1 ? texts.cases.jobs(item.well, item.bad, item.count) : "";
      const lit = LIT[item?.state ?? ""];
      return {
        id,
        label: `${id}: ${state} ${jobs}`,
        height: jobs ? 84 : 64,
        ...(lit === undefined ? {} : { marks: { "data-lit": lit } }),
        content: (
          <>
            <Text fz="sm" fw={600}>
              {visible(id)}
            </Text>
            <Text fz="xs">{state}</Text>
            {jobs && <Text fz="xs">{jobs}</Text>}
            {item && item.holders.length > 0 && <Text fz="xs">{texts.cases.holders(visible(item.holders.join(", ")))}</Text>}
          </>
        ),
      };
    });
    const arrows: DrawnEdge[] = names.flatMap((id) =>
      (order[id] ?? known.get(id)?.after ?? [])
        .filter((from) => names.includes(from))
        .map((from) => ({ from, to: id, lit: LIT[known.get(id)?.state ?? ""] === "true" })),
    );
    return [boxes, arrows];
  }, [whole, flow.data, texts]);
  return <Drawn nodes={nodes} edges={edges} direction="LR" height={340} label={texts.cases.graph} />;
}

function CaseStory({ name }: { name: string }) {
  const texts = useTexts();
  const found = useQuery({
    queryKey: ["case", name, "story"],
    queryFn: () => told(api.GET("/v1/cases/{case}/story", { params: { path: { case: name }, query: { limit: STORY } } })),
    refetchInterval: 5_000,
  });
  return (
    <section aria-labelledby="story" className="panel">
      <Stack p="md" gap="xs">
        <Title order={2} id="story">
          {texts.cases.story}
        </Title>
        <ProblemBox problem={found.error} />
        <ol className="story">
          {found.data?.story.map((one, place) => (
            <li key={`${one.at} ${place}`}>
              <Text fz="sm" c="dimmed" component="span">
                <Moment at={one.at} />
              </Text>
              <span className="dot" data-kind={one.incident ? "rule" : ""} aria-hidden />
              <Text fz="sm" component="span">
                {visible(one.words)}{" "}
                {one.incident && (
                  <Anchor component={Link} href={`/incidents/${one.incident}`} fz="sm">
                    {texts.cases.lookAt}
                  </Anchor>
                )}
              </Text>
            </li>
          ))}
        </ol>
      </Stack>
    </section>
  );
}

export default function Case({ name }: { name: string }) {
  const texts = useTexts();
  const queries = useQueryClient();
  const { subject } = useSession();
  const operator = useMay("operator");
  const submitter = useMay("submitter");
  const found = useQuery({
    queryKey: ["case", name],
    queryFn: () => told(api.GET("/v1/cases/{case}", { params: { path: { case: name } } })),
    refetchInterval: (query) => (query.state.data && OVER.has(query.state.data.state) ? false : 2_000),
  });
  const steering = useMutation({
    mutationFn: ({ verb, holder }: { verb: "suspend" | "continue"; holder?: string }) =>
      told(
        api.POST("/v1/cases/{case}/verbs", {
          params: { path: { case: name } },
          body: { verb, holder, item: "", reason: "", ancestors: false, only_failed: false },
        }),
      ),
    onSuccess: () => queries.invalidateQueries({ queryKey: ["case", name] }),
  });
  const whole = found.data;
  useDocumentTitle(`${whole ? visible(whole.name) : texts.cases.title} · Forestay`);
  if (whole === undefined) return found.isError ? <ProblemBox problem={found.error} /> : <Loader size="sm" aria-label={texts.app.loading} />;
  const may = operator || (submitter && whole.owner === subject);
  const over = OVER.has(whole.state);
  const holders = [...new Set([...whole.holders, ...whole.items.flatMap((one) => one.holders)])];
  return (
    <Stack gap="md" maw={1400}>
      <Group justify="space-between" align="flex-start">
        <div>
          <Anchor component={Link} href="/cases" fz="sm">
            ← {texts.cases.title}
          </Anchor>
          <Title order={1}>{visible(whole.name)}</Title>
          <Group gap="xs">
            <Badge variant="light" color={whole.state === "suspended" ? "orange" : "gray"} c="var(--ink)" tt="none" data-standing={whole.state}>
              {texts.cases.states[whole.state] ?? whole.state}
            </Badge>
            <Text fz="sm" c="dimmed">
              {visible(whole.owner)} · <Ago at={whole.started} /> {whole.reason && `· ${visible(whole.reason)}`}
            </Text>
          </Group>
        </div>
        {may && !over && (
          <Group gap="xs">
            {holders.includes(subject) ? (
              <Button loading={steering.isPending} onClick={() => steering.mutate({ verb: "continue" })}>
                {texts.cases.goOn}
              </Button>
            ) : (
              <Button variant="default" loading={steering.isPending} onClick={() => steering.mutate({ verb: "suspend" })}>
                {texts.cases.suspend}
              </Button>
            )}
            {operator &&
              holders
                .filter((one) => one !== subject)
                .map((holder) => (
                  <Button key={holder} variant="default" onClick={() => steering.mutate({ verb: "continue", holder })}>
                    {texts.cases.goOnFor(visible(holder))}
                  </Button>
                ))}
          </Group>
        )}
      </Group>
      <ProblemBox problem={steering.error} />
      <Graph whole={whole} />
      <Grid gutter="md">
        <Grid.Col span={{ base: 12, md: 7 }}>
          <CaseStory name={name} />
        </Grid.Col>
        <Grid.Col span={{ base: 12, md: 5 }}>
          <Stack gap="md">
            {may && !over && <RaisePanel name={name} items={whole.items.map((one) => one.id)} />}
            <Stack gap="xs" className="panel" p="md">
              <Title order={2}>{texts.cases.params}</Title>
              <FactTable facts={whole.params} caption={texts.cases.params} />
              {Object.keys(whole.outputs).length > 0 && (
                <>
                  <Title order={2}>{texts.cases.outputs}</Title>
                  <FactTable facts={whole.outputs} caption={texts.cases.outputs} />
                </>
              )}
            </Stack>
          </Stack>
        </Grid.Col>
      </Grid>
    </Stack>
  );
}
