import { Anchor, Badge, Button, Grid, Group, Loader, Stack, Text, Title } from "@mantine/core";
import { useDocumentTitle } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { Link } from "wouter";
import { api, told, type Schemas } from "../../api/client";
import { useMay, useSession } from "../../api/session";
import { Ago, Moment } from "../../parts/ago";
import { Drawn, type DrawnEdge, type DrawnNode } from "../../parts/drawn";
import { visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { useTexts } from "../../texts/texts";
import { FactTable } from "../incident/evidence";
import { CancelDialog } from "./cancel-dialog";
import { Held } from "./held";
import { Questions } from "./questions";
import { RaisePanel } from "./raise-panel";
import { ResumeDialog } from "./resume-dialog";
import { useSteering, waits } from "./steering";
import { TaskDialog } from "./task-dialog";

type Whole = Schemas["RunDetailsOut"];
type TaskInstance = Schemas["TaskOut"];
const OVER = new Set(["completed", "forced_complete", "failed", "removed", "undone", "terminated", "broken", "finished"]);
const RESUMABLE = new Set(["failed", "removed"]);
const LIT: Record<string, string> = { completed: "true", forced_complete: "true", running: "true", failed: "false", faulted: "false", cancelled: "false" };
const STORY = 100;

/** The tasks of a run, each with its jobs as counts: a million of them is one box. One that is chosen can be steered. */
function Graph({ whole, steerable }: { whole: Whole; steerable: boolean }) {
  const texts = useTexts();
  const [chosen, choose] = useState<string | null>(null);
  const flow = useQuery({
    queryKey: ["flow", whole.version],
    queryFn: () => told(api.GET("/v1/flows/{version}", { params: { path: { version: whole.version } } })),
    staleTime: Infinity,
    retry: false,
  });
  const [nodes, edges] = useMemo(() => {
    const known = new Map(whole.tasks.map((one) => [one.id, one]));
    const order = flow.data?.order ?? {};
    const names = [...new Set([...Object.keys(order), ...known.keys()])];
    const boxes: DrawnNode[] = names.map((id) => {
      const task: TaskInstance | undefined = known.get(id);
      const state = texts.runs.tasks[task?.state ?? "waiting"] ?? task?.state ?? "";
      const jobs = task && task.count > 1 ? texts.runs.jobs(task.well, task.bad, task.count) : "";
      const places = Object.keys(task?.domains ?? {}).map((name) => (name === "" ? texts.runs.thisDomain : name));
      const lit = LIT[task?.state ?? ""];
      return {
        id,
        label: `${id}: ${state} ${jobs}`,
        height: 64 + (jobs ? 20 : 0) + (places.length > 0 ? 20 : 0),
        ...(lit === undefined ? {} : { marks: { "data-lit": lit } }),
        content: (
          <>
            <Text fz="sm" fw={600}>
              {visible(id)}
            </Text>
            <Text fz="xs">{state}</Text>
            {jobs && <Text fz="xs">{jobs}</Text>}
            {places.length > 0 && <Text fz="xs">{texts.runs.inDomains(visible(places.join(", ")))}</Text>}
            {task && task.holders.length > 0 && <Text fz="xs">{texts.runs.holders(visible(task.holders.join(", ")))}</Text>}
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
  return (
    <>
      <Drawn nodes={nodes} edges={edges} direction="LR" height={340} label={texts.runs.graph} choose={steerable ? choose : undefined} />
      {steerable && chosen !== null && <TaskDialog run={whole} id={chosen} order={flow.data?.order ?? {}} close={() => choose(null)} />}
    </>
  );
}

function RunStory({ name }: { name: string }) {
  const texts = useTexts();
  const found = useQuery({
    queryKey: ["run", name, "story"],
    queryFn: () => told(api.GET("/v1/runs/{run}/story", { params: { path: { run: name }, query: { limit: STORY } } })),
    refetchInterval: 5_000,
  });
  return (
    <section aria-labelledby="story" className="panel">
      <Stack p="md" gap="xs">
        <Title order={2} id="story">
          {texts.runs.story}
        </Title>
        <ProblemBox problem={found.error} />
        <Anchor component={Link} href={`/jobs?run=${encodeURIComponent(name)}`} fz="sm" underline="always">
          {texts.jobs.ofRun}
        </Anchor>
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
                  <Anchor component={Link} href={`/incidents/${one.incident}`} fz="sm" underline="always">
                    {texts.runs.lookAt}
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

export default function FlowRun({ name }: { name: string }) {
  const texts = useTexts();
  const { subject } = useSession();
  const operator = useMay("operator");
  const submitter = useMay("submitter");
  const found = useQuery({
    queryKey: ["run", name],
    queryFn: () => told(api.GET("/v1/runs/{run}", { params: { path: { run: name } } })),
    refetchInterval: (query) => (query.state.data && OVER.has(query.state.data.state) ? false : 2_000),
  });
  const steering = useSteering(name);
  const whole = found.data;
  useDocumentTitle(`${whole ? visible(whole.name) : texts.runs.title} · Forestay`);
  if (whole === undefined) return found.isError ? <ProblemBox problem={found.error} /> : <Loader size="sm" aria-label={texts.app.loading} />;
  const may = operator || (submitter && whole.owner === subject);
  const over = OVER.has(whole.state);
  return (
    <Stack gap="md" maw={1400}>
      <Group justify="space-between" align="flex-start">
        <div>
          <Anchor component={Link} href="/runs" fz="sm">
            ← {texts.runs.title}
          </Anchor>
          <Title order={1}>{visible(whole.name)}</Title>
          <Group gap="xs">
            <Badge variant="light" color={whole.state === "suspended" || whole.state === "held" || whole.state === "asking" ? "orange" : "gray"} c="var(--ink)" tt="none" data-status={whole.state}>
              {texts.runs.states[whole.state] ?? whole.state}
            </Badge>
            <Text fz="sm" c="dimmed">
              {visible(whole.owner)} · <Ago at={whole.started} /> {whole.schedule && `· ${texts.runs.schedule(visible(whole.schedule))}`} {whole.reason && `· ${visible(whole.reason)}`}
            </Text>
          </Group>
        </div>
        {may && RESUMABLE.has(whole.state) && <ResumeDialog name={name} />}
        {may && !over && (
          <Group gap="xs">
            {!whole.holders.includes(subject) && (
              <Button variant="default" loading={steering.isPending} onClick={() => steering.mutate({ verb: "suspend" })}>
                {texts.runs.suspend}
              </Button>
            )}
            <CancelDialog run={whole} />
          </Group>
        )}
      </Group>
      <ProblemBox problem={steering.error} />
      {waits(steering.data) && <Text fz="sm">{texts.runs.waitsForApproval}</Text>}
      <Questions run={name} />
      <Held run={whole} />
      <Graph whole={whole} steerable={may && !over} />
      <Grid gutter="md">
        <Grid.Col span={{ base: 12, md: 7 }}>
          <RunStory name={name} />
        </Grid.Col>
        <Grid.Col span={{ base: 12, md: 5 }}>
          <Stack gap="md">
            {may && !over && <RaisePanel name={name} tasks={whole.tasks.map((one) => one.id)} />}
            <Stack gap="xs" className="panel" p="md">
              <Title order={2}>{texts.runs.params}</Title>
              <FactTable facts={whole.params} caption={texts.runs.params} />
              {Object.keys(whole.outputs).length > 0 && (
                <>
                  <Title order={2}>{texts.runs.outputs}</Title>
                  <FactTable facts={whole.outputs} caption={texts.runs.outputs} />
                </>
              )}
            </Stack>
          </Stack>
        </Grid.Col>
      </Grid>
    </Stack>
  );
}
