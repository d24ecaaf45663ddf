"""Resumes an ended run: under its own id, with its completed work, from the tasks that failed or never started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from forestay.domain.flows.commands import Command, RunOutcome, StartTimer
from forestay.domain.flows.definition.flow import all_tasks
from forestay.domain.flows.definition.flow_pattern import JobPattern
from forestay.domain.flows.execution.compensation import MAX_ENTRIES
from forestay.domain.flows.execution.endings import give_verdict
from forestay.domain.flows.execution.flow_run import FlowRun, InstanceState, InstanceVerdict, RunPhase, TaskInstance
from forestay.domain.flows.execution.redo import MAX_EARLIER, do_rest, downstream, fails_run, leftover, lines
from forestay.domain.flows.execution.run_end import RUN_TIMER, check_anew
from forestay.domain.flows.execution.run_update import RunUpdate
from forestay.domain.flows.execution.scope import data_refusal, set_data
from forestay.domain.flows.execution.settle import settle
from forestay.domain.jobs.specification import Effects

WELL = (RunOutcome.COMPLETED, RunOutcome.FORCED_COMPLETE)


class TaskAgain(NamedTuple):
    """A task that a resumed run does again, or for the first time."""

    task: str
    elements: int | None
    """How many of its elements are run; unknown for a task that never began."""
    of: int | None
    external: bool
    """It has external effects, perhaps for the second time."""


class Resumption(NamedTuple):
    """A resumed run."""

    run: FlowRun
    commands: tuple[Command, ...]
    kept: tuple[str, ...]
    """The tasks whose results it keeps."""
    again: tuple[TaskAgain, ...]


def resume_refusal(run: FlowRun, *, task: str = "", changes: Mapping[str, object] | None = None) -> str:
    """Why a run cannot be resumed in this way; empty: it can."""
    if run.outcome is None:
        return "the run has not ended"
    if task and task not in run.instances:
        return f"the run has no task {task}; its tasks: {', '.join(run.instances)}"
    if run.outcome in WELL and not task:
        return "the run has completed; name the task to start from"
    if len(run.stack) >= MAX_ENTRIES // 2:
        return "too many compensations wait on the stack"
    return data_refusal(run, changes) if changes else ""


def resume_run(run: FlowRun, *, at: int, task: str = "", changes: Mapping[str, object] | None = None) -> Resumption:
    """Continue an ended run that has passed `resume_refusal`. Resuming the same end twice gives the same rounds, and so the same jobs.

    Failed and cancelled tasks run again, in a scatter only the elements that did not succeed. So do the tasks that were compensated when the run failed,
    and ``task``, if given; and everything after these. ``changes`` are to the run's parameters; kept results were made with the former ones.
    """
    update = RunUpdate(run, at)
    if changes:
        set_data(update, changes)
    update.set(
        phase=RunPhase.RUNNING, ending=None, outcome=None, outputs={}, reason="", failed=False, holders=(), restarts=run.restarts + 1, undone=(),
    )  # fmt: skip
    check_anew(update)
    before = dict(update.instances)
    redone = [instance for instance in before.values() if _is_redone(update, instance, task)]
    whole = _wholly_redone(update, redone, task)
    for instance in redone:
        free = update.put(instance, holders=())
        if instance.id in whole:
            give_verdict(update, free, InstanceVerdict.AGAIN)
        else:
            update.put(leftover(free))
    known = {instance.id for instance in redone}
    for instance in sorted(redone, key=lambda instance: instance.id not in whole):
        in_part = frozenset() if instance.id in whole else lines(update, instance)
        for later in list(downstream(update, instance)):
            if later.id not in known and later.state is not InstanceState.WAITING:
                later = update.put(later, holders=(), as_of=-1)
                if later.id not in in_part or not do_rest(update, later):
                    give_verdict(update, later, InstanceVerdict.AGAIN)
    again = tuple(
        _again(update, before[instance.id], instance) for instance in update.instances.values() if not instance.ended
    )
    kept = tuple(instance.id for instance in update.instances.values() if instance.ended)
    deadline = update.plan.flow.deadline
    if deadline is not None:
        update.say(StartTimer(RUN_TIMER, at + 1000 * deadline.seconds))
    settle(update)
    return Resumption(*update.frozen(), kept, again)


def _is_redone(update: RunUpdate, instance: TaskInstance, task: str) -> bool:
    undone = instance.id in update.before.undone
    return undone or instance.id == task or instance.state is InstanceState.CANCELLED or fails_run(update, instance)


def _wholly_redone(update: RunUpdate, redone: list[TaskInstance], task: str) -> set[str]:
    """The tasks of which nothing is kept, including those that consumed their elements."""
    whole = {
        instance.id
        for instance in redone
        if not instance.done
        or instance.id == task
        or instance.id in update.before.undone
        or len(instance.earlier) >= MAX_EARLIER
    }
    for instance in [instance for instance in redone if instance.id in whole and instance.round]:
        whole |= {instance.id for instance in redone} & lines(update, instance)
    return whole


def _again(update: RunUpdate, before: TaskInstance, instance: TaskInstance) -> TaskAgain:
    count = before.count or None
    rest = before.count - before.well if instance.kept else count
    jobs = (task.pattern for task in all_tasks((update.task(instance),)))
    external = any(isinstance(job, JobPattern) and job.effects is Effects.EXTERNAL for job in jobs)
    return TaskAgain(instance.id, rest, count, external and before.round > 0)
