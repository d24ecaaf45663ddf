"""What references stand for in a case as it is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from forestay.domain.flows.definition.expression import Path, Values, fill, inside
from forestay.domain.flows.definition.flow_pattern import JobPattern, LoopPattern, SubflowPattern, WorkletPattern
from forestay.domain.flows.execution.flow_run import Item
from forestay.domain.flows.execution.run_update import RunUpdate, container_of


def values_for(update: RunUpdate, item: Item) -> Values:
    """The values that an item sees."""
    return values_in(update, (item.block,))


def values_in(update: RunUpdate, blocks: Sequence[str]) -> Values:
    """The values that are seen from inside these blocks; what one does not know the next may."""
    lookups = [_values_at(update, block) for block in blocks]

    def value(path: Path) -> object:
        return next((found for lookup in lookups if (found := lookup(path)) is not None), None)

    return value


def _values_at(update: RunUpdate, at: str) -> Values:
    def value(path: Path) -> object:
        head, rest = path[0], path[1:]
        if head == "params":
            return inside(update.run.params, rest)
        if head == "tasks" and rest:
            found = _visible(update, at, rest[0])
            return None if found is None else task_value(update, found, rest[1:])
        if head == "previous" and rest:
            loop = _loop(update, at)
            return None if loop is None else inside(loop.previous, rest)
        if head == "iteration":
            loop = _loop(update, at)
            return None if loop is None else loop.iteration
        return update.run.case if path == ("case",) else None

    return value


def _visible(update: RunUpdate, block: str, name: str) -> Item | None:
    while True:
        found = update.items.get(f"{block}/{name}" if block else name)
        if found is not None or not block:
            return found
        outer = container_of(block)
        block = outer.rpartition("/")[0]


def _loop(update: RunUpdate, block: str) -> Item | None:
    while block:
        outer = update.items.get(container_of(block))
        if outer is None:
            return None
        if isinstance(update.task(outer).pattern, LoopPattern):
            return outer
        block = outer.block
    return None


def task_value(update: RunUpdate, item: Item, path: Path) -> object:
    """What an item came to: ``state``, ``result``, ``exit_code``, ``outputs``, ``count``, ``well``, ``bad``."""
    if not path:
        return None
    head, rest = path[0], path[1:]
    match head:
        case "state":
            return item.state.value
        case "exit_code" | "count" | "well" | "bad":
            return getattr(item, head)
        case "result":
            return inside(item.result, rest)
        case "outputs" if rest:
            return inside(_output(update, item, rest[0]), rest[1:])
        case _:
            return None


def _output(update: RunUpdate, item: Item, name: str) -> object:
    task = update.task(item)
    several = isinstance(task.pattern, SubflowPattern | WorkletPattern | JobPattern) and bool(task.scatter)
    if isinstance(task.pattern, JobPattern):
        if item.round == 0 or name not in task.pattern.outputs:
            return None
    elif not several:
        return item.outputs.get(name)
    # The files themselves are found by whoever makes the jobs: from the committed manifests of the round.
    found: dict[str, object] = {"case": update.run.case, "work": item.work, "output": name}
    if not several:
        return {"$output": found}
    earlier = {"earlier": list(item.earlier)} if item.kept else {}
    return {"$outputs": found | {"count": item.count, "well": item.well} | earlier}


def bound(update: RunUpdate, item: Item, wants: Sequence[Path], *, params: bool = True) -> Mapping[str, object]:
    """The value of each reference, by its text."""
    value = values_for(update, item)
    return {".".join(path): value(path) for path in wants if params or path[0] != "params"}


def filled(value: object, values: Values) -> object:
    """A JSON value with the references in its texts filled in."""
    if isinstance(value, str):
        return fill(value, values)
    if isinstance(value, Mapping):
        return {key: filled(one, values) for key, one in value.items()}
    if isinstance(value, Sequence):
        return [filled(one, values) for one in value]
    return value


def filled_map(value: Mapping[str, object], values: Values) -> Mapping[str, object]:
    return {key: filled(one, values) for key, one in value.items()}


def size_of(value: object) -> int:
    """Bytes of a value as JSON."""
    return len(json.dumps(value, separators=(",", ":")))
