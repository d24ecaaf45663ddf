"""How items end: by themselves, or by the word of someone; and what their end means for the case."""

from __future__ import annotations

from forestay.domain.flows.commands import CancelTimer, StopWatch
from forestay.domain.flows.definition.flow import OnFailure, WhenFailed
from forestay.domain.flows.execution.draft import Draft
from forestay.domain.flows.execution.flow_run import BEGUN, Ending, Item, ItemState, Phase, Verdict
from forestay.domain.flows.execution.rounds import cancel_round, close_watch, is_watch
from forestay.domain.flows.execution.scope import size_of
from forestay.domain.flows.scatter.shard_run import MAX_REASON

TOO_LARGE: dict[str, object] = {"$too_large": True}
"""Stands for a result that is not carried; its item fails when it ends."""


def result_limit(draft: Draft, item: Item) -> int:
    """Bytes of JSON that an item's result may have."""
    own = any(path[:2] == ("tasks", item.task) for path in draft.place(item).undo_wants)
    return min(draft.plan.result_limit, draft.plan.undo_limit) if own else draft.plan.result_limit


def complete(draft: Draft, item: Item, outputs: object) -> None:
    if size_of(outputs) > result_limit(draft, item):
        fail_item(draft, item, f"its outputs are larger than {result_limit(draft, item)} bytes; put them into a file")
        return
    end(draft, item, ItemState.COMPLETED, outputs=outputs)


def end(draft: Draft, item: Item, state: ItemState, **changes: object) -> None:
    if item.timer:
        draft.say(CancelTimer(item.work))
    draft.close_blocks(item)
    draft.put(item, state=state, blocks=(), timer=False, verdict=None, previous={}, **changes)


def fail_item(draft: Draft, item: Item, reason: str) -> None:
    """An item has ended badly by itself."""
    reason = reason[:MAX_REASON]
    policy = draft.task(item).when_failed
    if policy is WhenFailed.HOLD and draft.run.ending is None:
        end(draft, item, ItemState.FAULTED, reason=reason)
        draft.report("item-faulted", item, reason)
        return
    end(draft, item, ItemState.FAILED, reason=reason)
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
        apply_verdict(draft, item, verdict)
    elif item.state is not ItemState.RUNNING:
        if is_watch(draft.task(item)):
            draft.say(StopWatch(item.work))
        apply_verdict(draft, item, verdict)
    else:
        item = draft.put(item, verdict=verdict)
        if item.fan is not None:
            cancel_round(draft, item)
        for inner in list(draft.within(item)):
            if not inner.ended and inner.verdict is not Verdict.CANCELLED:
                give_verdict(draft, draft.items.get(inner.id, inner), Verdict.CANCELLED)


def apply_verdict(draft: Draft, item: Item, verdict: Verdict) -> None:
    match verdict:
        case Verdict.AGAIN:
            end(draft, item, ItemState.WAITING)
            draft.put(
                Item(item.id, item.task, item.block, round=item.round, holders=item.holders, changes=item.changes)
            )
        case Verdict.SKIPPED:
            end(draft, item, ItemState.SKIPPED)
        case Verdict.FORCED_COMPLETE:
            end(draft, item, ItemState.FORCED_COMPLETE)
        case Verdict.FORCE_FAILED:
            end(draft, item, ItemState.FAILED, forced=True)
        case Verdict.CANCELLED:
            end(draft, item, ItemState.CANCELLED)
        case Verdict.FAILED:
            fail_item(draft, item, item.reason or "it is late")
