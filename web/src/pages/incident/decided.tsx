import { Text, Title } from "@mantine/core";
import { useMemo } from "react";
import type { Schemas } from "../../api/client";
import { visible } from "../../parts/plain";
import { PlaybookDrawn } from "../../parts/playbook";
import type { Step } from "../../parts/step-words";
import { useTexts } from "../../texts/texts";

/** What was decided about an incident, and how far its steps are. */
export function Decided({ incident }: { incident: Schemas["IncidentWholeOut"] }) {
  const texts = useTexts();
  const last = incident.decisions.findLast((one) => one.playbook !== null) ?? incident.decisions.at(-1);
  const states = useMemo(
    () => new Map(incident.steps.filter((one) => one.n === last?.n).map((one) => [one.step, one.state])),
    [incident, last],
  );
  const steps = useMemo(() => ((last?.playbook as { steps?: Step[] } | null | undefined)?.steps ?? []) as Step[], [last]);
  if (last === undefined) return null;
  return (
    <section aria-labelledby="decided">
      <Title order={2} id="decided">
        {texts.incident.decision}
      </Title>
      <Text fz="sm" mb="xs">
        <b>{visible(last.by)}</b>: {visible(typeof last.detail.words === "string" ? last.detail.words : last.verdict)}
      </Text>
      {steps.length > 0 ? <PlaybookDrawn steps={steps} states={states} /> : <Text fz="sm">{texts.incident.noSteps}</Text>}
    </section>
  );
}
