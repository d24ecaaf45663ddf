"""The work of a round: the number of its elements, and how they are started, cancelled and compensated."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from forestay.domain.flows.commands import (
    CancelWork,
    GrowShard,
    ListFiles,
    StartRun,
    StartShard,
    StopWatch,
    SubmitJobs,
    UndoRun,
    WatchFiles,
    WorkOrder,
)
from forestay.domain.flows.definition.expression import Values, as_text, fill
from forestay.domain.flows.definition.flow import Task
from forestay.domain.flows.definition.flow_pattern import (
    FilesOf,
    JobPattern,
    LinesOf,
    ListOf,
    RangeOf,
    SubflowPattern,
    WatchOf,
    WorkletPattern,
)
from forestay.domain.flows.definition.flow_version import task_as_plain
from forestay.domain.flows.execution.compensation import CompensationEntry
from forestay.domain.flows.execution.flow_run import InstanceState, RunEnding, TaskInstance
from forestay.domain.flows.execution.library import is_of_library, library_values, push_from_library
from forestay.domain.flows.execution.run_update import RunUpdate
from forestay.domain.flows.execution.scope import bound, filled_map, size_of, values_for
from forestay.domain.flows.scatter.elements import every, indexes, nearly_all
from forestay.domain.flows.scatter.fan_out import (
    DIRECT_JOBS,
    MAX_ELEMENTS,
    FanOut,
    Piece,
    ShardTally,
    bits_of,
    done_pieces,
    rest,
    skip_of,
    split,
)
from forestay.domain.flows.scatter.shard_run import SHARD_JOBS, ShardCancelled, ShardCommand, SubmitBatch, advance_shard
from forestay.domain.flows.scatter.shard_run import ShardGrew as OwnGrew
from forestay.domain.flows.scatter.shard_run import start_shard as start_own

MAX_OUTPUTS = 10_000
"""The most outputs of tasks that a scatter may run over, if it waits for all of them."""
MAX_STREAMED = 100_000
"""The most elements that may be consumed one by one: a run keeps at most 25 kB on which of them succeeded."""
MAX_RUNS = DIRECT_JOBS
"""The most elements of a scattered sub-flow: each is a run of its own."""


class Impossible(ValueError):
    """The round cannot start; the message says why."""


def is_watch(task: Task) -> bool:
    return any(isinstance(dimension.source, WatchOf) for dimension in task.scatter)


def listing_names(task: Task) -> list[str]:
    """The dimensions whose members are listed when the task begins."""
    return [dimension.name for dimension in task.scatter if isinstance(dimension.source, FilesOf | LinesOf | WatchOf)]


def ask_for_listings(update: RunUpdate, instance: TaskInstance) -> bool:
    """Request the listings that the task is scattered over; returns whether there are any."""
    values = values_for(update, instance)
    asked = False
    for dimension in update.task(instance).scatter:
        match dimension.source:
            case FilesOf(pattern):
                update.say(ListFiles(instance.work, instance.id, dimension.name, as_text(fill(pattern, values))))
            case LinesOf(path):
                update.say(
                    ListFiles(instance.work, instance.id, dimension.name, as_text(fill(path, values)), lines=True)
                )
            case WatchOf(pattern, until_file, until_count, until_quiet):
                files = as_text(fill(pattern, values)), as_text(fill(until_file, values))
                update.say(WatchFiles(instance.work, instance.id, dimension.name, *files, until_count, until_quiet))
            case _:
                continue
        asked = True
    return asked


def sizes_of(update: RunUpdate, instance: TaskInstance) -> tuple[int, ...]:
    """How many values each dimension has."""
    listed = {name: count for name, (_, count) in instance.listings.items()}
    return scatter_sizes(update.task(instance), values_for(update, instance), listed)


def scatter_sizes(task: Task, values: Values, listed: Mapping[str, int]) -> tuple[int, ...]:
    """How many values each dimension of a scatter has. ``listed``: the lengths of those that are listings. Raises `Impossible`."""
    sizes: list[int] = []
    for dimension in task.scatter:
        match dimension.source:
            case ListOf(str() as text):
                found_fill = fill(text, values)
                outputs = found_fill.get("$outputs") if isinstance(found_fill, Mapping) else None
                if isinstance(outputs, Mapping):
                    if outputs["well"] > MAX_OUTPUTS:
                        raise Impossible(f"scatter {dimension.name}: {outputs['well']} outputs; at most {MAX_OUTPUTS}")
                    sizes.append(outputs["well"])
                    continue
                if isinstance(found_fill, str) or not isinstance(found_fill, Sequence):
                    raise Impossible(f"scatter {dimension.name}: {text} is not a list")
                sizes.append(len(found_fill))
            case ListOf(written):
                sizes.append(len(written))
            case RangeOf(first, end, step):
                start, stop = (
                    fill(other_bound, values) if isinstance(other_bound, str) else other_bound
                    for other_bound in (first, end)
                )
                if type(start) is not int or type(stop) is not int:
                    raise Impossible(f"scatter {dimension.name}: a range needs integers, not {start!r} and {stop!r}")
                # As `len(range(...))`, which raises an error for lengths beyond a machine word.
                sizes.append(max(0, -((start - stop) // step)))
            case _:
                sizes.append(listed[dimension.name])
    return tuple(sizes)


def order_for(update: RunUpdate, instance: TaskInstance) -> WorkOrder:
    """What the jobs of the task's present round share."""
    return WorkOrder(
        work=instance.work,
        instance=instance.id,
        task=instance.task,
        sizes=instance.sizes,
        listings={name: listing for name, (listing, _) in instance.listings.items()},
        scope=bound(update, instance, update.place(instance).wants),
        changes=instance.changes,
        checked=instance.checked,
        spelt=_spelt(update, instance.task),
        prompt=update.run.streams and update.place(instance).followed,
    )


def _spelt(update: RunUpdate, task: str) -> str:
    return json.dumps(task_as_plain(update.plan.tasks[task].task)) if update.plan.grown else ""


def open_round(update: RunUpdate, instance: TaskInstance) -> None:
    """Start the work of a round whose elements are known. Raises `Impossible`."""
    task = update.task(instance)
    producer = update.producer(instance)
    if instance.kept:
        sizes = instance.sizes
    elif producer is not None and producer.sizes:
        sizes = (prod(producer.sizes),)
        if sizes[0] > MAX_STREAMED:
            raise Impossible(f"scatter {task.scatter[0].name}: {sizes[0]} outputs; at most {MAX_STREAMED}")
    else:
        sizes = sizes_of(update, instance)
    count = 1
    for size in sizes:
        count *= size
    if count > MAX_ELEMENTS:
        raise Impossible(f"{count} elements; at most {MAX_ELEMENTS} are possible")
    instance = update.put(instance, state=InstanceState.RUNNING, sizes=sizes)
    run_of = _run_of(update, instance)
    pieces = rest(instance.layout, instance.done) if instance.kept else (Piece(0, count),)
    if run_of:
        _open_runs(update, instance, run_of, count, skip_of(pieces[0]) if instance.kept else 0)
        return
    wait = not isinstance(task.pattern, JobPattern) or task.pattern.wait
    grows = is_watch(task) and not instance.kept
    order, holders, streams = order_for(update, instance), update.holders(instance), producer is not None
    fan_out = _open(update, order, pieces, holders, wait=wait, grows=grows, streams=streams)
    update.put(instance, fan_out=fan_out)


def _run_of(update: RunUpdate, instance: TaskInstance) -> str:
    """The version of the flow that the task runs as a run; empty for jobs."""
    flow = instance.changes.get("flow")
    if isinstance(flow, str) and flow:
        return flow
    pattern = update.task(instance).pattern
    if isinstance(pattern, SubflowPattern):
        return update.plan.versions.get(pattern.flow, pattern.flow)
    return instance.bound


def _open_runs(update: RunUpdate, instance: TaskInstance, flow: str, count: int, skip: int) -> None:
    if count > MAX_RUNS:
        raise Impossible(f"{count} elements; a sub-flow is scattered over at most {MAX_RUNS}")
    pattern = update.task(instance).pattern
    params = dict(pattern.params) if isinstance(pattern, SubflowPattern | WorkletPattern) else {}
    # A flow that replaced it runs here: whoever chose it knows this domain.
    own_flow = isinstance(pattern, SubflowPattern) and "flow" not in instance.changes
    domain = pattern.domain if isinstance(pattern, SubflowPattern) and own_flow else ""
    own, _ = start_own(first=0, count=count, skip=skip)
    update.put(instance, fan_out=FanOut(own=own))
    order = order_for(update, instance)
    values = values_for(update, instance)
    changed = instance.changes.get("params")
    for index in indexes(every(count) & ~skip):
        # References to the element's own variables stay: they are filled in when the run is started, as for jobs.
        bound_params = dict(filled_map(params, values)) if not instance.sizes else params
        bound_params |= instance.bound_params
        if isinstance(changed, dict):
            bound_params |= changed
        update.say(StartRun(order, index, flow, bound_params, update.holders(instance), domain))
        order = replace(order, checked=True)  # once for a round, not for each of its elements


def _open(
    update: RunUpdate,
    order: WorkOrder,
    pieces: Sequence[Piece],
    holders: tuple[str, ...],
    *,
    wait: bool,
    grows: bool = False,
    streams: bool = False,
) -> FanOut:
    first = pieces[0]
    if len(pieces) == 1 and first.first == 0 and first.size <= DIRECT_JOBS:
        own, commands = start_own(
            first=0,
            count=first.size,
            skip=skip_of(first),
            open_=grows,
            wait=wait,
            holders=holders,
            streams=streams,
        )
        _submit(update, order, commands, wait=wait)
        return FanOut(own=own, open=grows)
    shards: list[ShardTally] = []
    for piece in pieces:
        skip = skip_of(piece)
        for tally in split(piece.first, piece.size):
            part = (skip >> (tally.first - piece.first)) & every(tally.size)
            update.say(StartShard(order, len(shards), tally.first, tally.size, part, holders, wait, streams=streams))
            shards.append(tally)
    return FanOut(shards=tuple(shards), feeds=("",) * len(shards) if streams else ())


def _submit(update: RunUpdate, order: WorkOrder, commands: Sequence[ShardCommand], *, wait: bool) -> None:
    for command in commands:
        if isinstance(command, SubmitBatch):
            update.say(SubmitJobs(order, command.first, command.count, command.skip, command.holders, wait))


def grow(update: RunUpdate, instance: TaskInstance, *, count: int, ended: bool) -> None:
    """A watched listing has grown to this many members."""
    fan_out = instance.fan_out
    if fan_out is None or not fan_out.open:
        return
    count = min(count, MAX_ELEMENTS)
    ended = ended or count == MAX_ELEMENTS
    count = max(count, fan_out.count)
    instance = update.put(instance, sizes=(count,))
    order = order_for(update, instance)
    holders = update.holders(instance)
    own = fan_out.own
    if own is not None and own.open:
        mine = min(count, DIRECT_JOBS)
        own, commands = advance_shard(own, OwnGrew(mine, open=not ended and mine < DIRECT_JOBS))
        _submit(update, order, commands, wait=own.wait)
    wait = own.wait if own is not None else True
    shards = list(fan_out.shards)
    # The last shard grows, then new ones start; a shard is open until it is full or nothing more comes.
    if shards and shards[-1].size < SHARD_JOBS:
        last = shards[-1]
        full = min(SHARD_JOBS, count - last.first)
        if full > last.size or ended:
            shards[-1] = last._replace(size=full)
            update.say(GrowShard(instance.work, len(shards) - 1, full, open=full < SHARD_JOBS and not ended))
    known = (own.count if own else 0) + sum(shard.size for shard in shards)
    for tally in split(known, count - known):
        more = tally.size < SHARD_JOBS and not ended
        update.say(StartShard(order, len(shards), tally.first, tally.size, 0, holders, wait, more))
        shards.append(tally)
    update.put(instance, fan_out=replace(fan_out, own=own, shards=tuple(shards), open=not ended))


def close_watch(update: RunUpdate, instance: TaskInstance) -> None:
    """No more elements are needed."""
    fan_out = instance.fan_out
    if fan_out is None or not fan_out.open:
        return
    update.say(StopWatch(instance.work))
    grow(update, instance, count=fan_out.count, ended=True)


def cancel_round(update: RunUpdate, instance: TaskInstance) -> None:
    """Cancel the elements of a round that have not ended."""
    close_watch(update, instance)
    instance = update.instances[instance.id]
    fan_out = instance.fan_out
    if fan_out is None or fan_out.finished:
        return
    remove = update.run.ending is RunEnding.REMOVE
    update.say(CancelWork(instance.work, fan_out.own_count, len(fan_out.shards), remove))
    if fan_out.own is not None:
        own, _ = advance_shard(fan_out.own, ShardCancelled())
        update.put(instance, fan_out=replace(fan_out, own=own))


def push_compensation(update: RunUpdate, instance: TaskInstance) -> None:
    """Push the compensation of the succeeded elements of a round."""
    if instance.fan_out is None:
        return
    runs = update.task(instance).compensation is None
    pieces = done_pieces(instance.fan_out)
    if runs and is_of_library(update, instance) and not _run_of(update, instance):
        if pieces:
            push_from_library(update, instance, pieces)
        return
    if runs:
        # Without a compensation of its own, a sub-flow is undone by those inside it.
        own = instance.fan_out.own
        undoable = instance.undoable & own.well if own is not None else 0
        pieces = (Piece(0, own.count, nearly_all(undoable, own.count)),) if own is not None and undoable else ()
    if not pieces:
        return
    number = update.run.pushed + 1
    update.set(pushed=number)
    update.stack.append(
        CompensationEntry(
            number=number,
            instance=instance.id,
            task=instance.task,
            work=instance.work,
            pieces=pieces,
            sizes=instance.sizes,
            runs=runs,
            listings={name: listing for name, (listing, _) in instance.listings.items()},
            scope=bound(update, instance, update.place(instance).undo_wants, params=False),
        )
    )


def undo_size(update: RunUpdate, instance: TaskInstance) -> int:
    """Bytes of other tasks' values that the task's compensation would keep."""
    return size_of(bound(update, instance, update.place(instance).undo_wants, params=False))


def run_entry(update: RunUpdate, entry: CompensationEntry) -> CompensationEntry:
    """Begin the next try of a compensation."""
    entry = replace(entry, tries=entry.tries + 1)
    if entry.runs:
        (piece,) = entry.pieces
        own, _ = start_own(first=0, count=piece.size, skip=skip_of(piece))
        for index in indexes(bits_of(piece)):
            update.say(UndoRun(entry.undo, entry.work, index))
        return replace(entry, fan_out=FanOut(own=own))
    place = update.plan.tasks[entry.task]
    wants = place.source_wants if entry.action else place.undo_wants
    params = {".".join(path): _param(update, path) for path in wants if path[0] == "params"}
    if entry.action:
        params |= library_values(update, entry)
    order = WorkOrder(
        work=entry.undo,
        instance=entry.instance,
        task=entry.task,
        undo=True,
        sizes=entry.sizes,
        listings=entry.listings,
        scope={**entry.scope, **params},
        spelt=_spelt(update, entry.task),
        action=entry.action,
        version=entry.version,
    )
    return replace(entry, fan_out=_open(update, order, entry.pieces, (), wait=True))


def _param(update: RunUpdate, path: tuple[str, ...]) -> object:
    value: object = fill("${" + ".".join(path) + "}", values_for(update, TaskInstance("", "")))
    return value
