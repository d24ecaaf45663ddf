"""A picture of a flow and the states of its tasks, as self-contained SVG.

Tasks are in columns, each to the right of its predecessors; the contents of a loop or a choice are inside its box. A state is shown by a word and a
colour, never by the colour alone, and the whole picture has a description in words for those who do not see it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from forestay.domain.flows.definition.flow import Task, bodies
from forestay.domain.flows.definition.flow_pattern import (
    AskPattern,
    AwaitPattern,
    ChoicePattern,
    JobPattern,
    LoopPattern,
    MergePattern,
    SubflowPattern,
    WorkletPattern,
)
from forestay.domain.flows.definition.flow_plan import FlowPlan
from forestay.domain.flows.definition.flow_version import flow_as_plain, flow_from_plain, planned
from forestay.formats.flows.yaml_flow import read_flow_text

Tasks = Sequence[Mapping[str, Any]]
"""Tasks as the HTTP interface shows them: ``id``, ``task``, ``state``, ``count``, ``well``, ``bad``, and of a Python flow ``after``."""

MOST = 80
"""The most boxes in the picture of a Python flow; a longer one shows its last tasks."""
WIDTH, HEIGHT, GAP_X, GAP_Y, EDGE, HEAD = 168.0, 46.0, 44.0, 14.0, 12.0, 24.0
LETTERS = 22
COLOURS: Mapping[str, tuple[str, str]] = {
    "": ("#f6f7f9", "#5b6470"),
    "waiting": ("#f6f7f9", "#5b6470"),
    "listing": ("#e8f0fe", "#2f6fd6"),
    "binding": ("#e8f0fe", "#2f6fd6"),
    "asking": ("#fff3dc", "#b26a00"),
    "awaiting": ("#e8f0fe", "#2f6fd6"),
    "running": ("#e8f0fe", "#2f6fd6"),
    "faulted": ("#fff3dc", "#b26a00"),
    "completed": ("#e7f5ea", "#2a7d3f"),
    "forced_complete": ("#e7f5ea", "#2a7d3f"),
    "skipped": ("#f0f0f2", "#6b7280"),
    "failed": ("#fde8e6", "#b3261e"),
    "cancelled": ("#f0f0f2", "#6b7280"),
}
"""Fill and border of a state; without one: the flow alone."""


@dataclass(slots=True)
class _Box:
    """One thing in the picture, with what is inside it."""

    name: str
    kind: str
    before: tuple[str, ...] = ()
    instance: Mapping[str, Any] | None = None
    inner: list[list[_Box]] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    """The labels of the blocks inside it: the names of a choice's branches."""
    x: float = 0.0
    y: float = 0.0
    width: float = WIDTH
    height: float = HEIGHT

    @property
    def state(self) -> str:
        return str(self.instance.get("state", "waiting")) if self.instance is not None else ""

    def move(self, x: float, y: float) -> None:
        self.x += x
        self.y += y
        for block in self.inner:
            for box in block:
                box.move(x, y)


def flow_picture(flow: Mapping[str, Any] | None, tasks: Tasks = (), *, title: str = "") -> str:
    """The SVG of a flow in its plain form with the tasks of a run; of a Python flow (``None``) the tasks alone."""
    if flow is not None:
        plan = planned(flow_from_plain(flow))
        known = {str(instance.get("task", "")): instance for instance in tasks}
        boxes = [_box(plan, task, known, shown=bool(tasks)) for task in plan.flow.tasks]
        title = title or plan.flow.name
        left_out = 0
    else:
        shown = tasks[-MOST:]
        boxes = [_Box(str(instance["id"]), "job", tuple(instance.get("after", ())), instance) for instance in shown]
        left_out = len(tasks) - len(shown)
    width, height = _place(boxes)
    top = EDGE + (18.0 if left_out else 0.0)
    for box in boxes:
        box.move(EDGE, top)
    words = [f"{left_out} earlier tasks are not shown."] if left_out else []
    words += [line for box in boxes for line in _words(box)] or ["It has no tasks."]
    body = [f'<text x="{EDGE}" y="20" fill="#6b7280">{words[0]}</text>'] if left_out else []
    body += _drawn(boxes)
    name = "flow-" + hashlib.sha256("".join([title, *words]).encode()).hexdigest()[:12]
    wide, high = max(width, WIDTH) + 2 * EDGE, max(height, HEIGHT) + top + EDGE
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="{name}-t {name}-d" width="{_n(wide)}" '
        f'height="{_n(high)}" viewBox="0 0 {_n(wide)} {_n(high)}" font-family="system-ui, sans-serif" font-size="12">'
        f'<title id="{name}-t">{escape(title or "a flow")}</title><desc id="{name}-d">{escape(" ".join(words))}</desc>'
        f"{''.join(body)}</svg>"
    )


def picture_of_text(text: str, tasks: Tasks = (), *, title: str = "") -> str:
    """The SVG of a flow in YAML with the tasks of a run; any other text, such as that of a Python flow, does not contain its graph."""
    flow = None if "forestay:" not in text and '"forestay"' not in text else read_flow_text(text).flow
    return flow_picture(None if flow is None else flow_as_plain(flow), tasks, title=title)


def _box(plan: FlowPlan, task: Task, known: Mapping[str, Mapping[str, Any]], *, shown: bool) -> _Box:
    instance = known.get(task.name, {} if shown else None)
    box = _Box(task.name, _kind(task), plan.tasks[task.name].before, instance)
    for body in bodies(task.pattern):
        box.inner.append([_box(plan, inner, known, shown=shown) for inner in body.tasks])
        box.labels.append(body.name)
    return box


def _kind(task: Task) -> str:
    match task.pattern:
        case LoopPattern(maximum=most):
            return f"loop, at most {most} rounds"
        case ChoicePattern():
            return "choice"
        case SubflowPattern(flow=flow):
            return f"flow {flow[:12]}"
        case WorkletPattern(late_bound=place):
            return f"worklet {place[:12]}"
        case MergePattern():
            return "merge"
        case AskPattern():
            return "question"
        case AwaitPattern(event=event):
            return f"event {event[:12]}"
        case JobPattern(wait=wait):
            return ("scatter" if task.scatter else "job") + ("" if wait else ", not waited for")


# Layout


def _place(boxes: Sequence[_Box]) -> tuple[float, float]:
    """Arrange boxes in columns, from (0, 0); returns the size of the whole."""
    for box in boxes:
        _size(box)
    columns = _columns(boxes)
    middle: dict[str, float] = {}
    tall = max((_height(column) for column in columns), default=0.0)
    x = 0.0
    for column in columns:
        # Each near the middle of its predecessors, so that few lines cross; otherwise in the written order.
        column.sort(key=lambda box: _mean([middle[name] for name in box.before if name in middle]))
        y = (tall - _height(column)) / 2
        wide = max(box.width for box in column)
        for box in column:
            box.move(x, y)
            middle[box.name] = y + box.height / 2
            y += box.height + GAP_Y
        x += wide + GAP_X
    return max(0.0, x - GAP_X), tall


def _columns(boxes: Sequence[_Box]) -> list[list[_Box]]:
    names = {box.name for box in boxes}
    level: dict[str, int] = {}
    left = list(boxes)
    while left:
        ready = [box for box in left if all(name in level or name not in names for name in box.before)]
        for box in ready or left[:1]:  # a cycle is reported by the flow's check; here it is only drawn
            level[box.name] = 1 + max((level[name] for name in box.before if name in level), default=-1)
        left = [box for box in left if box.name not in level]
    columns: list[list[_Box]] = [[] for _ in range(max(level.values(), default=-1) + 1)]
    for box in boxes:
        columns[level[box.name]].append(box)
    return columns


def _size(box: _Box) -> None:
    """The size of a box with its contents, which are arranged inside it."""
    if not box.inner:
        return
    y, wide = HEAD, WIDTH
    for label, block in zip(box.labels, box.inner, strict=True):
        y += 16.0 if label else 0.0
        width, height = _place(block)
        for inner in block:
            inner.move(EDGE, y)
        y += height + EDGE
        wide = max(wide, width + 2 * EDGE)
    box.width, box.height = wide, y


def _height(column: Sequence[_Box]) -> float:
    return sum(box.height for box in column) + GAP_Y * (len(column) - 1)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


# Drawing


def _drawn(boxes: Sequence[_Box]) -> list[str]:
    by_name = {box.name: box for box in boxes}
    out = [_line(by_name[name], box) for box in boxes for name in box.before if name in by_name]
    for box in boxes:
        out += _drawn_box(box)
    return out


def _line(start: _Box, end: _Box) -> str:
    x, y = start.x + start.width, start.y + start.height / 2
    to_x, to_y = end.x, end.y + end.height / 2
    bend = max(GAP_X / 2, (to_x - x) / 2)
    path = f"M{_n(x)} {_n(y)}C{_n(x + bend)} {_n(y)} {_n(to_x - bend)} {_n(to_y)} {_n(to_x - 5)} {_n(to_y)}"
    tip = f"M{_n(to_x)} {_n(to_y)}l-6 -3.5v7z"
    return f'<path d="{path}" fill="none" stroke="#8a94a3"/><path d="{tip}" fill="#8a94a3"/>'


def _drawn_box(box: _Box) -> list[str]:
    fill, border = COLOURS.get(box.state, COLOURS[""])
    dashed = ' stroke-dasharray="4 3"' if box.state in ("waiting", "skipped", "cancelled") else ""
    size = f'x="{_n(box.x)}" y="{_n(box.y)}" width="{_n(box.width)}" height="{_n(box.height)}"'
    out = [
        f"<g><title>{escape(_told(box))}</title>",
        f'<rect {size} rx="6" fill="{fill}" stroke="{border}"{dashed}/>',
    ]
    x = box.x + EDGE
    out.append(_text(x, box.y + 17, _short(box.name), 'font-weight="600" fill="#1b1f24"'))
    if box.inner:
        shift = 9 + 7.5 * min(len(box.name), LETTERS)
        out.append(_text(x + shift, box.y + 17, _short(_second(box), 26), f'fill="{border}" font-size="11"'))
    else:
        out.append(_text(x, box.y + 33, _short(_second(box), 26), f'fill="{border}" font-size="11"'))
        out += _bar(box)
    out.append("</g>")
    for label, block in zip(box.labels, box.inner, strict=True):
        if label and block:
            out.append(
                _text(x, min(other_box.y for other_box in block) - 4, _short(label), 'fill="#6b7280" font-size="11"')
            )
        out += _drawn(block)
    return out


def _bar(box: _Box) -> list[str]:
    """How many of several jobs have ended."""
    well, bad, count = _counts(box)
    if count < 2:
        return []
    x, y, whole = box.x + EDGE, box.y + box.height - 7, box.width - 2 * EDGE
    good, wrong = whole * min(1.0, well / count), whole * min(1.0, bad / count)
    return [
        f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(whole)}" height="3" rx="1.5" fill="#d5dae1"/>',
        f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(good)}" height="3" rx="1.5" fill="#2a7d3f"/>',
        f'<rect x="{_n(x + good)}" y="{_n(y)}" width="{_n(wrong)}" height="3" fill="#b3261e"/>' if bad else "",
    ]


def _text(x: float, y: float, text: str, look: str) -> str:
    return f'<text x="{_n(x)}" y="{_n(y)}" {look}>{escape(text)}</text>'


# In words


def _words(box: _Box) -> list[str]:
    return [_told(box) + ".", *(line for block in box.inner for inner in block for line in _words(inner))]


def _told(box: _Box) -> str:
    after = f", after {', '.join(box.before)}" if box.before else ""
    why = str(box.instance.get("reason", "")) if box.instance is not None else ""
    return f"{box.name} ({box.kind}{after})" + (f": {_second(box)}" if box.state else "") + (f"; {why}" if why else "")


def _second(box: _Box) -> str:
    """The second line: the state and the progress."""
    if box.instance is None:
        return box.kind
    well, bad, count = _counts(box)
    second = box.state.replace("_", " ")
    if box.instance.get("holders") and box.state not in ("completed", "failed", "cancelled", "skipped"):
        second = f"{second}, held"
    if count > 1:
        second += f", {well + bad} of {count}" + (f", {bad} failed" if bad else "")
    return second


def _counts(box: _Box) -> tuple[int, int, int]:
    instance = box.instance or {}
    well, bad, count = (int(instance.get(name) or 0) for name in ("well", "bad", "count"))
    return well, bad, count


def _short(text: str, most: int = LETTERS) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
