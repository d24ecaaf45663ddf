"""What people and rules may do to a case and its items. Every verb is answered; what cannot be done is refused with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from forestay.domain.flows.commands import AnswerVerb, CancelWork, Report, SignalAncestors
from forestay.domain.flows.definition.flow import OnFailure, WhenFailed
from forestay.domain.flows.events import Verb, VerbKind
from forestay.domain.flows.execution.case_end import check_anew, finish_removed
from forestay.domain.flows.execution.compensation import MAX_ENTRIES
from forestay.domain.flows.execution.endings import give_verdict, stop
from forestay.domain.flows.execution.flow_run import (
    MAX_VERBS,
    Item,
    ItemState,
    ItemVerdict,
    RunEnding,
    RunPhase,
    SettledCompensation,
)
from forestay.domain.flows.execution.messages import as_plain
from forestay.domain.flows.execution.run_update import RunUpdate, scoped
from forestay.domain.flows.execution.scope import size_of
from forestay.domain.flows.scatter.shard_run import MAX_REASON
from forestay.domain.jobs.steering import MAX_HOLDERS

MAX_CHANGES = 16_384
MAX_ALL_CHANGES = 262_144
"""Bytes of all changes in a case together."""
MAX_DATA = 65_536
"""Bytes of a case's parameters, as at its start."""
MAX_EARLIER = 50
MAX_WORD = 200
"""Characters of a verb's id, of a holder's name, of who sends it."""
CHANGEABLE = frozenset(
    {
        "command", "environment", "resources", "inputs", "outputs", "effects", "max_attempts", "retry_wait",
        "when_exhausted", "expected_runtime", "priority", "flow", "params",
    }
)  # fmt: skip
"""What `replace` may change: the fields of a job, or a flow to be run in the item's place."""
_ENDINGS = {
    VerbKind.FORCE_COMPLETE: RunEnding.FORCE_COMPLETE,
    VerbKind.FORCE_FAIL: RunEnding.FAIL,
    VerbKind.REMOVE: RunEnding.REMOVE,
    VerbKind.RESTART: RunEnding.RESTART,
    VerbKind.REDO: RunEnding.RESTART,
}
_VERDICTS = {
    VerbKind.SKIP: ItemVerdict.SKIPPED,
    VerbKind.FORCE_COMPLETE: ItemVerdict.FORCED_COMPLETE,
    VerbKind.FORCE_FAIL: ItemVerdict.FORCE_FAILED,
    VerbKind.REMOVE: ItemVerdict.CANCELLED,
}


def obey(update: RunUpdate, verb: Verb) -> None:
    """Do what a verb asks for, once."""
    refusal = _known(update, verb)
    if refusal is not None:
        update.say(AnswerVerb(verb.id, not refusal, refusal or "it is already done"))
        return
    if update.run.phase is RunPhase.FINISHED:
        update.say(AnswerVerb(verb.id, accepted=False, detail="the run has ended"))
        return
    if max(len(verb.id), len(verb.by), len(verb.holder)) > MAX_WORD:
        detail = f"its id, sender or holder is longer than {MAX_WORD} characters"
        update.say(AnswerVerb(verb.id, accepted=False, detail=detail))
        return
    if verb.ancestors:
        update.say(SignalAncestors(as_plain(replace(verb, item="", round=None))))
    refusal = _obey(update, verb)
    _remember(update, verb, refusal)
    update.say(AnswerVerb(verb.id, not refusal, refusal))


def _known(update: RunUpdate, verb: Verb) -> str | None:
    """What was answered before; ``None``: the verb is new."""
    for seen in update.run.verbs:
        if seen[1:] == verb.id:
            return "" if seen[0] == "+" else "it was refused before"
    if verb.at <= update.run.forgotten:
        return "it is too old to be checked for repetition; send it again with a new id and time"
    return None


def _remember(update: RunUpdate, verb: Verb, refusal: str) -> None:
    verbs = (*update.run.verbs, ("-" if refusal else "+") + verb.id)
    times = (*update.run.verb_times, verb.at)
    forgotten = update.run.forgotten
    while len(verbs) > MAX_VERBS:
        forgotten = max(forgotten, times[0])
        verbs, times = verbs[1:], times[1:]
    update.set(verbs=verbs, verb_times=times, forgotten=forgotten)


def _obey(update: RunUpdate, verb: Verb) -> str:
    if verb.begun_by is not None and update.run.started > verb.begun_by:
        return "the run started later"
    if verb.item.startswith("!"):
        return _on_compensation(update, verb)
    if not verb.item:
        return _on_case(update, verb)
    item = update.items.get(verb.item)
    if item is None:
        return f"the run has no task {verb.item}"
    if verb.round is not None and verb.round != item.round:
        return f"the task is in round {item.round}"
    return _on_item(update, item, verb)


def _on_case(update: RunUpdate, verb: Verb) -> str:
    run = update.run
    match verb.kind:
        case VerbKind.RAISE:
            return _raise(update, None, verb)
        case VerbKind.SUSPEND:
            holder = verb.holder or verb.by
            if holder in run.holders:
                return ""
            if len(run.holders) >= MAX_HOLDERS:
                return f"{MAX_HOLDERS} holders already suspended the run"
            update.set(holders=(*run.holders, holder))
            for item in update.items.values():
                update.hold_work(item, scoped("", holder))
            return ""
        case VerbKind.CONTINUE:
            holder = verb.holder or verb.by
            if holder not in run.holders:
                return f"{holder} did not suspend the run; holders: {', '.join(run.holders) or 'none'}"
            update.set(holders=tuple(one for one in run.holders if one != holder))
            for item in update.items.values():
                update.continue_work(item, scoped("", holder))
            return ""
        case VerbKind.SET_DATA:
            return _set_data(update, verb)
        case VerbKind.SKIP | VerbKind.REPLACE:
            return f"{verb.kind.value} applies to tasks only"
        case _:
            return _end_case(update, verb)


def _set_data(update: RunUpdate, verb: Verb) -> str:
    if update.plan.grown:
        return "the parameters of a running Python flow cannot be changed"
    unknown = sorted(verb.changes.keys() - update.run.params.keys())
    if unknown or not verb.changes:
        return f"the run has no parameter {', '.join(unknown)}" if unknown else "nothing would change"
    after = {**update.run.params, **verb.changes}
    if size_of(after) > MAX_DATA:
        return f"the parameters of the run would be larger than {MAX_DATA} bytes"
    update.set(params=after)
    return ""


def _end_case(update: RunUpdate, verb: Verb) -> str:
    ending = _ENDINGS[verb.kind]
    if update.plan.grown and ending is RunEnding.RESTART:
        return "a run of a Python flow cannot be restarted; start a new one"
    if update.run.phase is RunPhase.COMPENSATING:
        if ending is not RunEnding.REMOVE:
            return "the run is being compensated"
        entry = update.stack[-1] if update.stack else None
        if entry is not None and entry.fan is not None:
            update.say(CancelWork(entry.undo, entry.fan.own_count, len(entry.fan.shards)))
        update.set(reason=_why(verb))
        finish_removed(update)
        return ""
    if update.run.phase is RunPhase.STOPPING and update.run.ending is not RunEnding.FAIL:
        return f"the run is already ending ({update.run.ending})"
    if ending is RunEnding.RESTART and len(update.stack) >= MAX_ENTRIES // 2:
        return "too many compensations wait on the stack"
    stop(update, ending, _why(verb), cancel=True)
    return ""


def _why(verb: Verb) -> str:
    return (verb.reason or f"{verb.kind.value} by {verb.by}")[:MAX_REASON]


def _raise(update: RunUpdate, item: Item | None, verb: Verb) -> str:
    kind = verb.changes.get("type")
    where = item.id if item else ""
    update.say(Report(f"verb:{verb.id}", kind if isinstance(kind, str) and kind else "raised", where, verb.reason))
    return ""


def _on_item(update: RunUpdate, item: Item, verb: Verb) -> str:
    if update.plan.grown and item.ended and verb.kind is not VerbKind.RAISE:
        return f"the item has ended ({item.state}), and its Python flow has continued from there"
    match verb.kind:
        case VerbKind.RAISE:
            return _raise(update, item, verb)
        case VerbKind.SET_DATA:
            return f"{verb.kind.value} applies to runs only"
        case VerbKind.SUSPEND | VerbKind.CONTINUE:
            return _hold(update, item, verb)
        case VerbKind.REDO | VerbKind.RESTART | VerbKind.REPLACE:
            return _redo(update, item, verb)
        case VerbKind.SKIP | VerbKind.FORCE_COMPLETE | VerbKind.FORCE_FAIL | VerbKind.REMOVE:
            rescue = _may_rescue(update, item)
            if item.ended and not rescue:
                return f"the task has already ended: {item.state}"
            if update.run.phase is RunPhase.COMPENSATING:
                return "the run is being compensated"
            item = update.put(item, reason=_why(verb))
            give_verdict(update, item, _VERDICTS[verb.kind])
            if rescue:
                _rescued(update, item)
            return ""


def _hold(update: RunUpdate, item: Item, verb: Verb) -> str:
    if item.ended:
        return f"the task has already ended: {item.state}"
    holder = verb.holder or verb.by
    begun = [item, *update.within(item)]
    if verb.kind is VerbKind.SUSPEND:
        if holder in item.holders:
            return ""
        if len(item.holders) >= MAX_HOLDERS:
            return f"{MAX_HOLDERS} holders already suspended the task"
        update.put(item, holders=(*item.holders, holder))
        for one in begun:
            update.hold_work(one, scoped(item.id, holder))
        return ""
    if holder not in item.holders:
        return f"{holder} did not suspend the task; holders: {', '.join(item.holders) or 'none'}"
    update.put(item, holders=tuple(one for one in item.holders if one != holder))
    for one in begun:
        update.continue_work(one, scoped(item.id, holder))
    return ""


def _may_rescue(update: RunUpdate, item: Item) -> bool:
    """Whether a failed item can still be mended: its case has not begun to be undone for it."""
    if item.state is not ItemState.FAILED:
        return False
    run = update.run
    if run.phase is RunPhase.RUNNING:
        return True
    return (
        run.phase is RunPhase.STOPPING
        and run.ending is RunEnding.FAIL
        and update.plan.flow.on_failure is OnFailure.STOP
    )


def _redo(update: RunUpdate, item: Item, verb: Verb) -> str:
    rescue = _may_rescue(update, item)
    if update.run.phase is not RunPhase.RUNNING and not rescue:
        return "the run is ending"
    if len(update.stack) >= MAX_ENTRIES // 2:
        return "too many compensations wait on the stack"
    if any(outer.verdict is not None for outer in update.containers(item)):
        return "the block that contains it is ending"
    if verb.only_failed and (not item.done or not (item.ended or item.state is ItemState.FAULTED)):
        return "there is no finished scatter with failed elements; redo it completely"
    if verb.only_failed and len(item.earlier) >= MAX_EARLIER:
        return f"it was redone in part {MAX_EARLIER} times; redo it completely"
    if verb.kind is VerbKind.REPLACE:
        unknown = sorted(set(verb.changes) - CHANGEABLE)
        if unknown or not verb.changes:
            return f"{', '.join(unknown) or 'nothing'} cannot be changed; one of {', '.join(sorted(CHANGEABLE))} can"
        if size_of(verb.changes) > MAX_CHANGES:
            return f"the changes are larger than {MAX_CHANGES} bytes"
        others = sum(size_of(one.changes) for one in update.items.values() if one.changes and one.id != item.id)
        if others + size_of(verb.changes) > MAX_ALL_CHANGES:
            return f"all changes of the run together are larger than {MAX_ALL_CHANGES} bytes"
        item = update.put(item, changes=verb.changes)
    check_anew(update)
    for later in list(_downstream(update, item)):
        if later.state is not ItemState.WAITING:
            give_verdict(update, later, ItemVerdict.AGAIN)
    if verb.only_failed:
        update.put(_leftover(item))
    elif item.state is not ItemState.WAITING:
        give_verdict(update, item, ItemVerdict.AGAIN)
    if rescue:
        _rescued(update, item)
    return ""


def _leftover(item: Item) -> Item:
    """The item, about to do what its last rounds left undone."""
    return Item(
        item.id, item.task, item.block, round=item.round, listings=item.listings, sizes=item.sizes, layout=item.layout,
        done=item.done, kept=True, earlier=(item.work, *item.earlier), holders=item.holders, changes=item.changes,
        bound=item.bound, bound_params=item.bound_params,
    )  # fmt: skip


def _downstream(update: RunUpdate, item: Item) -> Iterator[Item]:
    """The items of the same block that come after this one, directly or not."""
    reached = {item.task}
    grown = True
    siblings = [one for one in update.block(item.block) if one.id != item.id]
    while grown:
        grown = False
        for one in siblings:
            if one.task not in reached and reached & set(update.place(one).before):
                reached.add(one.task)
                grown = True
    return (one for one in siblings if one.task in reached)


def _rescued(update: RunUpdate, item: Item) -> None:
    """A failed item has been mended: if it was the last, the case goes on."""
    for later in list(_downstream(update, item)):
        if later.state is ItemState.CANCELLED:
            give_verdict(update, later, ItemVerdict.AGAIN)
    if any(_failed(update, one) for one in update.items.values()):
        return
    if update.run.phase is RunPhase.STOPPING:
        update.set(phase=RunPhase.RUNNING, ending=None, reason="")
    elif update.run.failed:
        update.set(failed=False, reason="")


def _failed(update: RunUpdate, item: Item) -> bool:
    ignored = update.task(item).when_failed is WhenFailed.IGNORE
    return item.state is ItemState.FAILED and not item.forced and not ignored


def _on_compensation(update: RunUpdate, verb: Verb) -> str:
    entry = update.stack[-1] if update.stack else None
    if entry is None or verb.item != f"!{entry.number}":
        top = f"; the next one is !{entry.number}" if entry else ""
        return f"{verb.item} is not the compensation that is next{top}"
    if not entry.held:
        return "only a compensation that is held for a person can be controlled"
    match verb.kind:
        case VerbKind.REDO | VerbKind.RESTART:
            update.stack[-1] = replace(entry, held=False)
            return ""
        case VerbKind.SKIP | VerbKind.FORCE_COMPLETE:
            update.stack.pop()
            update.settled.append(
                SettledCompensation(entry.number, entry.item, verb.kind.value, verb.by, verb.reason[:200])
            )
            return ""
        case _:
            return f"{verb.kind.value} does not apply to compensations"
