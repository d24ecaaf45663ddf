"""A flow as a text graph: each task below its last predecessor, the contents of a loop or choice inside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from forestay.domain.flows.definition.flow import Task, bodies
from forestay.domain.flows.definition.flow_pattern import (
    Dimension,
    FilesOf,
    JobPattern,
    LinesOf,
    ListOf,
    RangeOf,
    WatchOf,
    kind_of,
)
from forestay.domain.flows.definition.flow_plan import FlowPlan
from forestay.domain.flows.definition.flow_version import flow_from_plain, planned

Tasks = Sequence[Mapping[str, Any]]
"""Tasks as the HTTP interface shows them."""


class Row(NamedTuple):
    """One line of the graph."""

    rails: str
    name: str
    kind: str
    """The kind of the task if it is not a plain job."""
    also: tuple[str, ...]
    """Its predecessors other than the task above it."""
    task: Mapping[str, Any] | None
    """Its state in a run; for a task inside a loop, in the newest round."""


class _GraphNode(NamedTuple):
    name: str
    kind: str
    before: tuple[str, ...]
    inner: Sequence[tuple[str, Sequence[_GraphNode]]] = ()
    """Blocks inside it, each with its name."""


def flow_graph(flow: Mapping[str, Any] | None, tasks: Tasks = ()) -> list[Row]:
    """The rows of a flow in its plain form; without one, of the tasks of a Python flow."""
    known: dict[str, Mapping[str, Any]] = {task["task"] if flow is not None else task["id"]: task for task in tasks}
    if flow is None:
        nodes = [_GraphNode(task["id"], "", tuple(task.get("after") or ())) for task in tasks]
    else:
        plan = planned(flow_from_plain(flow))
        nodes = [_node(plan, task) for task in plan.flow.tasks]
    return list(_rows(nodes, known, "", root=True))


def _node(plan: FlowPlan, task: Task) -> _GraphNode:
    before = plan.tasks[task.name].before
    inner = [(body.name, [_node(plan, other_task) for other_task in body.tasks]) for body in bodies(task.pattern)]
    return _GraphNode(task.name, _kind(task), before, inner)


def _rows(
    nodes: Sequence[_GraphNode], known: Mapping[str, Mapping[str, Any]], rails: str, *, root: bool
) -> Iterator[Row]:
    """The rows of a block: tasks without predecessors, and below each the tasks of which it is the last predecessor."""
    depth: dict[str, int] = {}
    names = {node.name for node in nodes}
    for (
        node
    ) in nodes:  # tasks stand in an order in which each comes after those before it, or the longest way is found below
        _depth(node, {graph_node.name: graph_node for graph_node in nodes}, depth)
    below: dict[str, list[_GraphNode]] = {}
    for node in nodes:
        before = [name for name in node.before if name in names]
        above = max(before, key=lambda name: depth[name]) if before else ""
        below.setdefault(above, []).append(node)

    def draw(above: str, rails: str, *, root: bool) -> Iterator[Row]:
        found_nodes = below.get(above, [])
        for place, node in enumerate(found_nodes):
            last = place == len(found_nodes) - 1
            own = rails if root else rails + ("└▶ " if last else "├▶ ")
            also = tuple(name for name in node.before if name != above)
            yield Row(own, node.name, node.kind, also, known.get(node.name))
            under = rails if root else rails + ("   " if last else "│  ")
            for label, inner in node.inner:
                bar = under + "┊  "
                if label:
                    yield Row(bar, f"{label}:", "", (), None)
                yield from _rows(inner, known, bar + ("  " if label else ""), root=True)
            yield from draw(node.name, under, root=False)

    yield from draw("", rails, root=root)


def _depth(node: _GraphNode, nodes: Mapping[str, _GraphNode], depth: dict[str, int]) -> int:
    if node.name not in depth:
        depth[node.name] = 0  # there can be no cycle: the flow was checked
        depth[node.name] = 1 + max(
            (_depth(nodes[other_node], nodes, depth) for other_node in node.before if other_node in nodes), default=0
        )
    return depth[node.name]


def _kind(task: Task) -> str:
    parts = []
    if not isinstance(task.pattern, JobPattern):
        parts.append(kind_of(task.pattern))
    if task.scatter:
        parts.append("one for each " + " × ".join(_dimension(dimension) for dimension in task.scatter))
    if task.when:
        parts.append(f"when {task.when}")
    if task.compensation is not None:
        parts.append("can be undone")
    return ", ".join(parts)


def _dimension(dimension: Dimension) -> str:
    match dimension.source:
        case FilesOf(pattern) | WatchOf(pattern):
            return f"{dimension.name} in {pattern}"
        case LinesOf(path):
            return f"{dimension.name} of {path}"
        case RangeOf(first, end):
            return f"{dimension.name} from {first} below {end}"
        case ListOf(values):
            return (
                f"{dimension.name} of {len(values)}" if isinstance(values, tuple) else f"{dimension.name} of {values}"
            )
