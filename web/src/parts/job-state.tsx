import { Badge } from "@mantine/core";
import type { Schemas } from "../api/client";
import { useTexts } from "../texts/texts";
import { visible } from "./plain";

/** Where a job stands; that it waits for somebody, or that somebody holds it, is not the same as that it waits for a pilot. */
export function JobState({ job }: { job: Schemas["JobOut"] }) {
  const texts = useTexts();
  const waits = job.waits_for ? texts.jobs.waitsFor(texts.inbox.waits[job.waits_for] ?? job.waits_for) : null;
  const held = job.held ? texts.jobs.heldBy(visible(job.holders.join(", "))) : null;
  const words = held ?? waits ?? texts.jobs.states[job.state] ?? job.state;
  return (
    <Badge variant="light" color={held ?? waits ? "orange" : "gray"} c="var(--ink)" tt="none" data-status={job.state}>
      {words}
    </Badge>
  );
}
