"""The data of a run: the values of references in its present state, and changes to its parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from forestay.domain.flows.definition.expression import Path, Values, fill, inside
from forestay.domain.flows.definition.flow_pattern import JobPattern, LoopPattern, SubflowPattern, WorkletPattern
from forestay.domain.flows.definition.flow_plan import scattered_over
from forestay.domain.flows.execution.flow_run import FlowRun, TaskInstance
from forestay.domain.flows.execution.run_update import RunUpdate, container_of

MAX_DATA = 65_536
"""Bytes of a run's parameters, as at its start; and of the values that changes replaced."""
MAX_FORMER = 100
"""The most changes of a run's parameters whose replaced values are kept."""


def values_for(update: RunUpdate, instance: TaskInstance) -> Values:
    """The values that a task sees."""
    values = values_in(update, (instance.block,))
    if instance.as_of < 0:
        return values
    data = update.run.data_at(instance.as_of)
    return lambda path: inside(data, path[1:]) if path[0] == "params" else values(path)


def values_in(update: RunUpdate, blocks: Sequence[str]) -> Values:
    """The values visible from inside these blocks; a name unknown in one is looked up in the next."""
    lookups = [_values_at(update, block) for block in blocks]

    def value(path: Path) -> object:
        return next((entry for lookup in lookups if (entry := lookup(path)) is not None), None)

    return value


def _values_at(update: RunUpdate, at: str) -> Values:
    def value(path: Path) -> object:
        head, rest = path[0], path[1:]
        if head == "params":
            return inside(update.run.params, rest)
        if head == "tasks" and rest:
            instance = _visible(update, at, rest[0])
            return None if instance is None else task_value(update, instance, rest[1:])
        if head == "previous" and rest:
            loop = _loop(update, at)
            return None if loop is None else inside(loop.previous, rest)
        if head == "iteration":
            loop = _loop(update, at)
            return None if loop is None else loop.iteration
        return update.run.run if path == ("run",) else None

    return value


def _visible(update: RunUpdate, block: str, name: str) -> TaskInstance | None:
    while True:
        instance = update.instances.get(f"{block}/{name}" if block else name)
        if instance is not None or not block:
            return instance
        outer = container_of(block)
        block = outer.rpartition("/")[0]


def _loop(update: RunUpdate, block: str) -> TaskInstance | None:
    while block:
        outer = update.instances.get(container_of(block))
        if outer is None:
            return None
        if isinstance(update.task(outer).pattern, LoopPattern):
            return outer
        block = outer.block
    return None


def task_value(update: RunUpdate, instance: TaskInstance, path: Path) -> object:
    """The results of a task: ``state``, ``result``, ``exit_code``, ``outputs``, ``count``, ``well``, ``bad``."""
    if not path:
        return None
    head, rest = path[0], path[1:]
    match head:
        case "state":
            return instance.state.value
        case "exit_code" | "count" | "well" | "bad":
            return getattr(instance, head)
        case "result":
            return inside(instance.result, rest)
        case "outputs" if rest:
            return inside(_output(update, instance, rest[0]), rest[1:])
        case _:
            return None


def _output(update: RunUpdate, instance: TaskInstance, name: str) -> object:
    task = update.task(instance)
    several = isinstance(task.pattern, SubflowPattern | WorkletPattern | JobPattern) and bool(task.scatter)
    if isinstance(task.pattern, JobPattern):
        if instance.round == 0 or name not in task.pattern.outputs:
            return None
    elif not several:
        return instance.outputs.get(name)
    # The files themselves are found when the jobs are made, from the committed manifests of the round.
    fields: dict[str, object] = {"run": update.run.run, "work": instance.work, "output": name}
    if not several:
        return {"$output": fields}
    earlier = {"earlier": list(instance.earlier)} if instance.kept else {}
    return {"$outputs": fields | {"count": instance.count, "well": instance.well} | earlier}


def bound(
    update: RunUpdate, instance: TaskInstance, wants: Sequence[Path], *, params: bool = True
) -> Mapping[str, object]:
    """The value of each reference, by its text."""
    value = values_for(update, instance)
    scope = {".".join(path): value(path) for path in wants if params or path[0] != "params"}
    producer = update.producer(instance)
    over = scattered_over(update.task(instance)) if producer is not None else None
    if producer is not None and over is not None and over in wants:
        # Each job uses the output of the element with its own number, and no other.
        reference: dict[str, object] = {"run": update.run.run, "work": producer.work, "output": over[3]}
        scope[".".join(over)] = {
            "$elements": reference | ({"earlier": list(producer.earlier)} if producer.kept else {})
        }
    return scope


def filled(value: object, values: Values) -> object:
    """A JSON value with the references in its texts filled in."""
    if isinstance(value, str):
        return fill(value, values)
    if isinstance(value, Mapping):
        return {key: filled(entry, values) for key, entry in value.items()}
    if isinstance(value, Sequence):
        return [filled(entry, values) for entry in value]
    return value


def filled_map(value: Mapping[str, object], values: Values) -> Mapping[str, object]:
    return {key: filled(entry, values) for key, entry in value.items()}


def size_of(value: object) -> int:
    """Bytes of a value as JSON."""
    return len(json.dumps(value, separators=(",", ":")))


def data_refusal(run: FlowRun, changes: Mapping[str, object]) -> str:
    """Why a run's data cannot be changed in this way; empty: it can."""
    if run.plan.grown:
        return "the parameters of a running Python flow cannot be changed"
    unknown = sorted(changes.keys() - run.params.keys())
    if unknown or not changes:
        return f"the run has no parameter {', '.join(unknown)}" if unknown else "nothing would change"
    if size_of({**run.params, **changes}) > MAX_DATA:
        return f"the parameters of the run would be larger than {MAX_DATA} bytes"
    return ""


def set_data(update: RunUpdate, changes: Mapping[str, object]) -> None:
    """Change a run's data; the change has passed `data_refusal`."""
    run = update.run
    former = [*run.former, {name: run.params[name] for name in changes}]
    dropped = run.dropped
    while len(former) > MAX_FORMER or size_of(former) > MAX_DATA:
        del former[0]
        dropped += 1
    update.set(params={**run.params, **changes}, former=tuple(former), dropped=dropped)
