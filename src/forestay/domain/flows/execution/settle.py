"""What follows from the facts: items begin and end, loops go round, the case stops, is compensated, finishes.

Events only record facts. `settle` then does whatever the facts allow until nothing is left to do. That is why the order in which events arrive
does not matter where the facts are the same.
"""

from __future__ import annotations

from math import prod

from forestay.domain.flows.commands import BindWorklet, StartTimer
from forestay.domain.flows.definition.expression import holds
from forestay.domain.flows.definition.flow import OTHERWISE, WhenFailed, bodies
from forestay.domain.flows.definition.flow_pattern import (
    AtMaximum,
    BranchSelection,
    ChoicePattern,
    JobPattern,
    LoopPattern,
    MergePattern,
    SubflowPattern,
    WorkletPattern,
)
from forestay.domain.flows.execution.case_end import step_case
from forestay.domain.flows.execution.endings import (
    TOO_LARGE,
    apply_verdict,
    complete,
    end,
    fail_item,
    give_verdict,
    result_limit,
)
from forestay.domain.flows.execution.flow_run import Item, ItemState, ItemVerdict, RunPhase
from forestay.domain.flows.execution.rounds import (
    Impossible,
    ask_for_listings,
    listing_names,
    open_round,
    push_compensation,
    undo_size,
)
from forestay.domain.flows.execution.run_update import RunUpdate
from forestay.domain.flows.execution.scope import filled_map, size_of, task_value, values_for, values_in
from forestay.domain.flows.scatter.fan_out import bits_of, done_pieces, joined, layout_of

MAX_DONE = 200_000
"""Bytes that may be kept of a scatter of which elements failed, so that only those need be done again."""


def settle(update: RunUpdate) -> None:
    """Do what can be done."""
    while update.run.phase is not RunPhase.FINISHED:
        moved = False
        for name in list(update.items):
            item = update.items.get(name)
            if item is not None and not item.ended:
                moved = _step(update, item) or moved
        if not (step_case(update) or moved):
            return


def _step(update: RunUpdate, item: Item) -> bool:
    match item.state:
        case ItemState.WAITING:
            return _may_begin(update, item)
        case ItemState.LISTING | ItemState.BINDING if update.run.phase is not RunPhase.RUNNING:
            give_verdict(update, item, ItemVerdict.CANCELLED)
            return True
        case ItemState.LISTING if all(name in item.listings for name in listing_names(update.task(item))):
            _open(update, item)
            return True
        case ItemState.BINDING if item.bound:
            _open(update, item)
            return True
        case ItemState.RUNNING if item.fan is not None:
            if item.fan.finished and (item.verdict is not None or not update.held(item)):
                _end_round(update, item)
                return True
            return False
        case ItemState.RUNNING:
            return _step_container(update, item)
        case _:
            return False


def _may_begin(update: RunUpdate, item: Item) -> bool:
    if update.run.phase is not RunPhase.RUNNING:
        return False
    prefix = f"{item.block}/" if item.block else ""
    before = [update.items[prefix + name] for name in update.place(item).before]
    if not all(one.ended for one in before):
        return False
    if any(_bars(update, one) for one in before):
        update.put(item, state=ItemState.CANCELLED, reason="a task before it failed")
        return True
    if update.held(item):
        return False
    _begin(update, item)
    return True


def _bars(update: RunUpdate, item: Item) -> bool:
    """Whether what comes after an ended item can never begin."""
    if item.state is ItemState.CANCELLED:
        return True
    return item.state is ItemState.FAILED and not item.forced and update.task(item).when_failed is not WhenFailed.IGNORE


def _begin(update: RunUpdate, item: Item) -> None:
    task = update.task(item)
    if task.when and not holds(task.when, values_for(update, item)):
        update.put(item, state=ItemState.SKIPPED, reason="its condition is false")
        return
    item = update.put(
        item, state=ItemState.RUNNING, round=item.round + 1, timer=task.deadline is not None, reason="", forced=False
    )
    if task.deadline is not None:
        update.say(StartTimer(item.work, update.at + 1000 * task.deadline.seconds))
    if undo_size(update, item) > update.plan.undo_limit:
        fail_item(update, item, f"its compensation would need more than {update.plan.undo_limit} bytes")
        return
    match task.pattern:
        case JobPattern() | SubflowPattern():
            if not item.kept and ask_for_listings(update, item):
                update.put(item, state=ItemState.LISTING)
            else:
                _open(update, item)
        case WorkletPattern() if isinstance(item.changes.get("flow"), str):
            _open(update, item)  # someone has said which flow to run here
        case WorkletPattern(place, params):
            update.put(item, state=ItemState.BINDING)
            update.say(BindWorklet(item.work, item.id, place, filled_map(params, values_for(update, item))))
        case MergePattern(values):
            complete(update, item, filled_map(values, values_for(update, item)))
        case LoopPattern():
            _next_iteration(update, item)
        case ChoicePattern():
            _choose(update, item, task.pattern)


def _open(update: RunUpdate, item: Item) -> None:
    try:
        open_round(update, item)
    except Impossible as why:
        fail_item(update, update.items[item.id], str(why))


def _end_round(update: RunUpdate, item: Item) -> None:
    fan = item.fan
    assert fan is not None  # noqa: S101 - the caller has looked
    push_compensation(update, item)
    done = joined(item.done, done_pieces(fan))
    item = update.put(
        item,
        fan=None,
        well=sum(bits_of(piece).bit_count() for piece in done),
        bad=fan.bad,
        count=prod(item.sizes) if item.sizes else fan.count,
    )
    if item.sizes and fan.bad and size_of(done) <= MAX_DONE:
        item = update.put(item, done=done, layout=item.layout or layout_of(fan))
    else:
        item = update.put(item, done=(), layout=())
    if item.verdict is not None:
        apply_verdict(update, item, item.verdict)
    elif fan.bad > update.task(item).tolerate:
        fail_item(update, item, fan.why() or f"{fan.bad} of {fan.count} jobs failed")
    elif item.result == TOO_LARGE:
        update.put(item, result=None)
        fail_item(
            update,
            update.items[item.id],
            f"its result is larger than {result_limit(update, item)} bytes; put it into a file",
        )
    else:
        complete(update, item, item.outputs)


def _step_container(update: RunUpdate, item: Item) -> bool:
    inner = [one for block in item.blocks for one in update.block(block)]
    if not all(one.ended for one in inner):
        return False
    if item.verdict is not None:
        apply_verdict(update, item, item.verdict)
        return True
    if update.run.phase is not RunPhase.RUNNING or update.held(item):
        return False
    if any(_bars(update, one) for one in inner):
        # What failed inside has been dealt with there; the tasks after this one cannot begin.
        end(update, item, ItemState.CANCELLED, reason="a task inside it failed")
        return True
    pattern = update.task(item).pattern
    if isinstance(pattern, LoopPattern):
        _end_iteration(update, item, pattern)
    elif isinstance(pattern, ChoicePattern):
        complete(update, item, filled_map(pattern.outputs, values_in(update, item.blocks)))
    return True


def _next_iteration(update: RunUpdate, item: Item) -> None:
    pattern = update.task(item).pattern
    assert isinstance(pattern, LoopPattern)  # noqa: S101 - only loops come here
    inside = values_in(update, (f"{item.work}/{item.iteration}",))
    if pattern.while_ and not holds(pattern.while_, inside):
        complete(update, item, filled_map(pattern.outputs, inside))
        return
    if item.iteration >= pattern.maximum:
        if (pattern.while_ or pattern.until) and pattern.at_maximum is AtMaximum.FAIL:
            fail_item(update, item, f"its condition was not met after {pattern.maximum} rounds")
        else:
            complete(update, item, filled_map(pattern.outputs, inside))
        return
    update.close_blocks(item)
    iteration = item.iteration + 1
    block = f"{item.work}/{iteration}"
    update.put(item, iteration=iteration, blocks=(block,))
    update.open_block(block, pattern.tasks)


def _end_iteration(update: RunUpdate, item: Item, pattern: LoopPattern) -> None:
    inside = values_in(update, item.blocks)
    if pattern.until and holds(pattern.until, inside):
        complete(update, item, filled_map(pattern.outputs, inside))
        return
    previous = {one.task: _remembered(update, one) for block in item.blocks for one in update.block(block)}
    _next_iteration(update, update.put(item, previous=previous))


def _remembered(update: RunUpdate, item: Item) -> dict[str, object]:
    pattern = update.task(item).pattern
    names = pattern.outputs if isinstance(pattern, JobPattern) else item.outputs
    outputs = {name: task_value(update, item, ("outputs", name)) for name in names}
    kept = {
        name: task_value(update, item, (name,)) for name in ("state", "exit_code", "result", "count", "well", "bad")
    }
    return kept | {"outputs": outputs}


def _choose(update: RunUpdate, item: Item, pattern: ChoicePattern) -> None:
    values = values_for(update, item)
    taken = [branch.name for branch in pattern.branches if holds(branch.when, values)]
    if pattern.take is BranchSelection.FIRST:
        taken = taken[:1]
    if not taken and pattern.otherwise:
        taken = [OTHERWISE]
    if not taken:
        end(update, item, ItemState.SKIPPED, reason="no branch was taken")
        return
    update.put(item, blocks=tuple(f"{item.work}/{name}" for name in taken))
    for body in bodies(pattern):
        if body.name in taken:
            update.open_block(f"{item.work}/{body.name}", body.tasks)
