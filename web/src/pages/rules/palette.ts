import type { Step } from "../../parts/exlet";

/** Steps that can be drawn, with what they begin as. The server checks them as they are drawn. */
export const PALETTE: { words: string; step: Step }[] = [
  { words: "resubmit, as it is", step: { action: "resubmit", how: "same" } },
  { words: "resubmit with twice the memory", step: { action: "resubmit", how: "changed", needs: { memory: { factor: 2, at_most: 68719476736 } } } },
  { words: "resubmit with twice the time", step: { action: "resubmit", how: "changed", needs: { wall: { factor: 2, at_most: 604800 } } } },
  { words: "climb the ladder", step: { action: "ladder" } },
  { words: "avoid the host", step: { action: "avoid-host" } },
  { words: "restage from another replica", step: { action: "restage", how: "other-replica" } },
  { words: "suspend the item", step: { action: "suspend", target: "item" } },
  { words: "suspend the case", step: { action: "suspend", target: "case" } },
  { words: "continue the item", step: { action: "continue", target: "item" } },
  { words: "continue the case", step: { action: "continue", target: "case" } },
  { words: "restart the item", step: { action: "restart", target: "item" } },
  { words: "remove the item", step: { action: "remove", target: "item" } },
  { words: "remove the case", step: { action: "remove", target: "case" } },
  { words: "force-complete the item", step: { action: "force-complete", target: "item" } },
  { words: "force-fail the item", step: { action: "force-fail", target: "item" } },
  { words: "roll the case back", step: { action: "rollback" } },
  { words: "tell the owner", step: { action: "notify", text: "Look at this incident." } },
  { words: "hold for a person", step: { action: "hold", target: "job" } },
];
