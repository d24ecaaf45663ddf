import type { Schemas } from "../api/client";
import { useTexts } from "../texts/texts";

/** Where an incident stands, in words; one of a storm waits for the first retries, and nothing was done for it yet. */
export function useIncidentState(): (incident: Pick<Schemas["IncidentOut"], "state" | "group">) => string {
  const texts = useTexts();
  return ({ state, group }) =>
    state === "waiting" && group ? texts.jobs.waitsFor(texts.inbox.waits["the first retries"] ?? "") : (texts.incident.states[state] ?? state);
}
