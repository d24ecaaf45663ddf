import { Table, Title } from "@mantine/core";
import type { Schemas } from "../../api/client";
import { Plain } from "../../parts/plain";
import { amount, unitOf } from "../../parts/units";
import { useTexts } from "../../texts/texts";

type Facts = Record<string, unknown>;

/** Facts within facts stand on lines of their own. */
function flat(facts: Facts): [string, unknown][] {
  return Object.entries(facts).flatMap(([name, value]) =>
    value !== null && typeof value === "object" && !Array.isArray(value) ? flat(value as Facts).filter(([inner]) => !(inner in facts)) : [[name, value] as [string, unknown]],
  );
}

export function FactTable({ facts, caption }: { facts: Facts; caption: string }) {
  const texts = useTexts();
  const rows = flat(facts).filter(([name, value]) => value !== null && value !== "" && name !== "log_tail");
  return (
    <Table verticalSpacing={3} fz="sm" aria-label={caption} withRowBorders={false}>
      <Table.Tbody>
        {rows.map(([name, value]) => (
          <Table.Tr key={name}>
            <Table.Th scope="row" fw={500} c="dimmed" w={150}>
              {name.replaceAll("_", " ")}
            </Table.Th>
            <Table.Td>
              <Plain text={amount(texts, unitOf(name), value)} />
            </Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}

/** What was seen of a failure. */
export function Evidence({ incident }: { incident: Schemas["IncidentWholeOut"] }) {
  const texts = useTexts();
  const evidence = (incident.context.evidence ?? incident.context) as Facts;
  return (
    <section aria-labelledby="evidence">
      <Title order={2} id="evidence">
        {texts.incident.evidence}
      </Title>
      <FactTable facts={evidence} caption={texts.incident.facts} />
    </section>
  );
}
