"""Checks that every reference in a flow has a target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from forestay.domain.flows.definition.expression import (
    BadExpression,
    Path,
    parse_condition,
    references,
    template_references,
)
from forestay.domain.flows.definition.flow import OTHERWISE, Flow, Task, all_tasks, bodies
from forestay.domain.flows.definition.flow_pattern import (
    AskPattern,
    AwaitPattern,
    ChoicePattern,
    JobPattern,
    ListOf,
    LoopPattern,
    MergePattern,
    RangeOf,
    SubflowPattern,
    WatchOf,
    WorkletPattern,
)
from forestay.domain.flows.definition.flow_problem import FlowProblem, Place, did_you_mean

RESERVED = frozenset({"params", "tasks", "previous", "iteration", "index", "run", "and", "or", "not", "in", "true", "false", "null"})  # fmt: skip
FIELDS = ("state", "exit_code", "result", "outputs", "count", "well", "bad")


class References:
    """Checks every text of a flow."""

    def __init__(self, flow: Flow, at: Place) -> None:
        self.flow = flow
        self.at = at
        self.tasks = {task.name: task for task in all_tasks(flow.tasks)}
        self.inside: dict[str, tuple[str, ...]] = {}
        self._place(flow.tasks, ())

    def _place(self, tasks: Sequence[Task], inside: tuple[str, ...]) -> None:
        """The position of each task: the blocks around it, each named by its task and body."""
        for task in tasks:
            self.inside[task.name] = inside
            for body in bodies(task.pattern):
                self._place(body.tasks, (*inside, f"{task.name}/{body.name}"))

    def check(self) -> Iterator[FlowProblem]:
        yield from self._block(self.flow.tasks, (*self.at, "tasks"), ())
        yield from self._value(self.flow.outputs, (*self.at, "outputs"), (), "")

    def _block(self, tasks: Sequence[Task], at: Place, inside: tuple[str, ...]) -> Iterator[FlowProblem]:
        for task in tasks:
            yield from self._task(task, (*at, task.name), inside)

    def _task(self, task: Task, here: Place, inside: tuple[str, ...]) -> Iterator[FlowProblem]:
        yield from self._condition(task.when, (*here, "when"), inside, task.name)
        for dimension in task.scatter:
            at = (*here, "scatter", dimension.name)
            match dimension.source:
                case ListOf(values):
                    yield from self._value(values, at, inside, task.name)
                    if isinstance(values, str) and not _is_reference(values):
                        yield FlowProblem(at, "expected a list, or a reference to one such as ${params.samples}")
                case RangeOf(first, end):
                    yield from self._value((first, end), (*at, "range"), inside, task.name)
                case WatchOf(text, until):
                    yield from self._value(text, (*at, "watch"), inside, task.name)
                    yield from self._value(until, (*at, "until", "file"), inside, task.name)
                case source:
                    key = "lines" if hasattr(source, "path") else "files"
                    text = source.path if hasattr(source, "path") else source.pattern
                    yield from self._value(text, (*at, key), inside, task.name)
                    if not text:
                        yield FlowProblem((*at, key), "the files are missing")
        own = tuple(dimension.name for dimension in task.scatter) + (("index",) if task.scatter else ())
        yield from self._pattern(task, here, inside, own)
        if task.compensation is not None:
            yield from self._job(task.compensation.job, (*here, "compensate"), inside, "", own)

    def _pattern(self, task: Task, here: Place, inside: tuple[str, ...], own: tuple[str, ...]) -> Iterator[FlowProblem]:
        match task.pattern:
            case JobPattern() as job:
                yield from self._job(job, here, inside, task.name, own)
            case SubflowPattern(_, params) | WorkletPattern(_, params, _):
                yield from self._value(params, (*here, "params"), inside, task.name, own)
            case MergePattern(values):
                yield from self._value(values, (*here, "merge"), inside, task.name)
            case AskPattern(title, text, _, who):
                for field, value in (("title", title), ("text", text), ("who", who)):
                    yield from self._value(value, (*here, "ask", field), inside, task.name)
            case AwaitPattern(_, key):
                yield from self._value(key, (*here, "wait_for", "key"), inside, task.name)
            case LoopPattern() as loop:
                inner = (*inside, f"{task.name}/")
                yield from self._condition(loop.while_, (*here, "loop", "while"), inner, task.name)
                yield from self._condition(loop.until, (*here, "loop", "until"), inner, task.name)
                yield from self._block(loop.tasks, (*here, "loop", "tasks"), inner)
                yield from self._value(loop.outputs, (*here, "outputs"), inner, task.name)
            case ChoicePattern() as choice:
                for branch in choice.branches:
                    at = (*here, "choose", "branches", branch.name)
                    yield from self._condition(branch.when, (*at, "when"), inside, task.name)
                    yield from self._block(branch.tasks, (*at, "tasks"), (*inside, f"{task.name}/{branch.name}"))
                otherwise = (*inside, f"{task.name}/{OTHERWISE}")
                yield from self._block(choice.otherwise, (*here, "choose", "otherwise", "tasks"), otherwise)
                around = tuple(f"{task.name}/{body.name}" for body in bodies(choice))
                yield from self._value(choice.outputs, (*here, "outputs"), inside, task.name, also=around)

    def _job(
        self, job: JobPattern, here: Place, inside: tuple[str, ...], task: str, own: tuple[str, ...]
    ) -> Iterator[FlowProblem]:
        for name in job.inputs:
            yield from self._value(name, (*here, "inputs", name), inside, task, own)
        for field in ("command", "inputs", "outputs"):
            yield from self._value(getattr(job, field), (*here, field), inside, task, own)
        container = {"container": job.container}
        for field, values in (("environment", job.environment), ("labels", job.labels), ("", container)):
            for name, text in values.items():
                at = (*here, field, name) if field else (*here, name)
                used = [path for path in _readable(text) if path[0] in own]
                if used:
                    yield FlowProblem(at, f"it is the same for all jobs of a scatter, so ${{{used[0][0]}}} cannot be used here; a job finds it in FORESTAY_PARAM_{used[0][0].upper()}")  # fmt: skip
                yield from self._value(text, at, inside, task, own)

    def _value(
        self,
        value: object,
        at: Place,
        inside: tuple[str, ...],
        task: str,
        own: tuple[str, ...] = (),
        also: tuple[str, ...] = (),
    ) -> Iterator[FlowProblem]:
        """Every text inside a value."""
        if isinstance(value, str):
            try:
                for path in template_references(value):
                    yield from self._reference(path, at, inside, task, own, also)
            except BadExpression as why:
                yield FlowProblem(at, f"the text cannot be read: {why}")
        elif isinstance(value, Mapping):
            for key, entry in value.items():
                yield from self._value(entry, (*at, key), inside, task, own, also)
        elif isinstance(value, Sequence):
            for place, entry in enumerate(value):
                yield from self._value(entry, (*at, place), inside, task, own, also)

    def _condition(self, text: str, at: Place, inside: tuple[str, ...], task: str) -> Iterator[FlowProblem]:
        if not text:
            return
        try:
            expression = parse_condition(text)
        except BadExpression as why:
            yield FlowProblem(at, f"the condition cannot be read: {why}")
            return
        for path in references(expression):
            yield from self._reference(path, at, inside, task, (), ())

    def _reference(
        self,
        path: Path,
        at: Place,
        inside: tuple[str, ...],
        task: str,
        own: tuple[str, ...],
        also: tuple[str, ...],
    ) -> Iterator[FlowProblem]:
        shown = "${" + ".".join(path) + "}"
        head = path[0]
        if head in own or path == ("run",):
            return
        if head == "params":
            if len(path) < 2 or path[1] not in self.flow.params:
                name = path[1] if len(path) > 1 else ""
                yield FlowProblem(
                    at, f"{shown}: the flow has no parameter {name!r}{did_you_mean(name, self.flow.params)}"
                )
        elif head == "tasks":
            yield from self._task_reference(path, at, inside, task, also)
        elif head in ("iteration", "previous"):
            loop = self._loop(inside)
            if loop is None:
                yield FlowProblem(at, f"{shown} has a value only inside a loop")
            elif head == "previous" and (
                len(path) < 2 or path[1] not in {other_task.name for other_task in loop.tasks}
            ):
                name = path[1] if len(path) > 1 else ""
                known = {other_task.name for other_task in loop.tasks}
                yield FlowProblem(at, f"{shown}: the loop has no task {name!r}{did_you_mean(name, known)}")
            elif head == "previous":
                yield from self._field(path, at, self.tasks[path[1]])
        else:
            known = {"params", "tasks", "run", *own} | ({"iteration", "previous"} if self._loop(inside) else set())
            yield FlowProblem(at, f"{shown}: nothing has this name here{did_you_mean(head, known)}")

    def _loop(self, inside: tuple[str, ...]) -> LoopPattern | None:
        for block in reversed(inside):
            pattern = self.tasks[block.partition("/")[0]].pattern
            if isinstance(pattern, LoopPattern):
                return pattern
        return None

    def _task_reference(
        self, path: Path, at: Place, inside: tuple[str, ...], task: str, also: tuple[str, ...]
    ) -> Iterator[FlowProblem]:
        shown = "${" + ".".join(path) + "}"
        name = path[1] if len(path) > 1 else ""
        seen = {
            name
            for name, where in self.inside.items()
            if name != task and (where == inside[: len(where)] or (where[:-1] == inside and where[-1] in also))
        } - {block.partition("/")[0] for block in inside}
        if name == task:
            yield FlowProblem(at, f"{shown}: a task cannot refer to itself; only its compensation can")
        elif name in self.tasks and name not in seen:
            around = [block.partition("/")[0] for block in self.inside[name]]
            if around and around[-1] not in {block.partition("/")[0] for block in inside}:
                yield FlowProblem(at, f"{shown}: task {name!r} is inside {around[-1]!r} and not visible here; give {around[-1]!r} an output and refer to that")  # fmt: skip
            else:
                yield FlowProblem(at, f"{shown}: task {name!r} cannot be referred to from inside itself")
        elif name not in self.tasks:
            yield FlowProblem(at, f"{shown}: there is no task {name!r}{did_you_mean(name, seen)}")
        else:
            yield from self._field(path, at, self.tasks[name])

    def _field(self, path: Path, at: Place, task: Task) -> Iterator[FlowProblem]:
        shown = "${" + ".".join(path) + "}"
        field = path[2] if len(path) > 2 else ""
        if field not in FIELDS:
            yield FlowProblem(at, f"{shown}: a task has no {field!r}{did_you_mean(field, FIELDS)}")
        elif (
            field == "result"
            and not isinstance(task.pattern, AskPattern | AwaitPattern)
            and not (isinstance(task.pattern, JobPattern) and task.pattern.result)
        ):
            yield FlowProblem(
                at, f"{shown}: task {task.name!r} has no result; add 'result: FILE' to it, a JSON file that it writes"
            )
        elif field in ("result", "exit_code") and task.scatter:
            yield FlowProblem(
                at, f"{shown}: task {task.name!r} is scattered, so it has many; collect them in a separate job"
            )
        elif field == "outputs":
            yield from self._output(path, at, task)

    def _output(self, path: Path, at: Place, task: Task) -> Iterator[FlowProblem]:
        shown = "${" + ".".join(path) + "}"
        name = path[3] if len(path) > 3 else ""
        known: Mapping[str, object] | None
        match task.pattern:
            case JobPattern() | LoopPattern() | ChoicePattern():
                known = task.pattern.outputs
            case MergePattern(values):
                known = values
            case SubflowPattern(flow):
                known = self.flow.flows[flow].outputs if flow in self.flow.flows else None
            case AskPattern(form=form):
                fields = form.get("properties")
                known = fields if isinstance(fields, Mapping) else {}
            case AwaitPattern():
                known = None  # determined by the sender of the event
            case WorkletPattern():
                known = None  # a flow other than the one it names may be bound
        if not name or (known is not None and name not in known):
            hint = did_you_mean(name, known or ())
            yield FlowProblem(at, f"{shown}: task {task.name!r} has no output {name!r}{hint}")


def _readable(text: str) -> list[Path]:
    try:
        return list(template_references(text))
    except BadExpression:
        return []


def _is_reference(text: str) -> bool:
    paths = _readable(text)
    return len(paths) == 1 and text.strip().startswith("${") and text.strip().endswith("}")
