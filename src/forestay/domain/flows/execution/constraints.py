"""What a case does while the rules see to a constraint that is not met: the item, or the case, waits."""

from __future__ import annotations

from dataclasses import replace

from forestay.domain.flows.commands import CancelTimer, Report
from forestay.domain.flows.events import CaseChecked, RoundHeld
from forestay.domain.flows.execution.endings import apply_verdict
from forestay.domain.flows.execution.flow_run import EndCheck, FlowRun, Item, ItemState
from forestay.domain.flows.execution.run_update import RunUpdate

EXCEPTION = "exception"
"""The kind of the report by which a case asks to have an incident's answer carried out; its detail is the incident."""


def holder_of(incident: str) -> str:
    """Who holds what waits for the answer to an incident."""
    return f"incident:{incident}"


def held_at_start(run: FlowRun, incidents: tuple[str, ...]) -> tuple[FlowRun, tuple[Report, ...]]:
    """A new case that may not begin yet."""
    held = replace(run, holders=(*run.holders, *(holder_of(one) for one in incidents)))
    return held, tuple(Report(f"start:{one}", EXCEPTION, "", one) for one in incidents)


def hold_round(update: RunUpdate, event: RoundHeld) -> None:
    """An item waits, before its round or at the end of it. Its answer is asked for in any case: by then the holder is there."""
    item = update.find(event.work)
    if item is not None and not item.ended:
        holder = holder_of(event.incident)
        holders = item.holders if holder in item.holders else (*item.holders, holder)
        if event.again:
            _begin_later(update, item, holders)
        else:
            update.put(item, holders=holders)
    update.say(Report(f"{event.work}:{event.incident}", EXCEPTION, item.id if item is not None else "", event.incident))


def _begin_later(update: RunUpdate, item: Item, holders: tuple[str, ...]) -> None:
    if item.timer:
        update.say(CancelTimer(item.work))
        item = update.put(item, timer=False)
    if item.verdict is not None:
        # Somebody has said meanwhile what becomes of it, and of its work nothing was begun.
        apply_verdict(update, update.put(item, fan=None, holders=holders), item.verdict)
        return
    waiting = Item(
        item.id,
        item.task,
        item.block,
        ItemState.WAITING,
        item.round,
        holders=holders,
        changes=item.changes,
        checked=True,
    )
    if item.kept:
        waiting = replace(
            waiting,
            listings=item.listings,
            sizes=item.sizes,
            layout=item.layout,
            done=item.done,
            kept=True,
            earlier=item.earlier,
        )
    update.put(waiting)


def case_checked(update: RunUpdate, event: CaseChecked) -> None:
    """The case ends as soon as nobody holds it."""
    if update.run.check is not EndCheck.ASKED:
        return
    update.set(check=EndCheck.DONE)
    if event.incident:
        update.set(holders=(*update.run.holders, holder_of(event.incident)))
        update.say(Report(f"end:{event.incident}", EXCEPTION, "", event.incident))
