import { Button, Group, List, Modal, Stack, Text, TextInput } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, Problem, told, type Schemas } from "../../api/client";
import { visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { useTexts } from "../../texts/texts";
import { steer } from "./steering";

type RunRow = Schemas["RunOut"];
export type Act = "suspend" | "remove" | "resume";
const SHOWN = 10;
const ENDED_BADLY = new Set(["failed", "removed"]);

/** Whether an act is for a run as it stands. */
export const fits = (act: Act, run: RunRow): boolean =>
  act === "resume" ? run.state === "suspended" || ENDED_BADLY.has(run.state) : run.ended === null && !(act === "suspend" && run.state === "suspended");

function carryOut(act: Act, run: RunRow, reason: string): Promise<unknown> {
  if (act !== "resume") return steer(run.id, { verb: act, reason });
  if (run.state === "suspended") return steer(run.id, { verb: "continue", reason });
  return told(api.POST("/v1/runs/{run}/resume", { params: { path: { run: run.id } }, body: { task: "", reason, dry_run: false } }));
}

/** Does something to several runs, once they were shown; one that refuses keeps no other from it. */
export function ManyDialog({ act, runs, close }: { act: Act; runs: RunRow[]; close: () => void }) {
  const texts = useTexts();
  const queries = useQueryClient();
  const [reason, setReason] = useState("");
  const acting = useMutation({
    mutationFn: async () => {
      const refused: string[] = [];
      for (const run of runs) {
        try {
          await carryOut(act, run, reason);
        } catch (problem) {
          refused.push(`${run.name} ${run.id.slice(0, 8)}: ${problem instanceof Problem ? problem.message : String(problem)}`);
        }
      }
      await queries.invalidateQueries({ queryKey: ["runs"] });
      return refused;
    },
  });
  return (
    <Modal opened onClose={close} title={texts.runs.manyTitle[act]} closeButtonProps={{ "aria-label": texts.app.close }} centered>
      <Stack gap="sm">
        <ProblemBox problem={acting.error} />
        {acting.data === undefined ? (
          <>
            <Text fz="sm">{texts.runs.manyWords[act]}</Text>
            <List size="sm">
              {runs.slice(0, SHOWN).map((run) => (
                <List.Item key={run.id}>
                  {visible(run.name)} <span className="plain">{run.id.slice(0, 8)}</span>, {visible(run.owner)}, {texts.runs.states[run.state] ?? run.state}
                </List.Item>
              ))}
              {runs.length > SHOWN && <List.Item>{texts.runs.and(runs.length - SHOWN)}</List.Item>}
            </List>
            <TextInput label={texts.runs.reason} value={reason} maxLength={1000} onChange={(event) => setReason(event.currentTarget.value)} />
          </>
        ) : (
          <>
            <Text fz="sm" role="status">
              {texts.runs.manyDone(runs.length - acting.data.length, runs.length)}
            </Text>
            <List size="sm">
              {acting.data.map((one) => (
                <List.Item key={one}>{visible(one)}</List.Item>
              ))}
            </List>
          </>
        )}
        <Group justify="flex-end" gap="xs">
          <Button variant="default" onClick={close}>
            {texts.app.close}
          </Button>
          {acting.data === undefined && (
            <Button color={act === "remove" ? "red.9" : undefined} loading={acting.isPending} onClick={() => acting.mutate()}>
              {texts.runs.manyTitle[act]}
            </Button>
          )}
        </Group>
      </Stack>
    </Modal>
  );
}
