import { Anchor, Button, Grid, Group, Loader, Stack, Text, Title } from "@mantine/core";
import { useDocumentTitle } from "@mantine/hooks";
import { useMutation, useQueries, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useSearchParams } from "wouter";
import { api, told, type Schemas } from "../../api/client";
import { useMay, useSession } from "../../api/session";
import { Ago } from "../../parts/ago";
import { JobState } from "../../parts/job-state";
import { Plain, visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { useTexts } from "../../texts/texts";
import { Acts } from "../incident/acts";
import { Decided } from "../incident/decided";
import { Evidence, FactTable } from "../incident/evidence";
import { Path } from "../incident/path";
import { Story } from "../incident/story";
import { decidingOf, Verdict } from "../incident/verdict";
import { AttemptLog } from "./attempt-log";
import { Attempts, attemptsOf, SHOWN } from "./attempts";

type Whole = Schemas["IncidentWholeOut"];
/** States of incidents after which nothing more happens. */
const OVER = new Set(["complete", "ignored", "failed"]);
const FINAL = new Set(["completed", "forced_complete", "failed", "cancelled"]);

/** The newest incidents of a job, each with its evidence and what was decided. */
function useIncidents(job: string, changed: string | undefined, live: boolean): Whole[] {
  const listed = useQuery({
    queryKey: ["job", job, "incidents", changed],
    queryFn: () => told(api.GET("/v1/incidents", { params: { query: { job, limit: SHOWN } } })),
    enabled: changed !== undefined,
    placeholderData: (before) => before,
    // A failure is recorded a moment after its attempt has ended.
    refetchInterval: live ? 5_000 : false,
  });
  return useQueries({
    queries: (listed.data?.incidents ?? []).map(({ id }) => ({
      queryKey: ["incident", id],
      refetchInterval: (query: { state: { data?: Whole } }) => (query.state.data && OVER.has(query.state.data.state) ? false : 3_000) as number | false,
      queryFn: () => told(api.GET("/v1/incidents/{incident}", { params: { path: { incident: id } } })),
    })),
    combine: (found) => found.flatMap((one) => one.data ?? []),
  });
}

function Steering({ job }: { job: Schemas["JobOut"] }) {
  const texts = useTexts();
  const queries = useQueryClient();
  const { subject } = useSession();
  const operator = useMay("operator");
  const submitter = useMay("submitter");
  const params = { path: { job: job.id } };
  const steering = useMutation({
    mutationFn: (verb: "cancel" | "hold" | "continue") => {
      if (verb === "cancel") return told(api.POST("/v1/jobs/{job}/cancel", { params, body: { reason: "" } }));
      if (verb === "hold") return told(api.POST("/v1/jobs/{job}/hold", { params, body: { reason: "" } }));
      return told(api.POST("/v1/jobs/{job}/continue", { params, body: {} }));
    },
    onSuccess: () => queries.invalidateQueries({ queryKey: ["job", job.id] }),
  });
  if ((!operator && !(submitter && job.owner === subject)) || FINAL.has(job.state)) return null;
  const verbs = [job.held ? ("continue" as const) : ("hold" as const), ...(job.state === "faulted" ? [] : (["cancel"] as const))];
  const words = { hold: texts.jobs.hold, continue: texts.jobs.goOn, cancel: texts.jobs.cancel };
  return (
    <div>
      <Group gap="xs">
        {verbs.map((verb) => (
          <Button key={verb} variant="default" loading={steering.isPending} onClick={() => steering.mutate(verb)}>
            {words[verb]}
          </Button>
        ))}
      </Group>
      <ProblemBox problem={steering.error} />
    </div>
  );
}

/** A job and its failures: what is wrong and what to do, the attempts beside each other, the log of each, and what happened. */
export default function Job({ name, incident }: { name: string; incident?: Whole }) {
  const texts = useTexts();
  const [search] = useSearchParams();
  const params = { path: { job: name } };
  const found = useQuery({
    queryKey: ["job", name],
    queryFn: () => told(api.GET("/v1/jobs/{job}", { params })),
    refetchInterval: (query) => (query.state.data && FINAL.has(query.state.data.state) ? false : 2_000),
  });
  const job = found.data;
  const story = useQuery({
    queryKey: ["job", name, "story", job?.changed],
    queryFn: () => told(api.GET("/v1/jobs/{job}/story", { params })),
    enabled: job !== undefined,
    placeholderData: (before) => before,
  });
  const specification = useQuery({
    queryKey: ["job", name, "specification"],
    queryFn: () => told(api.GET("/v1/jobs/{job}/specification", { params })),
    staleTime: Infinity,
  });
  const others = useIncidents(name, job?.changed, job !== undefined && !FINAL.has(job.state));
  useDocumentTitle(`${job ? visible(job.name) : texts.jobs.title} · Forestay`);
  if (job === undefined) return found.isError ? <ProblemBox problem={found.error} /> : <Loader size="sm" aria-label={texts.app.loading} />;
  const incidents = incident === undefined || others.some((one) => one.id === incident.id) ? others : [incident, ...others];
  const attempts = attemptsOf(job, story.data, incidents);
  const asked = Number(search.get("attempt"));
  const chosen = attempts.find((one) => one.number === asked)?.number ?? incident?.attempt ?? job.attempt;
  // The attempt that is looked at decides which failure is shown; an incident of another kind is none of an attempt's.
  const ofAttempt = attempts.find((one) => one.number === chosen)?.incident ?? undefined;
  const shown = incidents.find((one) => one.id === incident?.id && (asked === 0 || one.attempt === asked)) ?? ofAttempt ?? (asked ? undefined : incidents[0]);
  const here = incident ? `/incidents/${incident.id}` : `/jobs/${name}`;
  const task = job.work?.split("@")[0];
  return (
    <Stack gap="md" maw={1280}>
      <Group justify="space-between" align="flex-start">
        <div>
          <Anchor component={Link} href={incident ? "/inbox" : "/jobs"} fz="sm">
            ← {incident ? texts.pages.inbox : texts.jobs.title}
          </Anchor>
          <Title order={1} style={{ overflowWrap: "anywhere" }}>
            {visible(job.name)}
            {job.index !== null && ` [${job.index}]`}
          </Title>
          <Group gap="xs">
            <JobState job={job} />
            <Text fz="sm" c="dimmed" style={{ overflowWrap: "anywhere" }}>
              {visible(job.owner)} · <Ago at={job.created} />
              {job.run && (
                <>
                  {" · "}
                  <Anchor component={Link} href={`/runs/${job.run}`} fz="sm" underline="always">
                    {texts.jobs.run} {shown?.context.run ? visible(String((shown.context.run as { flow?: unknown }).flow ?? "")) : ""} {visible(job.run.slice(0, 8))}
                  </Anchor>
                  {task && `, ${texts.jobs.task(visible(task))}`}
                </>
              )}
              {" · "}
              <span className="plain">{job.id}</span>
            </Text>
          </Group>
          {job.waiting && (
            <Text fz="sm" data-waiting>
              {texts.jobs.waits(visible(job.waiting))}
            </Text>
          )}
        </div>
        <Steering job={job} />
      </Group>
      {shown && (
        <Grid gutter="lg" className="panel" p="md" m={0}>
          <Grid.Col span={{ base: 12, md: 8 }}>
            <Verdict incident={shown} />
          </Grid.Col>
          <Grid.Col span={{ base: 12, md: 4 }}>
            <Acts incident={shown} job={job} />
          </Grid.Col>
        </Grid>
      )}
      {job.attempt > 0 && (
        <Stack className="panel" p="md">
          <Attempts attempts={attempts} count={job.attempt} chosen={chosen} place={(attempt) => `${here}?attempt=${attempt}`} />
          <AttemptLog job={name} attempt={chosen} live={job.claim !== null && chosen === job.attempt} deciding={decidingOf(ofAttempt)} />
        </Stack>
      )}
      <Grid gutter="md">
        <Grid.Col span={{ base: 12, md: 5 }}>
          <Stack gap="md" className="panel" p="md">
            <section aria-labelledby="command">
              <Title order={2} id="command">
                {texts.jobs.command}
              </Title>
              {specification.data && <Plain block text={specification.data.command.join(" ")} />}
            </section>
            <section aria-labelledby="asked">
              <Title order={2} id="asked">
                {texts.jobs.askedFor}
              </Title>
              <FactTable facts={Object.fromEntries(Object.entries(job.resources).filter(([, value]) => value !== 0))} caption={texts.jobs.askedFor} />
            </section>
            {shown && <Evidence incident={shown} />}
          </Stack>
        </Grid.Col>
        <Grid.Col span={{ base: 12, md: 7 }}>
          <Stack gap="md" className="panel" p="md">
            {shown && <Path key={shown.id} incident={shown} />}
            {shown && <Decided incident={shown} />}
            <Story incidents={incidents} job={story.data} />
          </Stack>
        </Grid.Col>
      </Grid>
    </Stack>
  );
}
