"""What follows from the facts: items begin, end, fail; the case stops, is compensated, finishes.

Events only record facts. `settle` then does whatever the facts allow until nothing is left to do. That is why the order in which events arrive
does not matter where the facts are the same.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast.domain.flows.commands import (
    BindWorklet,
    CancelTimer,
    FinishCase,
    Outcome,
    Report,
    StartTimer,
    StopWatch,
)
from holdfast.domain.flows.draft import Draft
from holdfast.domain.flows.expression import holds
from holdfast.domain.flows.flow import OTHERWISE, OnFailure, WhenFailed, bodies
from holdfast.domain.flows.flow_pattern import (
    AtMaximum,
    ChoicePattern,
    JobPattern,
    LoopPattern,
    MergePattern,
    SubflowPattern,
    Take,
    WorkletPattern,
)
from holdfast.domain.flows.flow_run import BEGUN, Ending, Item, ItemState, Phase, Verdict
from holdfast.domain.flows.rounds import (
    Impossible,
    ask_for_listings,
    cancel_round,
    close_watch,
    is_watch,
    listing_names,
    open_round,
    push_compensation,
    run_entry,
    undo_size,
)
from holdfast.domain.flows.scope import filled_map, size_of, task_value, values_for, values_in
from holdfast.domain.flows.shard_run import MAX_REASON

CASE_TIMER = "case"
TOO_LARGE: dict[str, object] = {"$too_large": True}
"""Stands for a result that is not carried; its item fails when it ends."""
HELD_COMPENSATION = "compensation-held"


def settle(draft: Draft) -> None:
    """Do what can be done."""
    while draft.run.phase is not Phase.FINISHED:
        moved = False
        for name in list(draft.items):
            item = draft.items.get(name)
            if item is not None and not item.ended:
                moved = _step(draft, item) or moved
        if not (_step_case(draft) or moved):
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
    item = draft.put(Item(
        item.id, item.task, item.block, ItemState.RUNNING, item.round + 1, holders=item.holders, changes=item.changes,
        timer=task.deadline is not None,
    ))  # fmt: skip
    if task.deadline is not None:
        draft.say(StartTimer(item.work, draft.at + 1000 * task.deadline.seconds))
    if undo_size(draft, item) > draft.plan.undo_limit:
        fail_item(draft, item, f"its compensation would have to remember more than {draft.plan.undo_limit} bytes")
        return
    match task.pattern:
        case JobPattern() | SubflowPattern():
            if ask_for_listings(draft, item):
                draft.put(item, state=ItemState.LISTING)
            else:
                _open(draft, item)
        case WorkletPattern(place, params):
            draft.put(item, state=ItemState.BINDING)
            draft.say(BindWorklet(item.work, item.id, place, filled_map(params, values_for(draft, item))))
        case MergePattern(values):
            _complete(draft, item, filled_map(values, values_for(draft, item)))
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
    item = draft.put(item, fan=None, well=fan.well, bad=fan.bad, count=fan.count)
    if item.verdict is not None:
        _apply_verdict(draft, item, item.verdict)
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
        _complete(draft, item, item.outputs)


def result_limit(draft: Draft, item: Item) -> int:
    """Bytes of JSON that an item's result may have."""
    own = any(path[:2] == ("tasks", item.task) for path in draft.place(item).undo_wants)
    return min(draft.plan.result_limit, draft.plan.undo_limit) if own else draft.plan.result_limit


def _complete(draft: Draft, item: Item, outputs: object) -> None:
    if size_of(outputs) > result_limit(draft, item):
        fail_item(draft, item, f"its outputs are larger than {result_limit(draft, item)} bytes; put them into a file")
        return
    _end(draft, item, ItemState.COMPLETED, outputs=outputs)


def _end(draft: Draft, item: Item, state: ItemState, **changes: object) -> None:
    if item.timer:
        draft.say(CancelTimer(item.work))
    draft.close_blocks(item)
    draft.put(item, state=state, blocks=(), timer=False, verdict=None, previous={}, **changes)


def fail_item(draft: Draft, item: Item, reason: str) -> None:
    """An item has ended badly by itself."""
    reason = reason[:MAX_REASON]
    policy = draft.task(item).when_failed
    if policy is WhenFailed.HOLD and draft.run.ending is None:
        _end(draft, item, ItemState.FAULTED, reason=reason)
        draft.report("item-faulted", item, reason)
        return
    _end(draft, item, ItemState.FAILED, reason=reason)
    draft.report("item-failed", item, reason)
    if policy is not WhenFailed.IGNORE:
        _fail_case(draft, f"{item.id}: {reason}"[:MAX_REASON])


def _fail_case(draft: Draft, reason: str) -> None:
    on_failure = draft.plan.flow.on_failure
    if on_failure is OnFailure.GO_ON:
        if not draft.run.failed:
            draft.set(failed=True, reason=draft.run.reason or reason)
    elif draft.run.phase is Phase.RUNNING:
        stop(draft, Ending.FAIL, reason, cancel=on_failure is OnFailure.CANCEL)


def stop(draft: Draft, ending: Ending, reason: str, *, cancel: bool) -> None:
    """Bring the case to an end: nothing new begins; what runs ends by itself or is cancelled."""
    draft.set(phase=Phase.STOPPING, ending=ending, reason=reason)
    for item in list(draft.items.values()):
        if item.state is ItemState.RUNNING:
            if cancel:
                give_verdict(draft, item, Verdict.CANCELLED)
            else:
                close_watch(draft, item)


def give_verdict(draft: Draft, item: Item, verdict: Verdict) -> None:
    """Say what an item becomes, whatever its work brings: at once, or when what it runs has been cancelled."""
    if item.id not in draft.items:
        return
    if item.state not in BEGUN:
        _apply_verdict(draft, item, verdict)
    elif item.state is not ItemState.RUNNING:
        if is_watch(draft.task(item)):
            draft.say(StopWatch(item.work))
        _apply_verdict(draft, item, verdict)
    else:
        item = draft.put(item, verdict=verdict)
        if item.fan is not None:
            cancel_round(draft, item)
        for inner in list(draft.within(item)):
            if not inner.ended and inner.verdict is not Verdict.CANCELLED:
                give_verdict(draft, draft.items.get(inner.id, inner), Verdict.CANCELLED)


def _apply_verdict(draft: Draft, item: Item, verdict: Verdict) -> None:
    match verdict:
        case Verdict.AGAIN:
            _end(draft, item, ItemState.WAITING)
            draft.put(
                Item(item.id, item.task, item.block, round=item.round, holders=item.holders, changes=item.changes)
            )
        case Verdict.SKIPPED:
            _end(draft, item, ItemState.SKIPPED)
        case Verdict.FORCED_COMPLETE:
            _end(draft, item, ItemState.FORCED_COMPLETE)
        case Verdict.FORCE_FAILED:
            _end(draft, item, ItemState.FAILED, forced=True)
        case Verdict.CANCELLED:
            _end(draft, item, ItemState.CANCELLED)
        case Verdict.FAILED:
            fail_item(draft, item, item.reason or "it is late")


def _step_container(draft: Draft, item: Item) -> bool:
    inner = [one for block in item.blocks for one in draft.block(block)]
    if not all(one.ended for one in inner):
        return False
    if item.verdict is not None:
        _apply_verdict(draft, item, item.verdict)
        return True
    if draft.run.phase is not Phase.RUNNING or draft.held(item):
        return False
    if any(_bars(draft, one) for one in inner):
        # What failed inside has been dealt with there; the tasks after this one cannot begin.
        _end(draft, item, ItemState.CANCELLED, reason="something inside it did not end well")
        return True
    pattern = draft.task(item).pattern
    if isinstance(pattern, LoopPattern):
        _end_iteration(draft, item, pattern)
    elif isinstance(pattern, ChoicePattern):
        _complete(draft, item, filled_map(pattern.outputs, values_in(draft, item.blocks)))
    return True


def _next_iteration(draft: Draft, item: Item) -> None:
    pattern = draft.task(item).pattern
    assert isinstance(pattern, LoopPattern)  # noqa: S101 - only loops come here
    inside = values_in(draft, (f"{item.work}/{item.iteration}",))
    if pattern.while_ and not holds(pattern.while_, inside):
        _complete(draft, item, filled_map(pattern.outputs, inside))
        return
    if item.iteration >= pattern.maximum:
        if (pattern.while_ or pattern.until) and pattern.at_maximum is AtMaximum.FAIL:
            fail_item(draft, item, f"its condition was not met after {pattern.maximum} rounds")
        else:
            _complete(draft, item, filled_map(pattern.outputs, inside))
        return
    draft.close_blocks(item)
    iteration = item.iteration + 1
    block = f"{item.work}/{iteration}"
    draft.put(item, iteration=iteration, blocks=(block,))
    draft.open_block(block, pattern.tasks)


def _end_iteration(draft: Draft, item: Item, pattern: LoopPattern) -> None:
    inside = values_in(draft, item.blocks)
    if pattern.until and holds(pattern.until, inside):
        _complete(draft, item, filled_map(pattern.outputs, inside))
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
        _end(draft, item, ItemState.SKIPPED, reason="no branch was taken")
        return
    draft.put(item, blocks=tuple(f"{item.work}/{name}" for name in taken))
    for body in bodies(pattern):
        if body.name in taken:
            draft.open_block(f"{item.work}/{body.name}", body.tasks)


def _step_case(draft: Draft) -> bool:
    run = draft.run
    root = [item for item in draft.items.values() if not item.block]
    if run.phase is Phase.RUNNING:
        if run.holders or not all(item.ended for item in root):
            return False
        if run.failed:
            draft.set(phase=Phase.COMPENSATING, ending=Ending.FAIL)
        else:
            _finish(draft, Outcome.COMPLETED)
        return True
    if run.phase is Phase.STOPPING:
        return _step_stopping(draft)
    return _step_compensating(draft)


def _step_stopping(draft: Draft) -> bool:
    if any(item.state in BEGUN and not item.blocks for item in draft.items.values()):
        return False
    ending = draft.run.ending
    if ending is Ending.FAIL and draft.run.holders:
        return False
    for item in list(draft.items.values()):
        if item.id in draft.items and not item.ended and not item.block:
            faulted = item.state is ItemState.FAULTED
            _end(draft, item, ItemState.FAILED if faulted else ItemState.CANCELLED)
    match ending:
        case Ending.RESTART:
            for item in list(draft.items.values()):
                draft.put(Item(item.id, item.task, round=item.round, holders=item.holders, changes=item.changes))
            draft.set(phase=Phase.RUNNING, ending=None, reason="", failed=False, restarts=draft.run.restarts + 1)
        case Ending.FORCE_COMPLETE:
            _finish(draft, Outcome.FORCED_COMPLETE)
        case Ending.REMOVE:
            _finish(draft, Outcome.REMOVED)
        case _:
            draft.set(phase=Phase.COMPENSATING)
    return True


def _step_compensating(draft: Draft) -> bool:
    if not draft.stack:
        _finish(draft, Outcome.FAILED)
        return True
    entry = draft.stack[-1]
    if entry.fan is None:
        if entry.held or draft.run.holders:
            return False
        draft.stack[-1] = run_entry(draft, entry)
        return True
    if not entry.fan.finished:
        return False
    if entry.fan.bad == 0:
        draft.stack.pop()
        return True
    compensation = draft.plan.tasks[entry.task].task.compensation
    tries = compensation.tries if compensation else 1
    held = entry.tries % tries == 0
    reason = entry.fan.why()[:MAX_REASON]
    draft.stack[-1] = replace(entry, fan=None, held=held, reason=reason)
    if held:
        draft.say(Report(f"{entry.undo}:{HELD_COMPENSATION}", HELD_COMPENSATION, entry.item, reason))
    return True


def finish_removed(draft: Draft) -> None:
    """End the case as it is; what was not undone is left so on purpose."""
    _finish(draft, Outcome.REMOVED)


def _finish(draft: Draft, outcome: Outcome) -> None:
    values = values_in(draft, ("",))
    well = outcome in (Outcome.COMPLETED, Outcome.FORCED_COMPLETE)
    outputs = filled_map(draft.plan.flow.outputs, values) if well else {}
    if draft.plan.flow.deadline is not None:
        draft.say(CancelTimer(CASE_TIMER))
    draft.set(phase=Phase.FINISHED, outcome=outcome, outputs=outputs)
    draft.say(FinishCase(outcome, outputs, draft.run.reason, len(draft.stack)))
