import { Group, Progress, Table, Text, Title } from "@mantine/core";
import type { Schemas } from "../../api/client";
import { useCause } from "../../parts/cause";
import { Plain, visible } from "../../parts/plain";
import { useTexts } from "../../texts/texts";

type Facts = Record<string, unknown>;

const BYTES = new Set(["peak_memory", "memory_limit", "memory", "disk", "disk_left", "free"]);

function shown(name: string, value: unknown): string {
  if (typeof value === "number" && BYTES.has(name)) {
    const units = ["B", "kB", "MB", "GB", "TB"];
    let size = value;
    let unit = 0;
    while (size >= 1000 && unit < units.length - 1) {
      size /= 1024;
      unit += 1;
    }
    return `${size.toLocaleString(undefined, { maximumFractionDigits: 1 })} ${units[unit]}`;
  }
  return visible(typeof value === "object" ? JSON.stringify(value) : String(value));
}

export function FactTable({ facts, caption }: { facts: Facts; caption: string }) {
  const rows = Object.entries(facts).filter(([name, value]) => value !== null && value !== "" && name !== "log_tail");
  return (
    <Table verticalSpacing={3} fz="sm" aria-label={caption} withRowBorders={false}>
      <Table.Tbody>
        {rows.map(([name, value]) => (
          <Table.Tr key={name}>
            <Table.Th scope="row" fw={500} c="dimmed" w={150}>
              {name.replaceAll("_", " ")}
            </Table.Th>
            <Table.Td>
              <Plain text={shown(name, value)} />
            </Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}

/** What was seen, and what it was taken for. */
export function Evidence({ incident }: { incident: Schemas["IncidentWholeOut"] }) {
  const texts = useTexts();
  const cause = useCause();
  const evidence = (incident.context.evidence ?? {}) as Facts;
  const finding = (incident.context.finding ?? {}) as Facts;
  const rest = incident.context.evidence === undefined ? incident.context : evidence;
  const log = typeof evidence.log_tail === "string" ? evidence.log_tail : "";
  const sure = typeof finding.confidence === "number" ? Math.round(finding.confidence * 100) : null;
  return (
    <>
      <section aria-labelledby="cause">
        <Title order={2} id="cause">
          {texts.incident.cause}
        </Title>
        <Text>
          <b>{cause(incident.cause)[0]}.</b> {visible(typeof finding.words === "string" && finding.words ? finding.words : cause(incident.cause)[1])}
        </Text>
        {typeof finding.advice === "string" && finding.advice && <Text>{visible(finding.advice)}</Text>}
        {incident.advice && <Text>{visible(incident.advice)}</Text>}
        {incident.retry_record && (
          <Text fz="sm" fw={600}>
            {texts.error.record(incident.retry_record)}
          </Text>
        )}
        {sure !== null && (
          <Group gap="xs" mt={4}>
            <Progress value={sure} w={120} aria-label={texts.incident.sure(sure)} />
            <Text fz="sm">{texts.incident.sure(sure)}</Text>
            {typeof finding.pattern === "string" && finding.pattern && (
              <Text fz="sm" c="dimmed">
                {texts.incident.by.toLowerCase()} {visible(finding.pattern)}
              </Text>
            )}
          </Group>
        )}
      </section>
      <section aria-labelledby="evidence">
        <Title order={2} id="evidence">
          {texts.incident.evidence}
        </Title>
        <FactTable facts={rest} caption={texts.incident.facts} />
        {incident.context.evidence !== undefined && (
          <>
            <Text fz="sm" fw={600} mt="xs" mb={4}>
              {texts.incident.log}
            </Text>
            {log ? <Plain block text={log} /> : <Text fz="sm" c="dimmed">{texts.incident.noLog}</Text>}
          </>
        )}
      </section>
    </>
  );
}
