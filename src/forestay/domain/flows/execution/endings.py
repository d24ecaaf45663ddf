"""How tasks end, by themselves or by a command, and what their end means for the run."""

from __future__ import annotations

from collections.abc import Mapping

from forestay.domain.flows.commands import CancelTimer, CloseQuestion, CloseWait, QuestionOutcome, StopWatch
from forestay.domain.flows.definition.flow import OnFailure, WhenFailed
from forestay.domain.flows.execution.flow_run import (
    BEGUN,
    InstanceState,
    InstanceVerdict,
    RunEnding,
    RunPhase,
    TaskInstance,
)
from forestay.domain.flows.execution.rounds import cancel_round, close_watch, is_watch
from forestay.domain.flows.execution.run_update import RunUpdate
from forestay.domain.flows.execution.scope import size_of
from forestay.domain.flows.scatter.shard_run import MAX_REASON

TOO_LARGE: dict[str, object] = {"$too_large": True}
"""Replaces a result that is too large to be carried; its task fails when it ends."""


def result_limit(update: RunUpdate, instance: TaskInstance) -> int:
    """The most bytes of JSON in a task's result."""
    own = any(path[:2] == ("tasks", instance.task) for path in update.place(instance).undo_wants)
    return min(update.plan.result_limit, update.plan.undo_limit) if own else update.plan.result_limit


def complete(update: RunUpdate, instance: TaskInstance, outputs: object) -> None:
    if size_of(outputs) > result_limit(update, instance):
        fail_instance(
            update,
            instance,
            f"its outputs are larger than {result_limit(update, instance)} bytes; put them into a file",
        )
        return
    end(update, instance, InstanceState.COMPLETED, outputs=outputs)


def end(update: RunUpdate, instance: TaskInstance, state: InstanceState, **changes: object) -> None:
    if instance.timer:
        update.say(CancelTimer(instance.work))
    if instance.state is InstanceState.ASKING and state is not InstanceState.COMPLETED:
        expired = state in (InstanceState.FAILED, InstanceState.FAULTED) and not changes.get("forced")
        update.say(CloseQuestion(instance.work, QuestionOutcome.EXPIRED if expired else QuestionOutcome.WITHDRAWN))
    if instance.state is InstanceState.AWAITING and isinstance(instance.result, Mapping):
        update.say(CloseWait(instance.work, str(instance.result["event"]), str(instance.result["key"])))
    update.close_blocks(instance)
    update.put(instance, state=state, blocks=(), timer=False, verdict=None, previous={}, **changes)


def fail_instance(update: RunUpdate, instance: TaskInstance, reason: str) -> None:
    """A task has failed by itself."""
    reason = reason[:MAX_REASON]
    policy = update.task(instance).when_failed
    if policy is WhenFailed.HOLD and update.run.ending is None:
        end(update, instance, InstanceState.FAULTED, reason=reason)
        update.report("task-faulted", instance, reason)
        return
    end(update, instance, InstanceState.FAILED, reason=reason)
    update.report("task-failed", instance, reason)
    if policy is not WhenFailed.IGNORE:
        _fail_run(update, f"{instance.id}: {reason}"[:MAX_REASON])


def _fail_run(update: RunUpdate, reason: str) -> None:
    on_failure = update.plan.flow.on_failure
    if on_failure is OnFailure.GO_ON:
        if not update.run.failed:
            update.set(failed=True, reason=update.run.reason or reason)
    elif update.run.phase is RunPhase.RUNNING:
        stop(update, RunEnding.FAIL, reason, cancel=on_failure is OnFailure.CANCEL)


def stop(update: RunUpdate, ending: RunEnding, reason: str, *, cancel: bool) -> None:
    """Stop the run: nothing new begins; running work ends by itself or is cancelled."""
    update.set(phase=RunPhase.STOPPING, ending=ending, reason=reason)
    for instance in list(update.instances.values()):
        if instance.state is InstanceState.RUNNING:
            if cancel:
                give_verdict(update, instance, InstanceVerdict.CANCELLED)
            else:
                close_watch(update, instance)


def give_verdict(update: RunUpdate, instance: TaskInstance, verdict: InstanceVerdict) -> None:
    """Set a task's final state, whatever the result of its work: at once, or when its running work has been cancelled."""
    if instance.id not in update.instances:
        return
    if instance.state not in BEGUN:
        apply_verdict(update, instance, verdict)
    elif instance.state is not InstanceState.RUNNING:
        if is_watch(update.task(instance)):
            update.say(StopWatch(instance.work))
        apply_verdict(update, instance, verdict)
    else:
        instance = update.put(instance, verdict=verdict)
        if instance.fan_out is not None:
            cancel_round(update, instance)
        for inner in list(update.within(instance)):
            if not inner.ended and inner.verdict is not InstanceVerdict.CANCELLED:
                give_verdict(update, update.instances.get(inner.id, inner), InstanceVerdict.CANCELLED)


def apply_verdict(update: RunUpdate, instance: TaskInstance, verdict: InstanceVerdict) -> None:
    match verdict:
        case InstanceVerdict.AGAIN:
            end(update, instance, InstanceState.WAITING)
            update.put(
                TaskInstance(
                    instance.id,
                    instance.task,
                    instance.block,
                    round=instance.round,
                    holders=instance.holders,
                    changes=instance.changes,
                    seen=instance.seen,
                    as_of=instance.as_of,
                )
            )
        case InstanceVerdict.SKIPPED:
            end(update, instance, InstanceState.SKIPPED)
        case InstanceVerdict.FORCED_COMPLETE:
            end(update, instance, InstanceState.FORCED_COMPLETE)
        case InstanceVerdict.FORCE_FAILED:
            end(update, instance, InstanceState.FAILED, forced=True)
        case InstanceVerdict.CANCELLED:
            end(update, instance, InstanceState.CANCELLED)
        case InstanceVerdict.FAILED:
            fail_instance(update, instance, instance.reason or "it is late")
