"""What people and rules may do to a case and its items. Every verb is answered; what cannot be done is refused with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from forestay.domain.flows.commands import AnswerVerb, CancelWork, Report, SignalAncestors
from forestay.domain.flows.definition.flow import OnFailure, WhenFailed
from forestay.domain.flows.events import Verb, VerbKind
from forestay.domain.flows.execution.case_end import check_anew, finish_removed
from forestay.domain.flows.execution.compensation import MAX_ENTRIES
from forestay.domain.flows.execution.draft import Draft, scoped
from forestay.domain.flows.execution.endings import give_verdict, stop
from forestay.domain.flows.execution.flow_run import MAX_VERBS, Ending, Item, ItemState, Phase, Settled, Verdict
from forestay.domain.flows.execution.messages import as_plain
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
    VerbKind.FORCE_COMPLETE: Ending.FORCE_COMPLETE,
    VerbKind.FORCE_FAIL: Ending.FAIL,
    VerbKind.REMOVE: Ending.REMOVE,
    VerbKind.RESTART: Ending.RESTART,
    VerbKind.REDO: Ending.RESTART,
}
_VERDICTS = {
    VerbKind.SKIP: Verdict.SKIPPED,
    VerbKind.FORCE_COMPLETE: Verdict.FORCED_COMPLETE,
    VerbKind.FORCE_FAIL: Verdict.FORCE_FAILED,
    VerbKind.REMOVE: Verdict.CANCELLED,
}


def obey(draft: Draft, verb: Verb) -> None:
    """Do what a verb asks for, once."""
    refusal = _known(draft, verb)
    if refusal is not None:
        draft.say(AnswerVerb(verb.id, not refusal, refusal or "it was done already"))
        return
    if draft.run.phase is Phase.FINISHED:
        draft.say(AnswerVerb(verb.id, accepted=False, detail="the case has ended"))
        return
    if max(len(verb.id), len(verb.by), len(verb.holder)) > MAX_WORD:
        detail = f"its id, sender or holder is longer than {MAX_WORD} characters"
        draft.say(AnswerVerb(verb.id, accepted=False, detail=detail))
        return
    if verb.ancestors:
        draft.say(SignalAncestors(as_plain(replace(verb, item="", round=None))))
    refusal = _obey(draft, verb)
    _remember(draft, verb, refusal)
    draft.say(AnswerVerb(verb.id, not refusal, refusal))


def _known(draft: Draft, verb: Verb) -> str | None:
    """What was answered before; ``None``: the verb is new."""
    for seen in draft.run.verbs:
        if seen[1:] == verb.id:
            return "" if seen[0] == "+" else "it was refused before"
    if verb.at <= draft.run.forgotten:
        return "it is older than the verbs that are still remembered; send it again with a new id and time"
    return None


def _remember(draft: Draft, verb: Verb, refusal: str) -> None:
    verbs = (*draft.run.verbs, ("-" if refusal else "+") + verb.id)
    times = (*draft.run.verb_times, verb.at)
    forgotten = draft.run.forgotten
    while len(verbs) > MAX_VERBS:
        forgotten = max(forgotten, times[0])
        verbs, times = verbs[1:], times[1:]
    draft.set(verbs=verbs, verb_times=times, forgotten=forgotten)


def _obey(draft: Draft, verb: Verb) -> str:
    if verb.begun_by is not None and draft.run.started > verb.begun_by:
        return "the case began later"
    if verb.item.startswith("!"):
        return _on_compensation(draft, verb)
    if not verb.item:
        return _on_case(draft, verb)
    item = draft.items.get(verb.item)
    if item is None:
        return f"the case has no item {verb.item}"
    if verb.round is not None and verb.round != item.round:
        return f"the item is in round {item.round}"
    return _on_item(draft, item, verb)


def _on_case(draft: Draft, verb: Verb) -> str:
    run = draft.run
    match verb.kind:
        case VerbKind.RAISE:
            return _raise(draft, None, verb)
        case VerbKind.SUSPEND:
            holder = verb.holder or verb.by
            if holder in run.holders:
                return ""
            if len(run.holders) >= MAX_HOLDERS:
                return f"{MAX_HOLDERS} holders hold the case already"
            draft.set(holders=(*run.holders, holder))
            for item in draft.items.values():
                draft.hold_work(item, scoped("", holder))
            return ""
        case VerbKind.CONTINUE:
            holder = verb.holder or verb.by
            if holder not in run.holders:
                return f"{holder} does not hold the case; holders: {', '.join(run.holders) or 'none'}"
            draft.set(holders=tuple(one for one in run.holders if one != holder))
            for item in draft.items.values():
                draft.continue_work(item, scoped("", holder))
            return ""
        case VerbKind.SET_DATA:
            return _set_data(draft, verb)
        case VerbKind.SKIP | VerbKind.REPLACE:
            return f"{verb.kind.value} is for items"
        case _:
            return _end_case(draft, verb)


def _set_data(draft: Draft, verb: Verb) -> str:
    if draft.plan.grown:
        return "the function of a Python flow has its parameters already; they cannot be changed"
    unknown = sorted(verb.changes.keys() - draft.run.params.keys())
    if unknown or not verb.changes:
        return f"the case has no parameter {', '.join(unknown)}" if unknown else "nothing is to be changed"
    after = {**draft.run.params, **verb.changes}
    if size_of(after) > MAX_DATA:
        return f"the parameters of the case would be larger than {MAX_DATA} bytes"
    draft.set(params=after)
    return ""


def _end_case(draft: Draft, verb: Verb) -> str:
    ending = _ENDINGS[verb.kind]
    if draft.plan.grown and ending is Ending.RESTART:
        return "a case of a Python flow cannot be begun again; start a new one"
    if draft.run.phase is Phase.COMPENSATING:
        if ending is not Ending.REMOVE:
            return "the case is being compensated"
        entry = draft.stack[-1] if draft.stack else None
        if entry is not None and entry.fan is not None:
            draft.say(CancelWork(entry.undo, entry.fan.own_count, len(entry.fan.shards)))
        draft.set(reason=_why(verb))
        finish_removed(draft)
        return ""
    if draft.run.phase is Phase.STOPPING and draft.run.ending is not Ending.FAIL:
        return f"the case is on its way to its end already ({draft.run.ending})"
    if ending is Ending.RESTART and len(draft.stack) >= MAX_ENTRIES // 2:
        return "too many compensations wait on the stack"
    stop(draft, ending, _why(verb), cancel=True)
    return ""


def _why(verb: Verb) -> str:
    return (verb.reason or f"{verb.kind.value} by {verb.by}")[:MAX_REASON]


def _raise(draft: Draft, item: Item | None, verb: Verb) -> str:
    kind = verb.changes.get("type")
    where = item.id if item else ""
    draft.say(Report(f"verb:{verb.id}", kind if isinstance(kind, str) and kind else "raised", where, verb.reason))
    return ""


def _on_item(draft: Draft, item: Item, verb: Verb) -> str:
    if draft.plan.grown and item.ended and verb.kind is not VerbKind.RAISE:
        return f"the item has ended ({item.state}), and its Python flow has gone on from there"
    match verb.kind:
        case VerbKind.RAISE:
            return _raise(draft, item, verb)
        case VerbKind.SET_DATA:
            return f"{verb.kind.value} is for cases"
        case VerbKind.SUSPEND | VerbKind.CONTINUE:
            return _hold(draft, item, verb)
        case VerbKind.REDO | VerbKind.RESTART | VerbKind.REPLACE:
            return _redo(draft, item, verb)
        case VerbKind.SKIP | VerbKind.FORCE_COMPLETE | VerbKind.FORCE_FAIL | VerbKind.REMOVE:
            rescue = _may_rescue(draft, item)
            if item.ended and not rescue:
                return f"the item has ended already: {item.state}"
            if draft.run.phase is Phase.COMPENSATING:
                return "the case is being compensated"
            item = draft.put(item, reason=_why(verb))
            give_verdict(draft, item, _VERDICTS[verb.kind])
            if rescue:
                _rescued(draft, item)
            return ""


def _hold(draft: Draft, item: Item, verb: Verb) -> str:
    if item.ended:
        return f"the item has ended already: {item.state}"
    holder = verb.holder or verb.by
    begun = [item, *draft.within(item)]
    if verb.kind is VerbKind.SUSPEND:
        if holder in item.holders:
            return ""
        if len(item.holders) >= MAX_HOLDERS:
            return f"{MAX_HOLDERS} holders hold the item already"
        draft.put(item, holders=(*item.holders, holder))
        for one in begun:
            draft.hold_work(one, scoped(item.id, holder))
        return ""
    if holder not in item.holders:
        return f"{holder} does not hold the item; holders: {', '.join(item.holders) or 'none'}"
    draft.put(item, holders=tuple(one for one in item.holders if one != holder))
    for one in begun:
        draft.continue_work(one, scoped(item.id, holder))
    return ""


def _may_rescue(draft: Draft, item: Item) -> bool:
    """Whether a failed item can still be mended: its case has not begun to be undone for it."""
    if item.state is not ItemState.FAILED:
        return False
    run = draft.run
    if run.phase is Phase.RUNNING:
        return True
    return run.phase is Phase.STOPPING and run.ending is Ending.FAIL and draft.plan.flow.on_failure is OnFailure.STOP


def _redo(draft: Draft, item: Item, verb: Verb) -> str:
    rescue = _may_rescue(draft, item)
    if draft.run.phase is not Phase.RUNNING and not rescue:
        return "the case is on its way to its end"
    if len(draft.stack) >= MAX_ENTRIES // 2:
        return "too many compensations wait on the stack"
    if any(outer.verdict is not None for outer in draft.containers(item)):
        return "what it is inside of is on its way to its end"
    if verb.only_failed and (not item.done or not (item.ended or item.state is ItemState.FAULTED)):
        return "there is no ended scatter of which some elements failed; redo it whole"
    if verb.only_failed and len(item.earlier) >= MAX_EARLIER:
        return f"it has been mended {MAX_EARLIER} times; redo it whole"
    if verb.kind is VerbKind.REPLACE:
        unknown = sorted(set(verb.changes) - CHANGEABLE)
        if unknown or not verb.changes:
            return f"{', '.join(unknown) or 'nothing'} cannot be changed; one of {', '.join(sorted(CHANGEABLE))} can"
        if size_of(verb.changes) > MAX_CHANGES:
            return f"the changes are larger than {MAX_CHANGES} bytes"
        others = sum(size_of(one.changes) for one in draft.items.values() if one.changes and one.id != item.id)
        if others + size_of(verb.changes) > MAX_ALL_CHANGES:
            return f"all changes of the case together are larger than {MAX_ALL_CHANGES} bytes"
        item = draft.put(item, changes=verb.changes)
    check_anew(draft)
    for later in list(_downstream(draft, item)):
        if later.state is not ItemState.WAITING:
            give_verdict(draft, later, Verdict.AGAIN)
    if verb.only_failed:
        draft.put(_leftover(item))
    elif item.state is not ItemState.WAITING:
        give_verdict(draft, item, Verdict.AGAIN)
    if rescue:
        _rescued(draft, item)
    return ""


def _leftover(item: Item) -> Item:
    """The item, about to do what its last rounds left undone."""
    return Item(
        item.id, item.task, item.block, round=item.round, listings=item.listings, sizes=item.sizes, layout=item.layout,
        done=item.done, kept=True, earlier=(item.work, *item.earlier), holders=item.holders, changes=item.changes,
        bound=item.bound, bound_params=item.bound_params,
    )  # fmt: skip


def _downstream(draft: Draft, item: Item) -> Iterator[Item]:
    """The items of the same block that come after this one, directly or not."""
    reached = {item.task}
    grown = True
    siblings = [one for one in draft.block(item.block) if one.id != item.id]
    while grown:
        grown = False
        for one in siblings:
            if one.task not in reached and reached & set(draft.place(one).before):
                reached.add(one.task)
                grown = True
    return (one for one in siblings if one.task in reached)


def _rescued(draft: Draft, item: Item) -> None:
    """A failed item has been mended: if it was the last, the case goes on."""
    for later in list(_downstream(draft, item)):
        if later.state is ItemState.CANCELLED:
            give_verdict(draft, later, Verdict.AGAIN)
    if any(_failed(draft, one) for one in draft.items.values()):
        return
    if draft.run.phase is Phase.STOPPING:
        draft.set(phase=Phase.RUNNING, ending=None, reason="")
    elif draft.run.failed:
        draft.set(failed=False, reason="")


def _failed(draft: Draft, item: Item) -> bool:
    ignored = draft.task(item).when_failed is WhenFailed.IGNORE
    return item.state is ItemState.FAILED and not item.forced and not ignored


def _on_compensation(draft: Draft, verb: Verb) -> str:
    entry = draft.stack[-1] if draft.stack else None
    if entry is None or verb.item != f"!{entry.number}":
        top = f"; the next one is !{entry.number}" if entry else ""
        return f"{verb.item} is not the compensation that is next{top}"
    if not entry.held:
        return "only a compensation that is held for a person can be steered"
    match verb.kind:
        case VerbKind.REDO | VerbKind.RESTART:
            draft.stack[-1] = replace(entry, held=False)
            return ""
        case VerbKind.SKIP | VerbKind.FORCE_COMPLETE:
            draft.stack.pop()
            draft.settled.append(Settled(entry.number, entry.item, verb.kind.value, verb.by, verb.reason[:200]))
            return ""
        case _:
            return f"{verb.kind.value} is not for compensations"
