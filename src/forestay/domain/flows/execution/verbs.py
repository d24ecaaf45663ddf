"""What people and rules may do to a run and its tasks. Every verb is answered; an impossible one is refused with the reason."""

from __future__ import annotations

from dataclasses import replace

from forestay.domain.flows.commands import AnswerVerb, CancelWork, Report, SignalAncestors
from forestay.domain.flows.definition.flow import OnFailure
from forestay.domain.flows.events import Verb, VerbKind
from forestay.domain.flows.execution.compensation import MAX_ENTRIES
from forestay.domain.flows.execution.endings import give_verdict, stop
from forestay.domain.flows.execution.flow_run import (
    MAX_VERBS,
    InstanceState,
    InstanceVerdict,
    RunEnding,
    RunPhase,
    SettledCompensation,
    TaskInstance,
)
from forestay.domain.flows.execution.library import ONLY_COMPENSATIONS, rebind
from forestay.domain.flows.execution.messages import as_plain
from forestay.domain.flows.execution.questions import take_answer
from forestay.domain.flows.execution.redo import MAX_EARLIER, do_rest, downstream, fails_run, leftover, lines
from forestay.domain.flows.execution.run_end import check_anew, finish_removed, note_undone
from forestay.domain.flows.execution.run_update import RunUpdate, scoped
from forestay.domain.flows.execution.scope import data_refusal, set_data, size_of
from forestay.domain.flows.scatter.shard_run import MAX_REASON
from forestay.domain.jobs.steering import MAX_HOLDERS

MAX_CHANGES = 16_384
MAX_ALL_CHANGES = 262_144
"""The most bytes of all changes in a run together."""
MAX_WORD = 200
"""The most characters of a verb's id, of a holder's name, of its sender's name."""
CHANGEABLE = frozenset(
    {
        "command", "environment", "resources", "inputs", "outputs", "container", "effects", "max_attempts", "retry_wait",
        "when_exhausted", "expected_runtime", "priority", "flow", "params",
    }
)  # fmt: skip
"""What `replace` may change: the fields of a job, or the flow to run in the task's place."""
_ENDINGS = {
    VerbKind.FORCE_COMPLETE: RunEnding.FORCE_COMPLETE,
    VerbKind.FORCE_FAIL: RunEnding.FAIL,
    VerbKind.REMOVE: RunEnding.REMOVE,
    VerbKind.RESTART: RunEnding.RESTART,
    VerbKind.REDO: RunEnding.RESTART,
}
_VERDICTS = {
    VerbKind.SKIP: InstanceVerdict.SKIPPED,
    VerbKind.FORCE_COMPLETE: InstanceVerdict.FORCED_COMPLETE,
    VerbKind.FORCE_FAIL: InstanceVerdict.FORCE_FAILED,
    VerbKind.REMOVE: InstanceVerdict.CANCELLED,
}


def obey(update: RunUpdate, verb: Verb) -> None:
    """Carry out a verb, once."""
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
        update.say(SignalAncestors(as_plain(replace(verb, instance="", round=None))))
    refusal = _obey(update, verb)
    _remember(update, verb, refusal)
    update.say(AnswerVerb(verb.id, not refusal, refusal))


def _known(update: RunUpdate, verb: Verb) -> str | None:
    """The earlier answer; ``None``: the verb is new."""
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
    if verb.instance.startswith("!"):
        return _on_compensation(update, verb)
    if not verb.instance:
        return _on_run(update, verb)
    instance = update.instances.get(verb.instance)
    if instance is None:
        return f"the run has no task {verb.instance}"
    if verb.round is not None and verb.round != instance.round:
        return f"the task is in round {instance.round}"
    return _on_instance(update, instance, verb)


def _on_run(update: RunUpdate, verb: Verb) -> str:
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
            for instance in update.instances.values():
                update.hold_work(instance, scoped("", holder))
            return ""
        case VerbKind.CONTINUE:
            holder = verb.holder or verb.by
            if holder not in run.holders:
                return f"{holder} did not suspend the run; holders: {', '.join(run.holders) or 'none'}"
            update.set(holders=tuple(other_holder for other_holder in run.holders if other_holder != holder))
            for instance in update.instances.values():
                update.continue_work(instance, scoped("", holder))
            return ""
        case VerbKind.SET_DATA:
            return _set_data(update, verb)
        case VerbKind.SKIP | VerbKind.REPLACE | VerbKind.ANSWER:
            return f"{verb.kind.value} applies to tasks only"
        case VerbKind.REBIND:
            return ONLY_COMPENSATIONS
        case _:
            return _end_run(update, verb)


def _set_data(update: RunUpdate, verb: Verb) -> str:
    refusal = data_refusal(update.run, verb.changes)
    if not refusal:
        set_data(update, verb.changes)
    return refusal


def _end_run(update: RunUpdate, verb: Verb) -> str:
    ending = _ENDINGS[verb.kind]
    if update.plan.grown and ending is RunEnding.RESTART:
        return "a run of a Python flow cannot be restarted; start a new one"
    if update.run.phase is RunPhase.COMPENSATING:
        if ending is not RunEnding.REMOVE:
            return "the run is being compensated"
        entry = update.stack[-1] if update.stack else None
        if entry is not None and entry.fan_out is not None:
            update.say(CancelWork(entry.undo, entry.fan_out.own_count, len(entry.fan_out.shards)))
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


def _raise(update: RunUpdate, instance: TaskInstance | None, verb: Verb) -> str:
    kind = verb.changes.get("type")
    where = instance.id if instance else ""
    update.say(Report(f"verb:{verb.id}", kind if isinstance(kind, str) and kind else "raised", where, verb.reason))
    return ""


def _on_instance(update: RunUpdate, instance: TaskInstance, verb: Verb) -> str:
    if verb.kind is VerbKind.ANSWER:
        return take_answer(update, instance, verb)
    if update.plan.grown and instance.ended and verb.kind is not VerbKind.RAISE:
        return f"the task has ended ({instance.state}), and its Python flow has continued from there"
    match verb.kind:
        case VerbKind.RAISE:
            return _raise(update, instance, verb)
        case VerbKind.SET_DATA:
            return f"{verb.kind.value} applies to runs only"
        case VerbKind.REBIND:
            return ONLY_COMPENSATIONS
        case VerbKind.SUSPEND | VerbKind.CONTINUE:
            return _hold(update, instance, verb)
        case VerbKind.REDO | VerbKind.RESTART | VerbKind.REPLACE:
            return _redo(update, instance, verb)
        case VerbKind.SKIP | VerbKind.FORCE_COMPLETE | VerbKind.FORCE_FAIL | VerbKind.REMOVE:
            rescue = _may_rescue(update, instance)
            if instance.ended and not rescue:
                return f"the task has already ended: {instance.state}"
            if update.run.phase is RunPhase.COMPENSATING:
                return "the run is being compensated"
            instance = update.put(instance, reason=_why(verb))
            give_verdict(update, instance, _VERDICTS[verb.kind])
            if verb.kind is VerbKind.REMOVE:
                for later in lines(update, instance):  # they may have begun, for elements that had ended
                    if not update.instances[later].ended:
                        give_verdict(update, update.instances[later], InstanceVerdict.CANCELLED)
            if rescue:
                _rescued(update, instance)
            return ""


def _hold(update: RunUpdate, instance: TaskInstance, verb: Verb) -> str:
    if instance.ended:
        return f"the task has already ended: {instance.state}"
    holder = verb.holder or verb.by
    begun = [instance, *update.within(instance)]
    if verb.kind is VerbKind.SUSPEND:
        if holder in instance.holders:
            return ""
        if len(instance.holders) >= MAX_HOLDERS:
            return f"{MAX_HOLDERS} holders already suspended the task"
        update.put(instance, holders=(*instance.holders, holder))
        for task_instance in begun:
            update.hold_work(task_instance, scoped(instance.id, holder))
        return ""
    if holder not in instance.holders:
        return f"{holder} did not suspend the task; holders: {', '.join(instance.holders) or 'none'}"
    update.put(instance, holders=tuple(other_holder for other_holder in instance.holders if other_holder != holder))
    for task_instance in begun:
        update.continue_work(task_instance, scoped(instance.id, holder))
    return ""


def _may_rescue(update: RunUpdate, instance: TaskInstance) -> bool:
    """Whether a failed task can still be recovered: compensation of its run has not begun."""
    if instance.state is not InstanceState.FAILED:
        return False
    run = update.run
    if run.phase is RunPhase.RUNNING:
        return True
    return (
        run.phase is RunPhase.STOPPING
        and run.ending is RunEnding.FAIL
        and update.plan.flow.on_failure is OnFailure.STOP
    )


def _redo(update: RunUpdate, instance: TaskInstance, verb: Verb) -> str:
    rescue = _may_rescue(update, instance)
    if update.run.phase is not RunPhase.RUNNING and not rescue:
        return "the run is ending"
    if len(update.stack) >= MAX_ENTRIES // 2:
        return "too many compensations wait on the stack"
    if any(outer.verdict is not None for outer in update.containers(instance)):
        return "the block that contains it is ending"
    if verb.only_failed and (not instance.done or not (instance.ended or instance.state is InstanceState.FAULTED)):
        return "there is no finished scatter with failed elements; redo it completely"
    if verb.only_failed and len(instance.earlier) >= MAX_EARLIER:
        return f"it was redone in part {MAX_EARLIER} times; redo it completely"
    if verb.kind is VerbKind.REPLACE:
        unknown = sorted(set(verb.changes) - CHANGEABLE)
        if unknown or not verb.changes:
            return f"{', '.join(unknown) or 'nothing'} cannot be changed; one of {', '.join(sorted(CHANGEABLE))} can"
        if size_of(verb.changes) > MAX_CHANGES:
            return f"the changes are larger than {MAX_CHANGES} bytes"
        others = sum(
            size_of(task_instance.changes)
            for task_instance in update.instances.values()
            if task_instance.changes and task_instance.id != instance.id
        )
        if others + size_of(verb.changes) > MAX_ALL_CHANGES:
            return f"all changes of the run together are larger than {MAX_ALL_CHANGES} bytes"
        instance = update.put(instance, changes=verb.changes)
    # The paper's restart uses the item as it began; for a redo the data may have been changed on purpose.
    as_begun = verb.kind is VerbKind.RESTART and instance.round > 0
    instance = update.put(instance, as_of=instance.seen if as_begun else -1)
    check_anew(update)
    in_part = lines(update, instance) if verb.only_failed else frozenset()
    for later in list(downstream(update, instance)):
        if later.state is not InstanceState.WAITING:
            later = update.put(later, as_of=-1)
            if later.id not in in_part or not do_rest(update, later):
                give_verdict(update, later, InstanceVerdict.AGAIN)
    if verb.only_failed:
        update.put(leftover(instance))
    elif instance.state is not InstanceState.WAITING:
        give_verdict(update, instance, InstanceVerdict.AGAIN)
    if rescue:
        _rescued(update, instance)
    return ""


def _rescued(update: RunUpdate, instance: TaskInstance) -> None:
    """A failed task has been recovered: if it was the last, the run continues."""
    in_part = lines(update, instance)
    for later in list(downstream(update, instance)):
        if later.state is InstanceState.CANCELLED and not (later.id in in_part and do_rest(update, later)):
            give_verdict(update, later, InstanceVerdict.AGAIN)
    if any(fails_run(update, task_instance) for task_instance in update.instances.values()):
        return
    if update.run.phase is RunPhase.STOPPING:
        update.set(phase=RunPhase.RUNNING, ending=None, reason="")
    elif update.run.failed:
        update.set(failed=False, reason="")


def _on_compensation(update: RunUpdate, verb: Verb) -> str:
    if verb.kind is VerbKind.REBIND:
        return rebind(update, verb)
    entry = update.stack[-1] if update.stack else None
    if entry is None or verb.instance != f"!{entry.number}":
        top = f"; the next one is !{entry.number}" if entry else ""
        return f"{verb.instance} is not the compensation that is next{top}"
    if not entry.held:
        return "only a compensation that is held for a person can be controlled"
    match verb.kind:
        case VerbKind.REDO | VerbKind.RESTART:
            update.stack[-1] = replace(entry, held=False)
            return ""
        case VerbKind.SKIP | VerbKind.FORCE_COMPLETE:
            update.stack.pop()
            if verb.kind is VerbKind.FORCE_COMPLETE:  # undone by hand
                note_undone(update, entry)
            update.settled.append(
                SettledCompensation(entry.number, entry.instance, verb.kind.value, verb.by, verb.reason[:200])
            )
            return ""
        case _:
            return f"{verb.kind.value} does not apply to compensations"
