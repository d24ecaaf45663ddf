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
    ChoicePattern,
    JobPattern,
    LoopPattern,
    MergePattern,
    SubflowPattern,
    Take,
    WorkletPattern,
)
from forestay.domain.flows.execution.case_end import step_case
from forestay.domain.flows.execution.draft import Draft
from forestay.domain.flows.execution.endings import (
    TOO_LARGE,
    apply_verdict,
    complete,
    end,
    fail_item,
    give_verdict,
    result_limit,
)
from forestay.domain.flows.execution.flow_run import Item, ItemState, Phase, Verdict
from forestay.domain.flows.execution.rounds import (
    Impossible,
    ask_for_listings,
    listing_names,
    open_round,
    push_compensation,
    undo_size,
)
from forestay.domain.flows.execution.scope import filled_map, size_of, task_value, values_for, values_in
from forestay.domain.flows.scatter.fan import bits_of, done_pieces, joined, layout_of

MAX_DONE = 200_000
"""Bytes that may be kept of a scatter of which elements failed, so that only those need be done again."""


def settle(draft: Draft) -> None:
    """Do what can be done."""
    while draft.run.phase is not Phase.FINISHED:
        moved = False
        for name in list(draft.items):
            item = draft.items.get(name)
            if item is not None and not item.ended:
                moved = _step(draft, item) or moved
        if not (step_case(draft) or moved):
            return


def _step(draft: Draft, item: Item) -> bool:
    match item.state:
        case ItemState.WAITING:
            return _may_begin(draft, item)
        case ItemState.LISTING | ItemState.BINDING if draft.run.phase is not Phase.RUNNING:
            give_verdict(draft, item, Verdict.CANCELLED)
            return True
        case ItemState.LISTING if all(name in item.listings for name in listing_names(draft.task(item))):
            _open(draft, item)
            return True
        case ItemState.BINDING if item.bound:
            _open(draft, item)
            return True
        case ItemState.RUNNING if item.fan is not None:
            if item.fan.finished and (item.verdict is not None or not draft.held(item)):
                _end_round(draft, item)
                return True
            return False
        case ItemState.RUNNING:
            return _step_container(draft, item)
        case _:
            return False


def _may_begin(draft: Draft, item: Item) -> bool:
    if draft.run.phase is not Phase.RUNNING:
        return False
    prefix = f"{item.block}/" if item.block else ""
    before = [draft.items[prefix + name] for name in draft.place(item).before]
    if not all(one.ended for one in before):
        return False
    if any(_bars(draft, one) for one in before):
        draft.put(item, state=ItemState.CANCELLED, reason="something before it did not end well")
        return True
    if draft.held(item):
        return False
    _begin(draft, item)
    return True


def _bars(draft: Draft, item: Item) -> bool:
    """Whether what comes after an ended item can never begin."""
    if item.state is ItemState.CANCELLED:
        return True
    return item.state is ItemState.FAILED and not item.forced and draft.task(item).when_failed is not WhenFailed.IGNORE


def _begin(draft: Draft, item: Item) -> None:
    task = draft.task(item)
    if task.when and not holds(task.when, values_for(draft, item)):
        draft.put(item, state=ItemState.SKIPPED, reason="its condition does not hold")
        return
    item = draft.put(
        item, state=ItemState.RUNNING, round=item.round + 1, timer=task.deadline is not None, reason="", forced=False
    )
    if task.deadline is not None:
        draft.say(StartTimer(item.work, draft.at + 1000 * task.deadline.seconds))
    if undo_size(draft, item) > draft.plan.undo_limit:
        fail_item(draft, item, f"its compensation would have to remember more than {draft.plan.undo_limit} bytes")
        return
    match task.pattern:
        case JobPattern() | SubflowPattern():
            if not item.kept and ask_for_listings(draft, item):
                draft.put(item, state=ItemState.LISTING)
            else:
                _open(draft, item)
        case WorkletPattern() if isinstance(item.changes.get("flow"), str):
            _open(draft, item)  # someone has said which flow to run here
        case WorkletPattern(place, params):
            draft.put(item, state=ItemState.BINDING)
            draft.say(BindWorklet(item.work, item.id, place, filled_map(params, values_for(draft, item))))
        case MergePattern(values):
            complete(draft, item, filled_map(values, values_for(draft, item)))
        case LoopPattern():
            _next_iteration(draft, item)
        case ChoicePattern():
            _choose(draft, item, task.pattern)


def _open(draft: Draft, item: Item) -> None:
    try:
        open_round(draft, item)
    except Impossible as why:
        fail_item(draft, draft.items[item.id], str(why))


def _end_round(draft: Draft, item: Item) -> None:
    fan = item.fan
    assert fan is not None  # noqa: S101 - the caller has looked
    push_compensation(draft, item)
    done = joined(item.done, done_pieces(fan))
    item = draft.put(
        item,
        fan=None,
        well=sum(bits_of(piece).bit_count() for piece in done),
        bad=fan.bad,
        count=prod(item.sizes) if item.sizes else fan.count,
    )
    if item.sizes and fan.bad and size_of(done) <= MAX_DONE:
        item = draft.put(item, done=done, layout=item.layout or layout_of(fan))
    else:
        item = draft.put(item, done=(), layout=())
    if item.verdict is not None:
        apply_verdict(draft, item, item.verdict)
    elif fan.bad > draft.task(item).tolerate:
        fail_item(draft, item, fan.why() or f"{fan.bad} of {fan.count} jobs ended badly")
    elif item.result == TOO_LARGE:
        draft.put(item, result=None)
        fail_item(
            draft,
            draft.items[item.id],
            f"its result is larger than {result_limit(draft, item)} bytes; put it into a file",
        )
    else:
        complete(draft, item, item.outputs)


def _step_container(draft: Draft, item: Item) -> bool:
    inner = [one for block in item.blocks for one in draft.block(block)]
    if not all(one.ended for one in inner):
        return False
    if item.verdict is not None:
        apply_verdict(draft, item, item.verdict)
        return True
    if draft.run.phase is not Phase.RUNNING or draft.held(item):
        return False
    if any(_bars(draft, one) for one in inner):
        # What failed inside has been dealt with there; the tasks after this one cannot begin.
        end(draft, item, ItemState.CANCELLED, reason="something inside it did not end well")
        return True
    pattern = draft.task(item).pattern
    if isinstance(pattern, LoopPattern):
        _end_iteration(draft, item, pattern)
    elif isinstance(pattern, ChoicePattern):
        complete(draft, item, filled_map(pattern.outputs, values_in(draft, item.blocks)))
    return True


def _next_iteration(draft: Draft, item: Item) -> None:
    pattern = draft.task(item).pattern
    assert isinstance(pattern, LoopPattern)  # noqa: S101 - only loops come here
    inside = values_in(draft, (f"{item.work}/{item.iteration}",))
    if pattern.while_ and not holds(pattern.while_, inside):
        complete(draft, item, filled_map(pattern.outputs, inside))
        return
    if item.iteration >= pattern.maximum:
        if (pattern.while_ or pattern.until) and pattern.at_maximum is AtMaximum.FAIL:
            fail_item(draft, item, f"its condition was not met after {pattern.maximum} rounds")
        else:
            complete(draft, item, filled_map(pattern.outputs, inside))
        return
    draft.close_blocks(item)
    iteration = item.iteration + 1
    block = f"{item.work}/{iteration}"
    draft.put(item, iteration=iteration, blocks=(block,))
    draft.open_block(block, pattern.tasks)


def _end_iteration(draft: Draft, item: Item, pattern: LoopPattern) -> None:
    inside = values_in(draft, item.blocks)
    if pattern.until and holds(pattern.until, inside):
        complete(draft, item, filled_map(pattern.outputs, inside))
        return
    previous = {one.task: _remembered(draft, one) for block in item.blocks for one in draft.block(block)}
    _next_iteration(draft, draft.put(item, previous=previous))


def _remembered(draft: Draft, item: Item) -> dict[str, object]:
    pattern = draft.task(item).pattern
    names = pattern.outputs if isinstance(pattern, JobPattern) else item.outputs
    outputs = {name: task_value(draft, item, ("outputs", name)) for name in names}
    kept = {name: task_value(draft, item, (name,)) for name in ("state", "exit_code", "result", "count", "well", "bad")}
    return kept | {"outputs": outputs}


def _choose(draft: Draft, item: Item, pattern: ChoicePattern) -> None:
    values = values_for(draft, item)
    taken = [branch.name for branch in pattern.branches if holds(branch.when, values)]
    if pattern.take is Take.FIRST:
        taken = taken[:1]
    if not taken and pattern.otherwise:
        taken = [OTHERWISE]
    if not taken:
        end(draft, item, ItemState.SKIPPED, reason="no branch was taken")
        return
    draft.put(item, blocks=tuple(f"{item.work}/{name}" for name in taken))
    for body in bodies(pattern):
        if body.name in taken:
            draft.open_block(f"{item.work}/{body.name}", body.tasks)
