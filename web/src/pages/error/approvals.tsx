import { Anchor, Button, Group, Loader, Paper, SimpleGrid, Stack, Text, TextInput, Title } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";
import { Link } from "wouter";
import { api, told, type Schemas } from "../../api/client";
import { useMay, useSession } from "../../api/session";
import { Ago } from "../../parts/ago";
import { useCause } from "../../parts/cause";
import { visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { useTexts } from "../../texts/texts";

type Asked = Schemas["ApprovalOut"];

/** The actions that would be done: those of the decision that asks, or the one that a person asked for. */
function actionsOf(asked: Asked, incident: Schemas["IncidentWholeOut"] | undefined): string[] {
  const steps = (incident?.decisions.findLast((one) => one.playbook !== null)?.playbook as { steps?: { action?: unknown }[] } | undefined)?.steps;
  return steps?.map((one) => String(one.action)) ?? [asked.words.split(" ", 1)[0] ?? ""];
}

function useIncident(asked: Asked) {
  const found = useQuery({
    queryKey: ["incident", asked.incident],
    queryFn: () => told(api.GET("/v1/incidents/{incident}", { params: { path: { incident: asked.incident } } })),
    enabled: asked.incident !== "",
  });
  return { incident: found.data, pending: asked.incident !== "" && found.isPending };
}

/** What it is about: whose, of which run, which error, and what is lost by it. */
function About({ asked }: { asked: Asked }) {
  const texts = useTexts();
  const cause = useCause();
  const { incident, pending } = useIncident(asked);
  if (pending) return <Loader size="xs" aria-label={texts.app.loading} />;
  const job = (incident?.context.job ?? {}) as { name?: unknown };
  const lost = actionsOf(asked, incident).flatMap((action) => texts.approvals.lost[action] ?? []);
  const facts: [string, ReactNode][] = [
    [texts.incident.owner, visible(asked.owner)],
    [
      texts.incident.job,
      asked.on && (
        <Anchor component={Link} href={incident?.job ? `/jobs/${incident.job}` : `/jobs/${asked.on}`} fz="sm">
          {visible(typeof job.name === "string" ? job.name : "")} {visible(asked.on.slice(0, 8))}
        </Anchor>
      ),
    ],
    [
      texts.incident.run,
      incident?.run && (
        <Anchor component={Link} href={`/runs/${incident.run}`} fz="sm">
          {visible(incident.flow)} {visible(incident.run.slice(0, 8))} {visible(incident.task)}
        </Anchor>
      ),
    ],
    [texts.inbox.cause, incident && cause(incident.cause)[0]],
    [texts.inbox.host, incident && visible(incident.host)],
  ];
  return (
    <Stack gap={4} mt={4}>
      {incident?.title && (
        <Text fz="sm" ff="monospace" className="clamp">
          <Anchor component={Link} href={`/incidents/${incident.id}`} inherit>
            {visible(incident.title)}
          </Anchor>
        </Text>
      )}
      <Group gap="4px 16px">
        {facts
          .filter(([, value]) => value)
          .map(([name, value]) => (
            <Text key={name} fz="sm" span>
              <Text span c="dimmed" fz="sm">
                {name}
              </Text>{" "}
              {value}
            </Text>
          ))}
      </Group>
      {lost.map((one) => (
        <Text key={one} fz="sm" fw={600}>
          {one}
        </Text>
      ))}
      {incident?.retry_record && (
        <Text fz="sm" c="dimmed">
          {texts.error.record(incident.retry_record)}
        </Text>
      )}
    </Stack>
  );
}

function One({ asked, focus }: { asked: Asked; focus: boolean }) {
  const texts = useTexts();
  const queries = useQueryClient();
  const { subject } = useSession();
  const may = useMay("approver");
  const { pending } = useIncident(asked);
  const [reason, setReason] = useState("");
  const answering = useMutation({
    mutationFn: (agree: boolean) =>
      told(api.POST("/v1/approvals/{request}", { params: { path: { request: asked.id } }, body: { agree, reason } })),
    onSuccess: () => Promise.all([queries.invalidateQueries({ queryKey: ["approvals"] }), queries.invalidateQueries({ queryKey: ["inbox"] })]),
  });
  const ready = reason.trim() !== "";
  return (
    <Paper component="article" aria-label={visible(asked.words)} withBorder p="sm">
      <Text>{visible(asked.words)}</Text>
      <Text fz="sm" c="dimmed">
        {texts.inbox.askedBy(visible(asked.by))} · <Ago at={asked.at} /> {asked.why && `· ${visible(asked.why)}`}
      </Text>
      <About asked={asked} />
      <ProblemBox problem={answering.error} />
      {!may && <Text fz="sm">{texts.app.ofRole("approver")}</Text>}
      {may && subject === asked.by && <Text fz="sm">{texts.inbox.own}</Text>}
      {may && subject !== asked.by && (
        <Group mt="xs" align="flex-end">
          <TextInput
            size="xs"
            flex={1}
            miw={160}
            required
            // Who opens this list is about to answer; the reason is the only thing to type.
            autoFocus={focus}
            label={texts.inbox.reason}
            value={reason}
            onChange={(event) => setReason(event.currentTarget.value)}
          />
          <Button size="xs" disabled={!ready || pending} loading={answering.isPending} onClick={() => answering.mutate(true)}>
            {texts.inbox.agree}
          </Button>
          <Button size="xs" variant="default" disabled={!ready || answering.isPending} onClick={() => answering.mutate(false)}>
            {texts.inbox.refuse}
          </Button>
        </Group>
      )}
    </Paper>
  );
}

/** What waits for an approval; with `focus` the first can be answered at once. */
export function Approvals({ focus = false }: { focus?: boolean }) {
  const texts = useTexts();
  const { subject } = useSession();
  const found = useQuery({
    queryKey: ["approvals"],
    queryFn: () => told(api.GET("/v1/approvals", { params: { query: { state: "waiting" } } })),
    // One that is answered and one that comes leave the inbox as long as it was: nothing tells of that.
    refetchInterval: 5_000,
  });
  const first = found.data?.approvals.find((one) => one.by !== subject)?.id;
  return (
    <section aria-labelledby="approvals">
      <Title order={2} id="approvals" mb="xs">
        {texts.inbox.approvals}
      </Title>
      <ProblemBox problem={found.error} />
      <SimpleGrid cols={{ base: 1, lg: focus ? 2 : 1 }} spacing="xs" verticalSpacing="xs">
        {found.data?.approvals.map((one) => <One key={one.id} asked={one} focus={focus && one.id === first} />)}
      </SimpleGrid>
    </section>
  );
}
