import { Anchor, Badge, Button, Grid, Group, Loader, Stack, Text, Title } from "@mantine/core";
import { useDocumentTitle } from "@mantine/hooks";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { Link } from "wouter";
import { api, Problem, told, type Schemas } from "../../api/client";
import { useMay, useSession } from "../../api/session";
import { Ago, Moment } from "../../parts/ago";
import { Plain, visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { useTexts } from "../../texts/texts";
import { FactTable } from "../incident/evidence";

const FINAL = new Set(["completed", "forced_complete", "failed", "cancelled"]);
const KEPT = 200_000;

/** The end of what the last attempt printed; while it runs, all from then on. */
function Log({ job }: { job: Schemas["JobOut"] }) {
  const texts = useTexts();
  const [text, setText] = useState("");
  const live = job.claim !== null;
  const stored = useQuery({
    queryKey: ["job", job.id, "log", job.attempt],
    queryFn: () => told(api.GET("/v1/jobs/{job}/log", { params: { path: { job: job.id } }, parseAs: "text" })) as Promise<string>,
    enabled: !live,
    retry: false,
  });
  useEffect(() => {
    if (!live) return;
    setText("");
    const source = new EventSource(`/v1/jobs/${encodeURIComponent(job.id)}/log?follow=true`);
    source.addEventListener("log", (event: MessageEvent<string>) => {
      const { text: more } = JSON.parse(event.data) as { text: string };
      setText((before) => (before + more).slice(-KEPT));
    });
    source.addEventListener("end", () => source.close());
    return () => source.close();
  }, [live, job.id, job.attempt]);
  const shown = live ? text : (stored.data ?? "");
  const missing = stored.error instanceof Problem && stored.error.status === 404;
  return (
    <section aria-labelledby="log">
      <Title order={2} id="log">
        {texts.jobs.log}
      </Title>
      {live && (
        <Text fz="sm" c="dimmed">
          {texts.jobs.following}
        </Text>
      )}
      {!missing && <ProblemBox problem={stored.error} />}
      {shown ? <Plain block text={shown} /> : <Text fz="sm">{texts.jobs.noLog}</Text>}
    </section>
  );
}

function Attempts({ evidence }: { evidence: Schemas["EvidenceOut"][] }) {
  const texts = useTexts();
  const ended = evidence.filter((one) => typeof one.ending === "object" && one.ending !== null);
  if (ended.length === 0) return null;
  return (
    <section aria-labelledby="attempts">
      <Title order={2} id="attempts" mb={4}>
        {texts.jobs.attempts}
      </Title>
      <Grid>
        {ended.slice(-6).map((one) => {
          const ending = one.ending as Record<string, unknown>;
          const { manifest: _manifest, claim: _claim, generation: _generation, ...facts } = ending;
          return (
            <Grid.Col key={`${one.at} ${String(ending.claim)}`} span={{ base: 12, md: 6 }}>
              <Stack gap={4} className="panel" p="sm">
                <Text fw={600}>
                  {texts.jobs.attempt} {String(ending.attempt)}
                </Text>
                <FactTable facts={facts} caption={`${texts.jobs.attempt} ${String(ending.attempt)}`} />
              </Stack>
            </Grid.Col>
          );
        })}
      </Grid>
    </section>
  );
}

export default function Job({ name }: { name: string }) {
  const texts = useTexts();
  const queries = useQueryClient();
  const { subject } = useSession();
  const operator = useMay("operator");
  const submitter = useMay("submitter");
  const params = { path: { job: name } };
  const found = useQuery({
    queryKey: ["job", name],
    queryFn: () => told(api.GET("/v1/jobs/{job}", { params })),
    refetchInterval: (query) => (query.state.data && FINAL.has(query.state.data.state) ? false : 2_000),
  });
  const told_ = useQuery({
    queryKey: ["job", name, "story", found.data?.changed],
    queryFn: () => told(api.GET("/v1/jobs/{job}/story", { params })),
    enabled: found.data !== undefined,
  });
  const specification = useQuery({
    queryKey: ["job", name, "specification"],
    queryFn: () => told(api.GET("/v1/jobs/{job}/specification", { params })),
    staleTime: Infinity,
  });
  const steering = useMutation({
    mutationFn: (verb: "cancel" | "hold" | "continue" | "retry") => {
      if (verb === "cancel") return told(api.POST("/v1/jobs/{job}/cancel", { params, body: { reason: "" } }));
      if (verb === "hold") return told(api.POST("/v1/jobs/{job}/hold", { params, body: { reason: "" } }));
      if (verb === "retry") return told(api.POST("/v1/jobs/{job}/retry", { params, body: { reason: "" } }));
      return told(api.POST("/v1/jobs/{job}/continue", { params, body: {} }));
    },
    onSuccess: () => queries.invalidateQueries({ queryKey: ["job", name] }),
  });
  const job = found.data;
  useDocumentTitle(`${job ? visible(job.name) : texts.jobs.title} · Forestay`);
  if (job === undefined) return found.isError ? <ProblemBox problem={found.error} /> : <Loader size="sm" aria-label={texts.app.loading} />;
  const may = operator || (submitter && job.owner === subject);
  const verbs = [
    ...(operator && job.state === "faulted" ? (["retry"] as const) : []),
    ...(may && !FINAL.has(job.state) && !job.held ? (["hold"] as const) : []),
    ...(may && job.held ? (["continue"] as const) : []),
    ...(may && !FINAL.has(job.state) ? (["cancel"] as const) : []),
  ];
  const words = { retry: texts.jobs.retry, hold: texts.jobs.hold, continue: texts.jobs.goOn, cancel: texts.jobs.cancel };
  return (
    <Stack gap="md" maw={1280}>
      <Group justify="space-between" align="flex-start">
        <div>
          <Anchor component={Link} href="/jobs" fz="sm">
            ← {texts.jobs.title}
          </Anchor>
          <Title order={1}>{visible(job.name)}</Title>
          <Group gap="xs">
            <Badge variant="light" color={job.state === "faulted" ? "orange" : "gray"} c="var(--ink)" tt="none" data-status={job.state}>
              {texts.jobs.states[job.state] ?? job.state}
            </Badge>
            <Text fz="sm" c="dimmed">
              {visible(job.owner)} · <Ago at={job.created} /> · <span className="plain">{job.id}</span>
            </Text>
          </Group>
        </div>
        <Group gap="xs">
          {verbs.map((verb) => (
            <Button key={verb} variant="default" loading={steering.isPending} onClick={() => steering.mutate(verb)}>
              {words[verb]}
            </Button>
          ))}
        </Group>
      </Group>
      <ProblemBox problem={steering.error} />
      <Attempts evidence={told_.data?.evidence ?? []} />
      <Grid gutter="md">
        <Grid.Col span={{ base: 12, md: 6 }}>
          <Stack className="panel" p="md">
            <Log job={job} />
            <section aria-labelledby="command">
              <Title order={2} id="command">
                {texts.jobs.command}
              </Title>
              {specification.data && <Plain block text={specification.data.command.join(" ")} />}
            </section>
          </Stack>
        </Grid.Col>
        <Grid.Col span={{ base: 12, md: 6 }}>
          <Stack className="panel" p="md" component="section" aria-labelledby="story">
            <Title order={2} id="story">
              {texts.jobs.story}
            </Title>
            <ol className="story">
              {told_.data?.story.map((one) => (
                <li key={one.rev}>
                  <Text fz="sm" c="dimmed" component="span">
                    <Moment at={one.at} />
                  </Text>
                  <span className="dot" data-kind={one.state === "faulted" ? "bad" : one.state === "completed" ? "well" : ""} aria-hidden />
                  <Text fz="sm" component="span">
                    {visible(one.words)}
                  </Text>
                </li>
              ))}
            </ol>
          </Stack>
        </Grid.Col>
      </Grid>
    </Stack>
  );
}
