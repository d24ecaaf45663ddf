"""How a run ends: it completes, or it is stopped, and compensated if it failed."""

from __future__ import annotations

from dataclasses import replace

from forestay.domain.flows.commands import CancelTimer, CheckRun, FinishRun, Report, RunOutcome
from forestay.domain.flows.execution.compensation import CompensationEntry
from forestay.domain.flows.execution.endings import end
from forestay.domain.flows.execution.flow_run import BEGUN, EndCheck, InstanceState, RunEnding, RunPhase, TaskInstance
from forestay.domain.flows.execution.rounds import run_entry
from forestay.domain.flows.execution.run_update import RunUpdate
from forestay.domain.flows.execution.scope import filled_map, values_in
from forestay.domain.flows.scatter.shard_run import MAX_REASON

RUN_TIMER = "run"
HELD_COMPENSATION = "compensation-held"


def step_run(update: RunUpdate) -> bool:
    if any(entry.pending for entry in update.stack):
        return False
    run = update.run
    root = [instance for instance in update.instances.values() if not instance.block]
    if run.phase is RunPhase.RUNNING:
        if run.open or run.holders or not all(instance.ended for instance in root):
            return False
        if run.check in (EndCheck.WANTED, EndCheck.ASKED) and not run.failed:
            if run.check is EndCheck.WANTED:
                update.set(check=EndCheck.ASKED)
                update.say(CheckRun(_outputs(update)))
            return False
        if run.failed:
            update.set(phase=RunPhase.COMPENSATING, ending=RunEnding.FAIL)
        else:
            _finish(update, RunOutcome.COMPLETED)
        return True
    if run.phase is RunPhase.STOPPING:
        return _step_stopping(update)
    return _step_compensating(update)


def _step_stopping(update: RunUpdate) -> bool:
    if any(instance.state in BEGUN and not instance.blocks for instance in update.instances.values()):
        return False
    ending = update.run.ending
    if ending is RunEnding.FAIL and update.run.holders:
        return False
    for instance in list(update.instances.values()):
        if instance.id in update.instances and not instance.ended and not instance.block:
            faulted = instance.state is InstanceState.FAULTED
            end(update, instance, InstanceState.FAILED if faulted else InstanceState.CANCELLED)
    match ending:
        case RunEnding.RESTART:
            for instance in list(update.instances.values()):
                update.put(
                    TaskInstance(
                        instance.id,
                        instance.task,
                        round=instance.round,
                        holders=instance.holders,
                        changes=instance.changes,
                    )
                )
            update.set(phase=RunPhase.RUNNING, ending=None, reason="", failed=False, restarts=update.run.restarts + 1)
            check_anew(update)
        case RunEnding.FORCE_COMPLETE:
            _finish(update, RunOutcome.FORCED_COMPLETE)
        case RunEnding.REMOVE:
            _finish(update, RunOutcome.REMOVED)
        case _:
            update.set(phase=RunPhase.COMPENSATING)
    return True


def _step_compensating(update: RunUpdate) -> bool:
    if not update.stack:
        _finish(update, RunOutcome.UNDONE if update.run.ending is RunEnding.UNDO else RunOutcome.FAILED)
        return True
    entry = update.stack[-1]
    if entry.fan_out is None:
        if entry.held or update.run.holders:
            return False
        update.stack[-1] = run_entry(update, entry)
        return True
    if not entry.fan_out.finished:
        return False
    if entry.fan_out.bad == 0:
        update.stack.pop()
        note_undone(update, entry)
        return True
    compensation = update.plan.tasks[entry.task].task.compensation
    tries = entry.most or (compensation.tries if compensation else 1)
    held = entry.tries % tries == 0
    reason = entry.fan_out.why()[:MAX_REASON]
    update.stack[-1] = replace(entry, fan_out=None, held=held, reason=reason)
    if held:
        update.say(Report(f"{entry.undo}:{HELD_COMPENSATION}", HELD_COMPENSATION, entry.instance, reason))
    return True


def note_undone(update: RunUpdate, entry: CompensationEntry) -> None:
    """Record which tasks were undone: a resumed run has to run them again."""
    task = entry.instance.partition("@")[0]  # for a task inside a loop or choice: that loop or choice
    if task not in update.run.undone:
        update.set(undone=(*update.run.undone, task))


def check_anew(update: RunUpdate) -> None:
    """The run will not end as it was checked: it is checked again."""
    if update.run.check is EndCheck.DONE:
        update.set(check=EndCheck.WANTED)


def finish_removed(update: RunUpdate) -> None:
    """End the run as it is; compensations that were not run are left on purpose."""
    _finish(update, RunOutcome.REMOVED)


def _finish(update: RunUpdate, outcome: RunOutcome) -> None:
    well = outcome in (RunOutcome.COMPLETED, RunOutcome.FORCED_COMPLETE)
    outputs = _outputs(update) if well else {}
    if update.plan.flow.deadline is not None:
        update.say(CancelTimer(RUN_TIMER))
    update.set(phase=RunPhase.FINISHED, outcome=outcome, outputs=outputs)
    update.say(FinishRun(outcome, outputs, update.run.reason, len(update.stack)))


def _outputs(update: RunUpdate) -> dict[str, object]:
    return {**update.run.outputs, **filled_map(update.plan.flow.outputs, values_in(update, ("",)))}
