"""How items end: by themselves, or by the word of someone; and what their end means for the case."""

from __future__ import annotations

from forestay.domain.flows.commands import CancelTimer, StopWatch
from forestay.domain.flows.definition.flow import OnFailure, WhenFailed
from forestay.domain.flows.execution.flow_run import BEGUN, Item, ItemState, ItemVerdict, RunEnding, RunPhase
from forestay.domain.flows.execution.rounds import cancel_round, close_watch, is_watch
from forestay.domain.flows.execution.run_update import RunUpdate
from forestay.domain.flows.execution.scope import size_of
from forestay.domain.flows.scatter.shard_run import MAX_REASON

TOO_LARGE: dict[str, object] = {"$too_large": True}
"""Stands for a result that is not carried; its item fails when it ends."""


def result_limit(update: RunUpdate, item: Item) -> int:
    """Bytes of JSON that an item's result may have."""
    own = any(path[:2] == ("tasks", item.task) for path in update.place(item).undo_wants)
    return min(update.plan.result_limit, update.plan.undo_limit) if own else update.plan.result_limit


def complete(update: RunUpdate, item: Item, outputs: object) -> None:
    if size_of(outputs) > result_limit(update, item):
        fail_item(update, item, f"its outputs are larger than {result_limit(update, item)} bytes; put them into a file")
        return
    end(update, item, ItemState.COMPLETED, outputs=outputs)


def end(update: RunUpdate, item: Item, state: ItemState, **changes: object) -> None:
    if item.timer:
        update.say(CancelTimer(item.work))
    update.close_blocks(item)
    update.put(item, state=state, blocks=(), timer=False, verdict=None, previous={}, **changes)


def fail_item(update: RunUpdate, item: Item, reason: str) -> None:
    """An item has ended badly by itself."""
    reason = reason[:MAX_REASON]
    policy = update.task(item).when_failed
    if policy is WhenFailed.HOLD and update.run.ending is None:
        end(update, item, ItemState.FAULTED, reason=reason)
        update.report("item-faulted", item, reason)
        return
    end(update, item, ItemState.FAILED, reason=reason)
    update.report("item-failed", item, reason)
    if policy is not WhenFailed.IGNORE:
        _fail_case(update, f"{item.id}: {reason}"[:MAX_REASON])


def _fail_case(update: RunUpdate, reason: str) -> None:
    on_failure = update.plan.flow.on_failure
    if on_failure is OnFailure.GO_ON:
        if not update.run.failed:
            update.set(failed=True, reason=update.run.reason or reason)
    elif update.run.phase is RunPhase.RUNNING:
        stop(update, RunEnding.FAIL, reason, cancel=on_failure is OnFailure.CANCEL)


def stop(update: RunUpdate, ending: RunEnding, reason: str, *, cancel: bool) -> None:
    """Bring the case to an end: nothing new begins; what runs ends by itself or is cancelled."""
    update.set(phase=RunPhase.STOPPING, ending=ending, reason=reason)
    for item in list(update.items.values()):
        if item.state is ItemState.RUNNING:
            if cancel:
                give_verdict(update, item, ItemVerdict.CANCELLED)
            else:
                close_watch(update, item)


def give_verdict(update: RunUpdate, item: Item, verdict: ItemVerdict) -> None:
    """Say what an item becomes, whatever its work brings: at once, or when what it runs has been cancelled."""
    if item.id not in update.items:
        return
    if item.state not in BEGUN:
        apply_verdict(update, item, verdict)
    elif item.state is not ItemState.RUNNING:
        if is_watch(update.task(item)):
            update.say(StopWatch(item.work))
        apply_verdict(update, item, verdict)
    else:
        item = update.put(item, verdict=verdict)
        if item.fan is not None:
            cancel_round(update, item)
        for inner in list(update.within(item)):
            if not inner.ended and inner.verdict is not ItemVerdict.CANCELLED:
                give_verdict(update, update.items.get(inner.id, inner), ItemVerdict.CANCELLED)


def apply_verdict(update: RunUpdate, item: Item, verdict: ItemVerdict) -> None:
    match verdict:
        case ItemVerdict.AGAIN:
            end(update, item, ItemState.WAITING)
            update.put(
                Item(item.id, item.task, item.block, round=item.round, holders=item.holders, changes=item.changes)
            )
        case ItemVerdict.SKIPPED:
            end(update, item, ItemState.SKIPPED)
        case ItemVerdict.FORCED_COMPLETE:
            end(update, item, ItemState.FORCED_COMPLETE)
        case ItemVerdict.FORCE_FAILED:
            end(update, item, ItemState.FAILED, forced=True)
        case ItemVerdict.CANCELLED:
            end(update, item, ItemState.CANCELLED)
        case ItemVerdict.FAILED:
            fail_item(update, item, item.reason or "it is late")
