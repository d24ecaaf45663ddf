"""How a case ends: it completes, or it is stopped, and compensated if it failed."""

from __future__ import annotations

from dataclasses import replace

from forestay.domain.flows.commands import CancelTimer, CheckCase, FinishCase, Report, RunOutcome
from forestay.domain.flows.execution.endings import end
from forestay.domain.flows.execution.flow_run import BEGUN, EndCheck, Item, ItemState, RunEnding, RunPhase
from forestay.domain.flows.execution.rounds import run_entry
from forestay.domain.flows.execution.run_update import RunUpdate
from forestay.domain.flows.execution.scope import filled_map, values_in
from forestay.domain.flows.scatter.shard_run import MAX_REASON

CASE_TIMER = "case"
HELD_COMPENSATION = "compensation-held"


def step_case(update: RunUpdate) -> bool:
    run = update.run
    root = [item for item in update.items.values() if not item.block]
    if run.phase is RunPhase.RUNNING:
        if run.open or run.holders or not all(item.ended for item in root):
            return False
        if run.check in (EndCheck.WANTED, EndCheck.ASKED) and not run.failed:
            if run.check is EndCheck.WANTED:
                update.set(check=EndCheck.ASKED)
                update.say(CheckCase(_outputs(update)))
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
    if any(item.state in BEGUN and not item.blocks for item in update.items.values()):
        return False
    ending = update.run.ending
    if ending is RunEnding.FAIL and update.run.holders:
        return False
    for item in list(update.items.values()):
        if item.id in update.items and not item.ended and not item.block:
            faulted = item.state is ItemState.FAULTED
            end(update, item, ItemState.FAILED if faulted else ItemState.CANCELLED)
    match ending:
        case RunEnding.RESTART:
            for item in list(update.items.values()):
                update.put(Item(item.id, item.task, round=item.round, holders=item.holders, changes=item.changes))
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
    if entry.fan is None:
        if entry.held or update.run.holders:
            return False
        update.stack[-1] = run_entry(update, entry)
        return True
    if not entry.fan.finished:
        return False
    if entry.fan.bad == 0:
        update.stack.pop()
        return True
    compensation = update.plan.tasks[entry.task].task.compensation
    tries = compensation.tries if compensation else 1
    held = entry.tries % tries == 0
    reason = entry.fan.why()[:MAX_REASON]
    update.stack[-1] = replace(entry, fan=None, held=held, reason=reason)
    if held:
        update.say(Report(f"{entry.undo}:{HELD_COMPENSATION}", HELD_COMPENSATION, entry.item, reason))
    return True


def check_anew(update: RunUpdate) -> None:
    """What was looked at is not what the case will end as: it is looked at again."""
    if update.run.check is EndCheck.DONE:
        update.set(check=EndCheck.WANTED)


def finish_removed(update: RunUpdate) -> None:
    """End the case as it is; what was not undone is left so on purpose."""
    _finish(update, RunOutcome.REMOVED)


def _finish(update: RunUpdate, outcome: RunOutcome) -> None:
    well = outcome in (RunOutcome.COMPLETED, RunOutcome.FORCED_COMPLETE)
    outputs = _outputs(update) if well else {}
    if update.plan.flow.deadline is not None:
        update.say(CancelTimer(CASE_TIMER))
    update.set(phase=RunPhase.FINISHED, outcome=outcome, outputs=outputs)
    update.say(FinishCase(outcome, outputs, update.run.reason, len(update.stack)))


def _outputs(update: RunUpdate) -> dict[str, object]:
    return {**update.run.outputs, **filled_map(update.plan.flow.outputs, values_in(update, ("",)))}
