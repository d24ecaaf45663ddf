import type { Step } from "../../parts/playbook";

/** Steps that can be drawn, with what they begin as. The server checks them as they are drawn. */
export const PALETTE: { words: string; step: Step }[] = [
  { words: "resubmit unchanged", step: { action: "resubmit", how: "same" } },
  { words: "resubmit with twice the memory", step: { action: "resubmit", how: "changed", needs: { memory: { factor: 2, at_most: 68719476736 } } } },
  { words: "resubmit with twice the time", step: { action: "resubmit", how: "changed", needs: { wall: { factor: 2, at_most: 604800 } } } },
  { words: "retry by policy", step: { action: "retry" } },
  { words: "avoid the host", step: { action: "avoid-host" } },
  { words: "restage from another replica", step: { action: "restage", how: "other-replica" } },
  { words: "make the lost input again", step: { action: "remake" } },
  { words: "suspend the task", step: { action: "suspend", target: "task" } },
  { words: "suspend the run", step: { action: "suspend", target: "run" } },
  { words: "continue the task", step: { action: "continue", target: "task" } },
  { words: "continue the run", step: { action: "continue", target: "run" } },
  { words: "restart the task", step: { action: "restart", target: "task" } },
  { words: "remove the task", step: { action: "remove", target: "task" } },
  { words: "remove the run", step: { action: "remove", target: "run" } },
  { words: "force-complete the task", step: { action: "force-complete", target: "task" } },
  { words: "force-fail the task", step: { action: "force-fail", target: "task" } },
  { words: "roll back the run", step: { action: "rollback" } },
  { words: "notify the owner", step: { action: "notify", text: "Please check this incident." } },
  { words: "hold for a person", step: { action: "hold", target: "job" } },
];
