"""What a run waits for: there is always something until it has finished."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from forestay.domain.flows.execution.flow_run import FlowRun, InstanceState, RunPhase


class WaitsOn(StrEnum):
    """Who has the next word."""

    WORK = "work"
    """Jobs, shards or sub-runs that have not ended."""
    LISTING = "listing"
    BINDING = "binding"
    ANSWER = "answer"
    """A person, about a question."""
    EVENT = "event"
    """An event from outside."""
    HOLDER = "holder"
    """Someone who suspended a task or the run."""
    VERDICT = "verdict"
    """A rule or a person, about a faulted task."""
    COMPENSATION = "compensation"
    """A person, about a compensation that failed its last try."""
    LIBRARY = "library"
    """The compensation library, about what has completed."""


PEOPLE = frozenset({WaitsOn.HOLDER, WaitsOn.VERDICT, WaitsOn.COMPENSATION})
"""Waits that only a person, or a rule in a person's place, can end."""


@dataclass(frozen=True, slots=True)
class RunWait:
    """One thing that a run waits for."""

    what: WaitsOn
    instance: str = ""
    detail: str = ""


_BY_STATE = {
    InstanceState.LISTING: WaitsOn.LISTING,
    InstanceState.BINDING: WaitsOn.BINDING,
    InstanceState.ASKING: WaitsOn.ANSWER,
    InstanceState.AWAITING: WaitsOn.EVENT,
    InstanceState.FAULTED: WaitsOn.VERDICT,
}


def waits_for(run: FlowRun) -> tuple[RunWait, ...]:
    """Everything a run waits for now, in the order of its tasks."""
    if run.phase is RunPhase.FINISHED:
        return ()
    waits = [RunWait(WaitsOn.HOLDER, "", holder) for holder in run.holders]
    for instance in run.instances.values():
        if instance.ended:
            continue
        if instance.fan_out is not None and not instance.fan_out.finished:
            waits.append(RunWait(WaitsOn.WORK, instance.id, instance.work))
        if instance.state in _BY_STATE:
            waits.append(RunWait(_BY_STATE[instance.state], instance.id, instance.reason))
        waits += [RunWait(WaitsOn.HOLDER, instance.id, holder) for holder in instance.holders]
    waits += [RunWait(WaitsOn.LIBRARY, entry.instance, entry.action) for entry in run.stack if entry.pending]
    if run.phase is RunPhase.COMPENSATING and run.stack:
        top = run.stack[-1]
        if top.held:
            waits.append(RunWait(WaitsOn.COMPENSATION, top.instance, f"!{top.number}"))
        elif top.fan_out is not None and not top.fan_out.finished:
            waits.append(RunWait(WaitsOn.WORK, top.instance, top.undo))
    return tuple(waits)


def is_held(run: FlowRun) -> bool:
    """Whether the run makes no progress until somebody decides."""
    waits = waits_for(run)
    return bool(waits) and all(wait.what in PEOPLE for wait in waits)
