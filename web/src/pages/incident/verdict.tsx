import { Anchor, Badge, Group, Progress, Stack, Text, Title } from "@mantine/core";
import { Link } from "wouter";
import type { Schemas } from "../../api/client";
import { Ago } from "../../parts/ago";
import { useCause } from "../../parts/cause";
import { useIncidentState } from "../../parts/incident-state";
import { LogLines } from "../../parts/log-lines";
import { visible } from "../../parts/plain";
import { useTexts } from "../../texts/texts";

type Whole = Schemas["IncidentWholeOut"];

/** The lines that decided what a failure is. */
export function decidingOf(incident: Whole | undefined): string[] {
  const lines = (incident?.context.finding as { lines?: unknown } | undefined)?.lines;
  return Array.isArray(lines) ? lines.map(String) : [];
}

/** What it is, what to do about it, and by which line that is known. */
export function Verdict({ incident }: { incident: Whole }) {
  const texts = useTexts();
  const stateOf = useIncidentState();
  const cause = useCause();
  const finding = (incident.context.finding ?? {}) as Record<string, unknown>;
  const sure = typeof finding.confidence === "number" ? Math.round(finding.confidence * 100) : null;
  const deciding = decidingOf(incident);
  return (
    <section aria-labelledby="cause">
      <Stack gap={6}>
        <Group gap="xs">
          <Title order={2} id="cause">
            {cause(incident.cause)[0]}
          </Title>
          <Badge variant="light" color={incident.state === "held" ? "orange" : "gray"} c="var(--ink)" tt="none">
            {stateOf(incident)}
          </Badge>
          <Text fz="sm" c="dimmed">
            <Ago at={incident.at} />
          </Text>
        </Group>
        <Text>{visible(typeof finding.words === "string" && finding.words ? finding.words : cause(incident.cause)[1])}</Text>
        {typeof finding.advice === "string" && finding.advice && <Text fw={600}>{visible(finding.advice)}</Text>}
        {incident.advice && <Text fz="sm">{visible(incident.advice)}</Text>}
        {incident.note && !incident.advice.includes(incident.note) && <Text fz="sm">{visible(incident.note)}</Text>}
        {incident.retry_record && (
          <Text fz="sm" fw={600}>
            {texts.error.record(incident.retry_record)}
          </Text>
        )}
        {deciding.length > 0 && <LogLines lines={deciding} deciding={deciding} label={texts.incident.deciding} />}
        <Group gap="xs">
          {sure !== null && (
            <>
              <Progress value={sure} w={120} aria-label={texts.incident.sure(sure)} />
              <Text fz="sm">{texts.incident.sure(sure)}</Text>
            </>
          )}
          {typeof finding.pattern === "string" && finding.pattern && (
            <Text fz="sm" c="dimmed">
              {texts.incident.by.toLowerCase()} {visible(finding.pattern)}
            </Text>
          )}
          {incident.fingerprint && (
            <Anchor component={Link} href={`/errors/${incident.fingerprint}`} fz="sm" underline="always">
              {texts.incident.ofError}
            </Anchor>
          )}
        </Group>
      </Stack>
    </section>
  );
}
