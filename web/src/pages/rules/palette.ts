import type { Step } from "../../parts/step-words";

const GIB = 2 ** 30;

/** Steps that can be drawn, with what they begin as. The server checks them as they are drawn. */
export const PALETTE: Step[] = [
  { action: "resubmit", how: "same" },
  { action: "resubmit", how: "changed", needs: { memory: { factor: 2, at_most: 64 * GIB } } },
  { action: "resubmit", how: "changed", needs: { wall: { factor: 2, at_most: 604_800 } } },
  { action: "resubmit", how: "same", wait: 600 },
  { action: "retry" },
  { action: "avoid-host", seconds: 3_600 },
  { action: "restage", how: "other-replica" },
  { action: "remake" },
  { action: "suspend", target: "task" },
  { action: "suspend", target: "run" },
  { action: "continue", target: "task" },
  { action: "continue", target: "run" },
  { action: "restart", target: "task" },
  { action: "remove", target: "task" },
  { action: "remove", target: "run" },
  { action: "force-complete", target: "task" },
  { action: "force-fail", target: "task" },
  { action: "rollback" },
  { action: "notify", text: "Please check this incident." },
  { action: "hold", target: "job" },
];
