import { Badge, Text } from "@mantine/core";
import { useMemo } from "react";
import type { Texts } from "../texts/en";
import { useTexts } from "../texts/texts";
import { Drawn, type DrawnEdge, type DrawnNode } from "./drawn";
import { visible } from "./plain";
import { conclusionWords } from "./step-words";

/** A rule as the interface shows it. */
export interface ShownRule {
  id: string;
  condition: string;
  state: string;
  conclusion?: { playbook?: string; steps?: Record<string, unknown>[] };
  author?: string;
  description?: string;
  reference_incident?: string;
  parent?: string;
  true_child?: string;
  false_child?: string;
}

export interface ShownTree {
  type: string;
  task: string;
  words: string[];
  rules: ShownRule[];
}

export type Tested = Map<string, string>;

function said(texts: Texts, verdict: string | undefined): string {
  if (verdict === "true") return texts.incident.holds;
  if (verdict === "false") return texts.incident.holdsNot;
  return verdict === "error" ? texts.incident.errs : texts.incident.notAsked;
}

interface Given {
  tree: ShownTree;
  tested?: Tested;
  decides?: string | null;
  chosen?: string | null;
  choose?(rule: string): void;
  height?: number;
}

/** A ripple-down tree. Refinements hang below by a whole line (*except if*), alternatives by a broken one (*else if*). */
export function RuleTree({ tree, tested, decides = null, chosen = null, choose, height = 380 }: Given) {
  const texts = useTexts();
  const [nodes, edges] = useMemo(() => {
    const known = new Set(tree.rules.map((one) => one.id));
    const boxes: DrawnNode[] = tree.rules.map((rule) => {
      const verdict = tested?.get(rule.id);
      const does = conclusionWords(texts, rule.conclusion);
      const state = rule.state === "active" ? texts.rules.active : texts.rules.shadow;
      const lines = Math.ceil(rule.condition.length / 30) + Math.ceil(does.length / 34);
      const marks: DrawnNode["marks"] = { "data-shadow": String(rule.state !== "active"), "data-chosen": String(rule.id === chosen) };
      if (verdict !== undefined) marks["data-lit"] = String(verdict === "true");
      if (rule.id === decides) marks["data-decides"] = "true";
      return {
        id: rule.id,
        label: `${rule.condition}: ${does}. ${state}. ${tested === undefined ? "" : said(texts, verdict)}`,
        height: 52 + lines * 17,
        marks,
        content: (
          <>
            <code>{visible(rule.condition)}</code>
            <Text fz="xs" mt={4}>
              → {does}
            </Text>
            <Badge size="xs" mt={4} variant="light" color={rule.state === "active" ? "tide" : "gray"} c="var(--ink)" tt="none">
              {state}
            </Badge>{" "}
            {tested !== undefined && (
              <Badge size="xs" mt={4} variant="outline" color="gray" c="var(--ink)" tt="none">
                {rule.id === decides ? texts.incident.decides : said(texts, verdict)}
              </Badge>
            )}
          </>
        ),
      };
    });
    const arrows: DrawnEdge[] = tree.rules.flatMap((rule) => [
      ...(rule.true_child && known.has(rule.true_child)
        ? [{ from: rule.id, to: rule.true_child, label: texts.rules.refinement, lit: tested?.has(rule.true_child) ?? false }]
        : []),
      ...(rule.false_child && known.has(rule.false_child)
        ? [{ from: rule.id, to: rule.false_child, label: texts.rules.alternative, dashed: true, lit: tested?.has(rule.false_child) ?? false }]
        : []),
    ]);
    return [boxes, arrows];
  }, [tree, tested, decides, chosen, texts]);
  return <Drawn nodes={nodes} edges={edges} label={texts.rules.tree(tree.type, tree.task)} choose={choose} height={height} />;
}
