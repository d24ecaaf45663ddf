import { Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { api, told, type Schemas } from "../../api/client";
import { Moment } from "../../parts/ago";
import { visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { conclusionWords } from "../../parts/step-words";
import type { Texts } from "../../texts/en";
import { useTexts } from "../../texts/texts";

type Whole = Schemas["IncidentWholeOut"];

interface Line {
  at: string;
  words: string;
  by: string;
  kind: "bad" | "well" | "rule" | "";
}

const KINDS: Record<string, Line["kind"]> = {
  faulted: "bad", failed: "bad", cancelled: "bad", completed: "well", forced_complete: "well",
};

function decided(texts: Texts, incident: Whole): Line[] {
  const decisions: Line[] = incident.decisions.map((one) => {
    const steps = (one.playbook as { steps?: Record<string, unknown>[] } | null)?.steps;
    const does = steps === undefined ? one.verdict : conclusionWords(texts, { steps });
    const why = typeof one.detail.words === "string" && one.detail.words ? ` (${one.detail.words})` : "";
    return { at: one.at, words: `${does}${why}`, by: one.by, kind: "rule" };
  });
  const steps: Line[] = incident.steps.map((one) => ({
    at: one.at,
    words: `${one.action}: ${one.state}${one.detail ? `, ${one.detail}` : ""}`,
    by: "",
    kind: one.state === "done" ? "well" : "bad",
  }));
  return [...decisions, ...steps];
}

interface Given {
  incidents: readonly Whole[];
  /** What happened to a job of ours, */
  job?: Schemas["StoryOut"];
  /** or the run, where it is about no job. */
  run?: string;
}

/** Everything that happened to the job or the run, on a time line, with what was decided and done. */
export function Story({ incidents, job, run = "" }: Given) {
  const texts = useTexts();
  const run_ = useQuery({
    queryKey: ["incident", "run-story", run],
    queryFn: () => told(api.GET("/v1/runs/{run}/story", { params: { path: { run } } })),
    enabled: run !== "",
  });
  const lines: Line[] = [
    ...(job?.story.map((one) => ({ at: one.at, words: one.words, by: one.by, kind: KINDS[one.state] ?? "" }) satisfies Line) ?? []),
    ...(run_.data?.story.map((one) => ({ at: one.at, words: one.words, by: one.task, kind: "" }) satisfies Line) ?? []),
    ...incidents.flatMap((one) => decided(texts, one)),
  ];
  lines.sort((one, other) => Date.parse(one.at) - Date.parse(other.at));
  return (
    <section aria-labelledby="story">
      <Title order={2} id="story" mb="xs">
        {texts.incident.story}
      </Title>
      <ProblemBox problem={run_.error} />
      <ol className="story">
        {lines.map((one, place) => (
          <li key={`${one.at} ${place}`}>
            <Text fz="sm" c="dimmed" component="span">
              <Moment at={one.at} />
            </Text>
            <span className="dot" data-kind={one.kind} aria-hidden />
            <Text fz="sm" component="span">
              {visible(one.words)}
              {one.by && !one.words.includes(one.by) && (
                <Text span c="dimmed" fz="xs" ml={6}>
                  {visible(one.by)}
                </Text>
              )}
            </Text>
          </li>
        ))}
      </ol>
    </section>
  );
}
