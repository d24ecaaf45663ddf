"""How a case ends: it completes, or it is stopped, and compensated if it failed."""

from __future__ import annotations

from dataclasses import replace

from forestay.domain.flows.commands import CancelTimer, CheckCase, FinishCase, Outcome, Report
from forestay.domain.flows.execution.draft import Draft
from forestay.domain.flows.execution.endings import end
from forestay.domain.flows.execution.flow_run import BEGUN, EndCheck, Ending, Item, ItemState, Phase
from forestay.domain.flows.execution.rounds import run_entry
from forestay.domain.flows.execution.scope import filled_map, values_in
from forestay.domain.flows.scatter.shard_run import MAX_REASON

CASE_TIMER = "case"
HELD_COMPENSATION = "compensation-held"


def step_case(draft: Draft) -> bool:
    run = draft.run
    root = [item for item in draft.items.values() if not item.block]
    if run.phase is Phase.RUNNING:
        if run.open or run.holders or not all(item.ended for item in root):
            return False
        if run.check in (EndCheck.WANTED, EndCheck.ASKED) and not run.failed:
            if run.check is EndCheck.WANTED:
                draft.set(check=EndCheck.ASKED)
                draft.say(CheckCase(_outputs(draft)))
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
            end(draft, item, ItemState.FAILED if faulted else ItemState.CANCELLED)
    match ending:
        case Ending.RESTART:
            for item in list(draft.items.values()):
                draft.put(Item(item.id, item.task, round=item.round, holders=item.holders, changes=item.changes))
            draft.set(phase=Phase.RUNNING, ending=None, reason="", failed=False, restarts=draft.run.restarts + 1)
            check_anew(draft)
        case Ending.FORCE_COMPLETE:
            _finish(draft, Outcome.FORCED_COMPLETE)
        case Ending.REMOVE:
            _finish(draft, Outcome.REMOVED)
        case _:
            draft.set(phase=Phase.COMPENSATING)
    return True


def _step_compensating(draft: Draft) -> bool:
    if not draft.stack:
        _finish(draft, Outcome.UNDONE if draft.run.ending is Ending.UNDO else Outcome.FAILED)
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


def check_anew(draft: Draft) -> None:
    """What was looked at is not what the case will end as: it is looked at again."""
    if draft.run.check is EndCheck.DONE:
        draft.set(check=EndCheck.WANTED)


def finish_removed(draft: Draft) -> None:
    """End the case as it is; what was not undone is left so on purpose."""
    _finish(draft, Outcome.REMOVED)


def _finish(draft: Draft, outcome: Outcome) -> None:
    well = outcome in (Outcome.COMPLETED, Outcome.FORCED_COMPLETE)
    outputs = _outputs(draft) if well else {}
    if draft.plan.flow.deadline is not None:
        draft.say(CancelTimer(CASE_TIMER))
    draft.set(phase=Phase.FINISHED, outcome=outcome, outputs=outputs)
    draft.say(FinishCase(outcome, outputs, draft.run.reason, len(draft.stack)))


def _outputs(draft: Draft) -> dict[str, object]:
    return {**draft.run.outputs, **filled_map(draft.plan.flow.outputs, values_in(draft, ("",)))}
