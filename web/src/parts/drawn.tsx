import "@xyflow/react/dist/style.css";

import dagre from "@dagrejs/dagre";
import { Background, Controls, Handle, Position, ReactFlow, type Edge, type Node, type NodeProps } from "@xyflow/react";
import { useMemo, type ReactNode } from "react";

export interface DrawnNode {
  id: string;
  /** What a screen reader says of it. */
  label: string;
  content: ReactNode;
  height?: number;
  marks?: Record<`data-${string}`, string>;
}

export interface DrawnEdge {
  from: string;
  to: string;
  label?: string;
  dashed?: boolean;
  lit?: boolean;
}

interface Given {
  nodes: DrawnNode[];
  edges: DrawnEdge[];
  label: string;
  direction?: "TB" | "LR";
  height?: number;
  choose?(id: string): void;
}

type Shown = Node<{ content: ReactNode; label: string; marks: Record<string, string>; across: boolean; choose: (() => void) | null }>;
const WIDTH = 230;

function Box({ data }: NodeProps<Shown>) {
  return (
    <div className="node" {...data.marks}>
      <Handle type="target" position={data.across ? Position.Left : Position.Top} isConnectable={false} />
      {data.choose === null ? (
        data.content
      ) : (
        <button type="button" className="choose" onClick={data.choose}>
          {data.content}
        </button>
      )}
      <Handle type="source" position={data.across ? Position.Right : Position.Bottom} isConnectable={false} />
    </div>
  );
}

const KINDS = { box: Box };

/** Boxes and arrows, laid out by themselves. Arrows that are lit show the way that was taken. */
export function Drawn({ nodes, edges, label, direction = "TB", height = 360, choose }: Given) {
  const across = direction === "LR";
  const [boxes, arrows] = useMemo(() => {
    const graph = new dagre.graphlib.Graph().setDefaultEdgeLabel(() => ({}));
    graph.setGraph({ rankdir: direction, nodesep: 36, ranksep: 46 });
    for (const one of nodes) graph.setNode(one.id, { width: WIDTH, height: one.height ?? 84 });
    for (const one of edges) graph.setEdge(one.from, one.to);
    dagre.layout(graph);
    const made: Shown[] = nodes.map((one) => {
      const at = graph.node(one.id) as { x: number; y: number };
      return {
        id: one.id,
        type: "box",
        position: { x: at.x - WIDTH / 2, y: at.y - (one.height ?? 84) / 2 },
        data: { content: one.content, label: one.label, marks: one.marks ?? {}, across, choose: choose ? () => choose(one.id) : null },
        ariaLabel: one.label,
        // Boxes that cannot be selected get no clicks otherwise.
        style: choose ? { pointerEvents: "all" as const } : undefined,
        draggable: false,
        connectable: false,
        selectable: false,
        focusable: false,
      };
    });
    const joined: Edge[] = edges.map((one) => ({
      id: `${one.from}>${one.to}`,
      source: one.from,
      target: one.to,
      label: one.label,
      focusable: false,
      selectable: false,
      animated: false,
      style: {
        strokeWidth: one.lit ? 3 : 1.4,
        stroke: one.lit ? "var(--lit)" : "var(--mantine-color-dimmed)",
        strokeDasharray: one.dashed ? "6 4" : undefined,
      },
      markerEnd: { type: "arrowclosed" as const, color: one.lit ? "var(--lit)" : "var(--mantine-color-dimmed)" },
    }));
    return [made, joined];
  }, [nodes, edges, direction, across, choose]);
  return (
    <div style={{ height }} role="group" aria-label={label} className="panel">
      <ReactFlow
        key={`${boxes.length} ${arrows.length} ${direction}`}
        nodes={boxes}
        edges={arrows}
        nodeTypes={KINDS}
        fitView
        fitViewOptions={{ maxZoom: 1, padding: 0.12 }}
        minZoom={0.2}
        nodesDraggable={false}
        nodesConnectable={false}
        elementsSelectable={choose !== undefined}
        preventScrolling={false}
        zoomOnScroll={false}
      >
        <Background gap={20} />
        <Controls showInteractive={false} />
      </ReactFlow>
    </div>
  );
}
