"""What is known of a flow before it runs: the position of each task, its references and its predecessors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from forestay.domain.flows.definition.expression import (
    BadExpression,
    Path,
    Reference,
    parse_condition,
    parse_template,
    references,
    template_references,
)
from forestay.domain.flows.definition.flow import Flow, Task, all_tasks, bodies
from forestay.domain.flows.definition.flow_pattern import (
    AskPattern,
    AwaitPattern,
    ChoicePattern,
    FilesOf,
    JobPattern,
    LinesOf,
    ListOf,
    LoopPattern,
    MergePattern,
    Pattern,
    RangeOf,
    Source,
    SubflowPattern,
    WatchOf,
    WorkletPattern,
)

RESULTS_BYTES = 1_000_000
"""The bound on all results of a run together, so that its state stays far below the limit of a payload."""
MAX_RESULT = 16_384
MIN_RESULT = 256
UNDO_BYTES = 500_000
"""The bound on the values of other tasks that all compensations together keep."""
MAX_UNDO = 4096
MAX_COMPENSATIONS = 2000
"""The most compensations that a run of a flow may push; the flow's check counts the rounds of loops."""


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """A task in its place."""

    task: Task
    inside: tuple[str, ...] = ()
    """The tasks that enclose it, outermost first."""
    branch: str = ""
    before: tuple[str, ...] = ()
    """The tasks of its own block that must have ended before it begins."""
    wants: tuple[Path, ...] = ()
    """The references of the task itself, without its condition and the tasks inside it."""
    undo_wants: tuple[Path, ...] = ()
    source_wants: tuple[Path, ...] = ()
    """The references of its scatter: the elements are computed again when they are undone."""
    producer: str = ""
    """The scattered task whose elements it consumes one by one, as they end; empty: none."""
    followed: bool = False
    """Another task consumes its elements one by one."""


@dataclass(frozen=True, slots=True)
class FlowPlan:
    """A flow prepared for execution."""

    flow: Flow
    tasks: Mapping[str, TaskPlan]
    versions: Mapping[str, str] = field(default_factory=dict)
    """The versions of its sub-flows by name."""
    version: str = ""

    result_limit: int = MAX_RESULT
    """The most bytes of JSON in one task's result: the same for every order of events."""
    undo_limit: int = MAX_UNDO
    """The most bytes of JSON that one compensation may keep."""
    grown: bool = False
    """A Python flow: its tasks are those that the run has requested so far."""


def most_compensations(tasks: tuple[Task, ...]) -> int:
    """The most compensations that a run of these tasks can push."""
    most = 0
    for task in tasks:
        most += task.compensation is not None or isinstance(task.pattern, SubflowPattern | WorkletPattern)
        inner = sum(most_compensations(body.tasks) for body in bodies(task.pattern))
        most += inner * (task.pattern.maximum if isinstance(task.pattern, LoopPattern) else 1)
    return most


def texts_of(value: object) -> Iterator[str]:
    """Every text inside a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for entry in value.values():
            yield from texts_of(entry)
    elif isinstance(value, Sequence):
        for entry in value:
            yield from texts_of(entry)


def job_texts(job: JobPattern) -> Iterator[str]:
    """Every text of a job that may hold references."""
    yield from job.command
    yield from job.environment.values()
    yield from job.inputs
    yield from job.inputs.values()
    yield from job.outputs.values()
    yield from job.labels.values()
    yield job.container


def source_texts(source: Source) -> Iterator[str]:
    match source:
        case ListOf(values):
            yield from texts_of(values)
        case RangeOf(first, end):
            yield from texts_of((first, end))
        case FilesOf(text) | LinesOf(text):
            yield text
        case WatchOf(text, until):
            yield text
            yield until


def _pattern_texts(pattern: Pattern) -> Iterator[str]:
    match pattern:
        case JobPattern():
            yield from job_texts(pattern)
        case SubflowPattern(_, params) | WorkletPattern(_, params, _):
            yield from texts_of(params)
        case MergePattern(values):
            yield from texts_of(values)
        case AskPattern(title, text, _, who):
            yield from (title, text, *who)
        case AwaitPattern(_, key):
            yield key
        case LoopPattern() | ChoicePattern():
            return


def _paths(texts: Iterator[str]) -> Iterator[Path]:
    for text in texts:
        try:
            yield from template_references(text)
        except BadExpression:
            continue  # the check of the flow reports it; the plan covers what can be read


def condition_paths(condition: str) -> Iterator[Path]:
    if not condition:
        return
    try:
        yield from references(parse_condition(condition))
    except BadExpression:
        return


def own_paths(task: Task) -> Iterator[Path]:
    """The references of a task's own work."""
    for dimension in task.scatter:
        yield from _paths(source_texts(dimension.source))
    yield from _paths(_pattern_texts(task.pattern))


def _control_paths(task: Task) -> Iterator[Path]:
    yield from condition_paths(task.when)
    match task.pattern:
        case LoopPattern():
            yield from condition_paths(task.pattern.while_)
            yield from condition_paths(task.pattern.until)
            yield from _paths(texts_of(task.pattern.outputs))
        case ChoicePattern():
            for branch in task.pattern.branches:
                yield from condition_paths(branch.when)
            yield from _paths(texts_of(task.pattern.outputs))


def _all_paths(task: Task) -> Iterator[Path]:
    yield from own_paths(task)
    yield from _control_paths(task)
    if task.compensation is not None:
        yield from _paths(job_texts(task.compensation.job))
    for body in bodies(task.pattern):
        for other_task in body.tasks:
            yield from _all_paths(other_task)


def _unique(paths: Iterator[Path], own: frozenset[str]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(path for path in paths if path[0] not in own))


def plan_flow(flow: Flow, *, version: str = "", versions: Mapping[str, str] | None = None) -> FlowPlan:
    """Prepare a flow for execution. Total: errors in the flow are found by its check, not here."""
    places: dict[str, tuple[tuple[str, ...], str]] = {}
    _place(flow.tasks, (), "", places)
    tasks: dict[str, TaskPlan] = {}
    known = {task.name: task for task in all_tasks(flow.tasks)}
    producers = {task.name: _producer(task, known, places) for task in known.values()}
    for task in known.values():
        inside, branch = places[task.name]
        elements = frozenset({dimension.name for dimension in task.scatter} | ({"index"} if task.scatter else set()))
        sources = tuple(_paths(text for dimension in task.scatter for text in source_texts(dimension.source)))
        undo: tuple[Path, ...] = ()
        if task.compensation is not None:
            undo = _unique(chain(_paths(job_texts(task.compensation.job)), sources), elements)
        tasks[task.name] = TaskPlan(
            task=task,
            inside=inside,
            branch=branch,
            before=_before(task, places),
            wants=_unique(own_paths(task), elements),
            undo_wants=undo,
            source_wants=_unique(iter(sources), elements),
            producer=producers[task.name],
            followed=task.name in producers.values(),
        )
    return FlowPlan(
        flow=flow,
        tasks=tasks,
        versions=versions or {},
        version=version,
        result_limit=_share(RESULTS_BYTES, len(tasks), MAX_RESULT),
        undo_limit=_share(UNDO_BYTES, most_compensations(flow.tasks), MAX_UNDO),
    )


def _share(whole: int, parts: int, most: int) -> int:
    return max(MIN_RESULT, min(most, whole // max(1, parts)))


def _place(
    tasks: tuple[Task, ...], inside: tuple[str, ...], branch: str, places: dict[str, tuple[tuple[str, ...], str]]
) -> None:
    for task in tasks:
        places[task.name] = (inside, branch)
        for body in bodies(task.pattern):
            _place(body.tasks, (*inside, task.name), body.name, places)


def _producer(task: Task, tasks: Mapping[str, Task], places: Mapping[str, tuple[tuple[str, ...], str]]) -> str:
    """The task whose elements this one shares: it is scattered over an output of theirs, and over nothing else.

    A task that names it in ``after``, or refers to anything else of it, waits for all its elements. So does one with a deadline, which counts from its beginning.
    """
    path = scattered_over(task)
    if path is None or task.deadline is not None or not _is_scattered_job(task):
        return ""
    producer = tasks.get(path[1])
    if producer is None or places[producer.name] != places[task.name] or producer.name in (task.name, *task.after):
        return ""
    watches = any(isinstance(dimension.source, WatchOf) for dimension in producer.scatter)
    if not _is_scattered_job(producer) or watches or path[3] not in outputs_of(producer):
        return ""
    wanted = [wants for wants in _all_paths(task) if wants[:2] == path[:2]]
    return producer.name if wanted == [path] else ""


def scattered_over(task: Task) -> Path | None:
    """The output that a task is scattered over, if there is nothing else."""
    if len(task.scatter) != 1 or not isinstance(task.scatter[0].source, ListOf):
        return None
    text = task.scatter[0].source.values
    if not isinstance(text, str):
        return None
    try:
        parts = parse_template(text)
    except BadExpression:
        return None
    if len(parts) != 1 or not isinstance(parts[0], Reference):
        return None
    path = parts[0].path
    return path if len(path) == 4 and path[0] == "tasks" and path[2] == "outputs" else None


def outputs_of(task: Task) -> Mapping[str, str]:
    return task.pattern.outputs if isinstance(task.pattern, JobPattern) else {}


def _is_scattered_job(task: Task) -> bool:
    return bool(task.scatter) and isinstance(task.pattern, JobPattern) and task.pattern.wait


def _before(task: Task, places: Mapping[str, tuple[tuple[str, ...], str]]) -> tuple[str, ...]:
    inside, branch = places[task.name]
    named = [*task.after, *(path[1] for path in _all_paths(task) if path[0] == "tasks" and len(path) > 1)]
    before: dict[str, None] = {}
    for name in named:
        if name not in places:
            continue
        # A task inside another one is represented by the task of this block that encloses it.
        holder = (*places[name][0], name)[len(inside)] if places[name][0][: len(inside)] == inside else ""
        if holder and holder != task.name and places[holder][1] == branch:
            before[holder] = None
    return tuple(before)
