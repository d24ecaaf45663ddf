import { Badge, Text } from "@mantine/core";
import { useMemo } from "react";
import { useTexts } from "../texts/texts";
import { Drawn, type DrawnEdge, type DrawnNode } from "./drawn";
import { stepWords, type Step } from "./step-words";

interface Given {
  steps: Step[];
  /** What became of each, by its place; left out: it is not carried out. */
  states?: Map<number, string>;
  height?: number;
}

/** A playbook as drawn steps, from left to right; worklets that run together stand below each other. */
export function PlaybookDrawn({ steps, states, height = 150 }: Given) {
  const texts = useTexts();
  const [nodes, edges] = useMemo(() => {
    const boxes: DrawnNode[] = [];
    const arrows: DrawnEdge[] = [];
    let before: string[] = [];
    steps.forEach((step, place) => {
      const state = states?.get(place);
      const words = states === undefined ? null : state === "done" ? texts.incident.done : state ? texts.incident.refused : texts.incident.pending;
      const worklets = Array.isArray(step.worklets) ? (step.worklets as unknown[]) : null;
      const parts = worklets === null ? [stepWords(texts, step)] : worklets.map((one) => stepWords(texts, { action: "compensate", worklets: [one] }));
      const ids = parts.map((text, n) => {
        const id = `${place}.${n}`;
        boxes.push({
          id,
          label: `${place + 1}: ${text} ${words ?? ""}`,
          height: 58 + Math.ceil(text.length / 32) * 14,
          marks: state === undefined ? {} : { "data-lit": String(state === "done") },
          content: (
            <>
              <Text fz="xs" c="dimmed">
                {place + 1}
              </Text>
              <Text fz="xs" fw={600}>
                {text}
              </Text>
              {words !== null && (
                <Badge size="xs" mt={4} variant="outline" color="gray" c="var(--ink)" tt="none">
                  {words}
                </Badge>
              )}
            </>
          ),
        });
        for (const from of before) arrows.push({ from, to: id, lit: state === "done" });
        return id;
      });
      before = ids;
    });
    return [boxes, arrows];
  }, [steps, states, texts]);
  return <Drawn nodes={nodes} edges={edges} direction="LR" height={height} label={texts.incident.drawn} />;
}
