"""What is tried: one exlet for each primitive, on a case that waits for it."""

from __future__ import annotations

from dataclasses import dataclass

from forestay.domain.exlets.exlet import Exlet, PlaybookStep
from forestay.domain.exlets.primitive import (
    Action,
    ActionTarget,
    Amount,
    AvoidHost,
    ClimbLadder,
    CompensateAction,
    Hold,
    NeedChange,
    Notify,
    Primitive,
    Resubmission,
    Resubmit,
    Rollback,
    Select,
    Steer,
    Worklet,
)

PARENT = """
forestay: 1
name: parent-NUMBER
params: {venue: arena}
tasks:
  show: {command: [show, "${params.venue}"], max_attempts: 1, when_exhausted: hold}
  after: {command: [after], after: [show]}
outputs: {venue: "${params.venue}"}
"""
"""Its first job waits: no pilot takes it."""
WORKLET = """
forestay: 1
name: worklet
params: {from: ""}
tasks: {book: {merge: {venue: "not ${params.from}"}}}
outputs: {venue: "not ${params.from}"}
"""
"""Ends by itself."""
CHANGE = "change"
"""Stands for the version of the worklet."""


@dataclass(frozen=True, slots=True)
class Tried:
    """One primitive."""

    name: str
    steps: tuple[Primitive, ...]
    faulted: bool = False
    """The job has failed once before."""
    held: bool = False
    """The incident ends with a person."""

    def exlet(self, worklet: str) -> Exlet:
        """With the version of the worklet put in its place."""
        return Exlet(self.name, tuple(PlaybookStep(_with(one, worklet)) for one in self.steps))


def _with(do: Primitive, flow: str) -> Primitive:
    match do:
        case CompensateAction(worklets):
            return CompensateAction(tuple(Worklet(flow, one.give, one.take) for one in worklets))
        case Select(worklet):
            return Select(Worklet(flow, worklet.give))
        case _:
            return do


def _steered(action: Action, target: ActionTarget, *before: Primitive) -> Tried:
    return Tried(f"{action}-{target}", (*before, Steer(action, target)))


_TARGETS = (ActionTarget.ITEM, ActionTarget.CASE, ActionTarget.ALL_CASES, ActionTarget.ANCESTORS)
_BOOK = CompensateAction(
    (Worklet(CHANGE, {"from": "${params.venue}"}, {"venue": "venue"}), Worklet(CHANGE, {"from": "nowhere"}))
)
PRIMITIVES: tuple[Tried, ...] = (
    *(_steered(Action.REMOVE, target) for target in _TARGETS),
    *(_steered(Action.CONTINUE, target, Steer(Action.SUSPEND, target)) for target in _TARGETS),
    *(_steered(action, ActionTarget.ITEM) for action in (Action.RESTART, Action.FORCE_COMPLETE, Action.FORCE_FAIL)),
    *(_steered(action, ActionTarget.JOB) for action in (Action.REMOVE, Action.FORCE_COMPLETE, Action.FORCE_FAIL)),
    _steered(Action.CONTINUE, ActionTarget.JOB, Steer(Action.SUSPEND, ActionTarget.JOB)),
    Tried("compensate", (Steer(Action.SUSPEND, ActionTarget.CASE), _BOOK, Steer(Action.CONTINUE, ActionTarget.CASE))),
    Tried("select", (Select(Worklet(CHANGE)),)),
    Tried("resubmit", (Resubmit(Resubmission.CHANGED, {Amount.MEMORY: NeedChange(to=1 << 20)}),), faulted=True),
    Tried("ladder", (ClimbLadder(),), faulted=True),
    Tried("avoid-host", (AvoidHost(), Resubmit()), faulted=True),
    Tried("restart-job", (Steer(Action.RESTART, ActionTarget.JOB),), faulted=True),
    Tried("rollback", (Rollback(),)),
    Tried("notify", (Notify("look at this"),)),
    Tried("hold", (Hold(ActionTarget.CASE),), held=True),
)
"""The thirteen of paper P1, with ancestors and single jobs, and those of the house that need nothing else."""
