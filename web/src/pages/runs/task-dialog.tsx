import { Button, Group, Modal, Stack, Switch, Text, TextInput } from "@mantine/core";
import { useState } from "react";
import type { Schemas } from "../../api/client";
import { useSession } from "../../api/session";
import { visible } from "../../parts/plain";
import { ProblemBox } from "../../parts/problem-box";
import { useTexts } from "../../texts/texts";
import { useSteering } from "./steering";

const UNBEGUN = new Set(["waiting", "skipped"]);
const DONE = new Set(["completed", "forced_complete", "skipped", "failed", "cancelled"]);
type Whole = Schemas["RunDetailsOut"];
type Order = Record<string, string[]>;

/** The tasks after one that had begun: they run again with it. */
export function begunAfter(task: string, run: Whole, order: Order): string[] {
  const after = new Set([task]);
  const begun: string[] = [];
  for (let more = true; more; ) {
    more = false;
    for (const [id, before] of Object.entries(order)) {
      if (after.has(id) || !before.some((one) => after.has(one))) continue;
      after.add(id);
      more = true;
      const state = run.tasks.find((one) => one.id === id)?.state ?? "waiting";
      if (!UNBEGUN.has(state)) begun.push(id);
    }
  }
  return begun;
}

/** What can be done to one task of a run that has not ended. */
export function TaskDialog({ run, id, order, close }: { run: Whole; id: string; order: Order; close: () => void }) {
  const texts = useTexts();
  const { subject } = useSession();
  const [reason, setReason] = useState("");
  const [onlyFailed, setOnlyFailed] = useState(true);
  const steering = useSteering(run.id, close);
  const task = run.tasks.find((one) => one.id === id);
  const state = task?.state ?? "waiting";
  const begun = begunAfter(id, run, order);
  const scattered = task !== undefined && task.count > 1 && task.bad > 0 && DONE.has(state);
  const held = task?.holders.includes(subject) ?? false;
  return (
    <Modal opened onClose={close} title={texts.runs.taskTitle(visible(id))} closeButtonProps={{ "aria-label": texts.app.close }} centered>
      <Stack gap="sm">
        <ProblemBox problem={steering.error} />
        <Text fz="sm">
          {texts.runs.tasks[state] ?? state}
          {task?.reason && `: ${visible(task.reason)}`}
        </Text>
        {state !== "waiting" && <Text fz="sm">{begun.length > 0 ? texts.runs.againWith(visible(begun.join(", "))) : texts.runs.againAlone}</Text>}
        {scattered && <Switch label={texts.runs.onlyFailed(task.bad)} checked={onlyFailed} onChange={(event) => setOnlyFailed(event.currentTarget.checked)} />}
        <TextInput label={texts.runs.reason} value={reason} maxLength={1000} onChange={(event) => setReason(event.currentTarget.value)} />
        <Group gap="xs">
          {state !== "waiting" && (
            <Button loading={steering.isPending} onClick={() => steering.mutate({ verb: "redo", task: id, reason, only_failed: scattered && onlyFailed })}>
              {texts.runs.again}
            </Button>
          )}
          {!DONE.has(state) && (
            <>
              <Button variant="default" loading={steering.isPending} onClick={() => steering.mutate({ verb: "skip", task: id, reason })}>
                {texts.runs.skip}
              </Button>
              <Button variant="default" loading={steering.isPending} onClick={() => steering.mutate({ verb: held ? "continue" : "suspend", task: id, reason })}>
                {held ? texts.runs.goOn : texts.runs.suspend}
              </Button>
            </>
          )}
        </Group>
      </Stack>
    </Modal>
  );
}
