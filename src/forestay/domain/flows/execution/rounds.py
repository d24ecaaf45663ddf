"""The work of a round: how many elements it has, how it is handed out, cancelled, and undone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from forestay.domain.flows.commands import (
    CancelWork,
    GrowShard,
    ListFiles,
    StartCase,
    StartShard,
    StopWatch,
    SubmitJobs,
    UndoCase,
    WatchFiles,
    WorkOrder,
)
from forestay.domain.flows.definition.expression import as_text, fill
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
from forestay.domain.flows.execution.flow_run import Item, ItemState, RunEnding
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
"""Outputs of tasks that a scatter may run over."""
MAX_CASES = DIRECT_JOBS
"""A sub-flow is scattered over at most so many elements: each is a case of its own."""


class Impossible(ValueError):
    """The round cannot be begun; the message says why."""


def is_watch(task: Task) -> bool:
    return any(isinstance(dimension.source, WatchOf) for dimension in task.scatter)


def listing_names(task: Task) -> list[str]:
    """The dimensions whose members are listed when the item begins."""
    return [one.name for one in task.scatter if isinstance(one.source, FilesOf | LinesOf | WatchOf)]


def ask_for_listings(update: RunUpdate, item: Item) -> bool:
    """Ask for the listings that the item is scattered over; whether there are any."""
    values = values_for(update, item)
    asked = False
    for dimension in update.task(item).scatter:
        match dimension.source:
            case FilesOf(pattern):
                update.say(ListFiles(item.work, item.id, dimension.name, as_text(fill(pattern, values))))
            case LinesOf(path):
                update.say(ListFiles(item.work, item.id, dimension.name, as_text(fill(path, values)), lines=True))
            case WatchOf(pattern, until_file, until_count, until_quiet):
                files = as_text(fill(pattern, values)), as_text(fill(until_file, values))
                update.say(WatchFiles(item.work, item.id, dimension.name, *files, until_count, until_quiet))
            case _:
                continue
        asked = True
    return asked


def sizes_of(update: RunUpdate, item: Item) -> tuple[int, ...]:
    """How many values each dimension has."""
    values = values_for(update, item)
    sizes: list[int] = []
    for dimension in update.task(item).scatter:
        match dimension.source:
            case ListOf(str() as text):
                found = fill(text, values)
                outputs = found.get("$outputs") if isinstance(found, Mapping) else None
                if isinstance(outputs, Mapping):
                    if outputs["well"] > MAX_OUTPUTS:
                        raise Impossible(f"scatter {dimension.name}: {outputs['well']} outputs; at most {MAX_OUTPUTS}")
                    sizes.append(outputs["well"])
                    continue
                if isinstance(found, str) or not isinstance(found, Sequence):
                    raise Impossible(f"scatter {dimension.name}: {text} is not a list")
                sizes.append(len(found))
            case ListOf(written):
                sizes.append(len(written))
            case RangeOf(first, end, step):
                start, stop = (fill(one, values) if isinstance(one, str) else one for one in (first, end))
                if type(start) is not int or type(stop) is not int:
                    raise Impossible(f"scatter {dimension.name}: a range needs integers, not {start!r} and {stop!r}")
                sizes.append(len(range(start, stop, step)))
            case _:
                sizes.append(item.listings[dimension.name][1])
    return tuple(sizes)


def order_for(update: RunUpdate, item: Item) -> WorkOrder:
    """What the jobs of the item's present round have in common."""
    return WorkOrder(
        work=item.work,
        item=item.id,
        task=item.task,
        sizes=item.sizes,
        listings={name: listing for name, (listing, _) in item.listings.items()},
        scope=bound(update, item, update.place(item).wants),
        changes=item.changes,
        checked=item.checked,
        spelt=_spelt(update, item.task),
    )


def _spelt(update: RunUpdate, task: str) -> str:
    return json.dumps(task_as_plain(update.plan.tasks[task].task)) if update.plan.grown else ""


def open_round(update: RunUpdate, item: Item) -> None:
    """Hand out the work of a round whose elements are known. Raises `Impossible`."""
    task = update.task(item)
    sizes = item.sizes if item.kept else sizes_of(update, item)
    count = 1
    for size in sizes:
        count *= size
    if count > MAX_ELEMENTS:
        raise Impossible(f"{count} elements; at most {MAX_ELEMENTS} are possible")
    item = update.put(item, state=ItemState.RUNNING, sizes=sizes)
    case_of = _case_of(update, item)
    pieces = rest(item.layout, item.done) if item.kept else (Piece(0, count),)
    if case_of:
        _open_cases(update, item, case_of, count, skip_of(pieces[0]) if item.kept else 0)
        return
    wait = not isinstance(task.pattern, JobPattern) or task.pattern.wait
    grows = is_watch(task) and not item.kept
    fan = _open(update, order_for(update, item), pieces, update.holders(item), wait=wait, grows=grows)
    update.put(item, fan=fan)


def _case_of(update: RunUpdate, item: Item) -> str:
    """The version of the flow that the item runs as a case; empty for jobs."""
    flow = item.changes.get("flow")
    if isinstance(flow, str) and flow:
        return flow
    pattern = update.task(item).pattern
    if isinstance(pattern, SubflowPattern):
        return update.plan.versions.get(pattern.flow, pattern.flow)
    return item.bound


def _open_cases(update: RunUpdate, item: Item, flow: str, count: int, skip: int) -> None:
    if count > MAX_CASES:
        raise Impossible(f"{count} elements; a sub-flow is scattered over at most {MAX_CASES}")
    pattern = update.task(item).pattern
    params = dict(pattern.params) if isinstance(pattern, SubflowPattern | WorkletPattern) else {}
    # Another flow that was put in its place stays here: who chose it knows this domain.
    own_flow = isinstance(pattern, SubflowPattern) and "flow" not in item.changes
    domain = pattern.domain if isinstance(pattern, SubflowPattern) and own_flow else ""
    own, _ = start_own(first=0, count=count, skip=skip)
    update.put(item, fan=FanOut(own=own))
    order = order_for(update, item)
    values = values_for(update, item)
    changed = item.changes.get("params")
    for index in indexes(every(count) & ~skip):
        # References to the element's own variables stay: whoever starts the case fills them in, as for jobs.
        given = dict(filled_map(params, values)) if not item.sizes else params
        given |= item.bound_params
        if isinstance(changed, dict):
            given |= changed
        update.say(StartCase(order, index, flow, given, update.holders(item), domain))
        order = replace(order, checked=True)  # a round is looked at once, not for each of its elements


def _open(
    update: RunUpdate,
    order: WorkOrder,
    pieces: Sequence[Piece],
    holders: tuple[str, ...],
    *,
    wait: bool,
    grows: bool = False,
) -> FanOut:
    first = pieces[0]
    if len(pieces) == 1 and first.first == 0 and first.size <= DIRECT_JOBS:
        own, commands = start_own(
            first=0, count=first.size, skip=skip_of(first), open_=grows, wait=wait, holders=holders
        )
        _submit(update, order, commands, wait=wait)
        return FanOut(own=own, open=grows)
    shards: list[ShardTally] = []
    for piece in pieces:
        skip = skip_of(piece)
        for tally in split(piece.first, piece.size):
            part = (skip >> (tally.first - piece.first)) & every(tally.size)
            update.say(StartShard(order, len(shards), tally.first, tally.size, part, holders, wait))
            shards.append(tally)
    return FanOut(shards=tuple(shards))


def _submit(update: RunUpdate, order: WorkOrder, commands: Sequence[ShardCommand], *, wait: bool) -> None:
    for command in commands:
        if isinstance(command, SubmitBatch):
            update.say(SubmitJobs(order, command.first, command.count, command.skip, command.holders, wait))


def grow(update: RunUpdate, item: Item, *, count: int, ended: bool) -> None:
    """A watched listing has so many members by now."""
    fan = item.fan
    if fan is None or not fan.open:
        return
    count = min(count, MAX_ELEMENTS)
    ended = ended or count == MAX_ELEMENTS
    count = max(count, fan.count)
    item = update.put(item, sizes=(count,))
    order = order_for(update, item)
    holders = update.holders(item)
    own = fan.own
    if own is not None and own.open:
        mine = min(count, DIRECT_JOBS)
        own, commands = advance_shard(own, OwnGrew(mine, open=not ended and mine < DIRECT_JOBS))
        _submit(update, order, commands, wait=own.wait)
    wait = own.wait if own is not None else True
    shards = list(fan.shards)
    # Growth of the last shard, then new ones; a shard is open until it is full or nothing more comes.
    if shards and shards[-1].size < SHARD_JOBS:
        last = shards[-1]
        full = min(SHARD_JOBS, count - last.first)
        if full > last.size or ended:
            shards[-1] = last._replace(size=full)
            update.say(GrowShard(item.work, len(shards) - 1, full, open=full < SHARD_JOBS and not ended))
    known = (own.count if own else 0) + sum(shard.size for shard in shards)
    for tally in split(known, count - known):
        more = tally.size < SHARD_JOBS and not ended
        update.say(StartShard(order, len(shards), tally.first, tally.size, 0, holders, wait, more))
        shards.append(tally)
    update.put(item, fan=replace(fan, own=own, shards=tuple(shards), open=not ended))


def close_watch(update: RunUpdate, item: Item) -> None:
    """No more elements are wanted."""
    fan = item.fan
    if fan is None or not fan.open:
        return
    update.say(StopWatch(item.work))
    grow(update, item, count=fan.count, ended=True)


def cancel_round(update: RunUpdate, item: Item) -> None:
    """Cancel what has not ended of a round."""
    close_watch(update, item)
    item = update.items[item.id]
    fan = item.fan
    if fan is None or fan.finished:
        return
    remove = update.run.ending is RunEnding.REMOVE
    update.say(CancelWork(item.work, fan.own_count, len(fan.shards), remove))
    if fan.own is not None:
        own, _ = advance_shard(fan.own, ShardCancelled())
        update.put(item, fan=replace(fan, own=own))


def push_compensation(update: RunUpdate, item: Item) -> None:
    """Remember how to undo the elements of a round that ended well."""
    if item.fan is None:
        return
    cases = update.task(item).compensation is None
    pieces = done_pieces(item.fan)
    if cases:
        # Without a compensation of its own, what a sub-flow has done is undone by those inside it.
        own = item.fan.own
        undoable = item.undoable & own.well if own is not None else 0
        pieces = (Piece(0, own.count, nearly_all(undoable, own.count)),) if own is not None and undoable else ()
    if not pieces:
        return
    number = update.run.pushed + 1
    update.set(pushed=number)
    update.stack.append(
        CompensationEntry(
            number=number,
            item=item.id,
            task=item.task,
            work=item.work,
            pieces=pieces,
            sizes=item.sizes,
            cases=cases,
            listings={name: listing for name, (listing, _) in item.listings.items()},
            scope=bound(update, item, update.place(item).undo_wants, params=False),
        )
    )


def undo_size(update: RunUpdate, item: Item) -> int:
    """Bytes that the item's compensation would remember of other tasks."""
    return size_of(bound(update, item, update.place(item).undo_wants, params=False))


def run_entry(update: RunUpdate, entry: CompensationEntry) -> CompensationEntry:
    """Begin the next try of a compensation."""
    entry = replace(entry, tries=entry.tries + 1)
    if entry.cases:
        (piece,) = entry.pieces
        own, _ = start_own(first=0, count=piece.size, skip=skip_of(piece))
        for index in indexes(bits_of(piece)):
            update.say(UndoCase(entry.undo, entry.work, index))
        return replace(entry, fan=FanOut(own=own))
    wants = update.plan.tasks[entry.task].undo_wants
    params = {".".join(path): _param(update, path) for path in wants if path[0] == "params"}
    order = WorkOrder(
        work=entry.undo,
        item=entry.item,
        task=entry.task,
        undo=True,
        sizes=entry.sizes,
        listings=entry.listings,
        scope={**entry.scope, **params},
        spelt=_spelt(update, entry.task),
    )
    return replace(entry, fan=_open(update, order, entry.pieces, (), wait=True))


def _param(update: RunUpdate, path: tuple[str, ...]) -> object:
    value: object = fill("${" + ".".join(path) + "}", values_for(update, Item("", "")))
    return value
