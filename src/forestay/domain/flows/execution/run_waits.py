"""What a case waits for: never for nothing, as long as it has not finished."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from forestay.domain.flows.execution.flow_run import FlowRun, ItemState, RunPhase


class WaitsOn(StrEnum):
    """Who has the next word."""

    WORK = "work"
    """Jobs, shards or sub-cases that have not ended."""
    LISTING = "listing"
    BINDING = "binding"
    HOLDER = "holder"
    """Someone who suspended an item or the case."""
    VERDICT = "verdict"
    """A rule or a person, about a faulted item."""
    COMPENSATION = "compensation"
    """A person, about a compensation that failed its last try."""


@dataclass(frozen=True, slots=True)
class RunWait:
    """One thing that a case waits for."""

    what: WaitsOn
    item: str = ""
    detail: str = ""


_BY_STATE = {ItemState.LISTING: WaitsOn.LISTING, ItemState.BINDING: WaitsOn.BINDING, ItemState.FAULTED: WaitsOn.VERDICT}


def waits_for(run: FlowRun) -> tuple[RunWait, ...]:
    """Everything a case waits for now, in the order of its items."""
    if run.phase is RunPhase.FINISHED:
        return ()
    waits = [RunWait(WaitsOn.HOLDER, "", holder) for holder in run.holders]
    for item in run.items.values():
        if item.ended:
            continue
        if item.fan is not None and not item.fan.finished:
            waits.append(RunWait(WaitsOn.WORK, item.id, item.work))
        if item.state in _BY_STATE:
            waits.append(RunWait(_BY_STATE[item.state], item.id, item.reason))
        waits += [RunWait(WaitsOn.HOLDER, item.id, holder) for holder in item.holders]
    if run.phase is RunPhase.COMPENSATING and run.stack:
        top = run.stack[-1]
        if top.held:
            waits.append(RunWait(WaitsOn.COMPENSATION, top.item, f"!{top.number}"))
        elif top.fan is not None and not top.fan.finished:
            waits.append(RunWait(WaitsOn.WORK, top.item, top.undo))
    return tuple(waits)
