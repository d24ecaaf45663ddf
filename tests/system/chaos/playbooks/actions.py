"""What is tried: one playbook for each action, on a run that waits for it."""

from __future__ import annotations

from dataclasses import dataclass

from forestay.domain.playbooks.action import (
    Action,
    ActionKind,
    ActionTarget,
    Amount,
    AvoidHost,
    CompensateAction,
    Hold,
    NeedChange,
    Notify,
    Resubmission,
    Resubmit,
    RetryByPolicy,
    Rollback,
    Select,
    Steer,
    Worklet,
)
from forestay.domain.playbooks.playbook import Playbook, PlaybookStep

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
    """One action."""

    name: str
    steps: tuple[Action, ...]
    faulted: bool = False
    """The job has failed once before."""
    held: bool = False
    """The incident ends with a person."""

    def playbook(self, worklet: str) -> Playbook:
        """With the version of the worklet put in its place."""
        return Playbook(self.name, tuple(PlaybookStep(_with(step, worklet)) for step in self.steps))


def _with(do: Action, flow: str) -> Action:
    match do:
        case CompensateAction(worklets):
            return CompensateAction(
                tuple(Worklet(flow, other_worklet.give, other_worklet.take) for other_worklet in worklets)
            )
        case Select(worklet):
            return Select(Worklet(flow, worklet.give))
        case _:
            return do


def _steered(action: ActionKind, target: ActionTarget, *before: Action) -> Tried:
    return Tried(f"{action}-{target}", (*before, Steer(action, target)))


_TARGETS = (ActionTarget.TASK, ActionTarget.RUN, ActionTarget.ALL_RUNS, ActionTarget.ANCESTORS)
_BOOK = CompensateAction(
    (Worklet(CHANGE, {"from": "${params.venue}"}, {"venue": "venue"}), Worklet(CHANGE, {"from": "nowhere"}))
)
ACTIONS: tuple[Tried, ...] = (
    *(_steered(ActionKind.REMOVE, target) for target in _TARGETS),
    *(_steered(ActionKind.CONTINUE, target, Steer(ActionKind.SUSPEND, target)) for target in _TARGETS),
    *(
        _steered(action, ActionTarget.TASK)
        for action in (ActionKind.RESTART, ActionKind.FORCE_COMPLETE, ActionKind.FORCE_FAIL)
    ),
    *(
        _steered(action, ActionTarget.JOB)
        for action in (ActionKind.REMOVE, ActionKind.FORCE_COMPLETE, ActionKind.FORCE_FAIL)
    ),
    _steered(ActionKind.CONTINUE, ActionTarget.JOB, Steer(ActionKind.SUSPEND, ActionTarget.JOB)),
    Tried(
        "compensate", (Steer(ActionKind.SUSPEND, ActionTarget.RUN), _BOOK, Steer(ActionKind.CONTINUE, ActionTarget.RUN))
    ),
    Tried("select", (Select(Worklet(CHANGE)),)),
    Tried("resubmit", (Resubmit(Resubmission.CHANGED, {Amount.MEMORY: NeedChange(to=1 << 20)}),), faulted=True),
    Tried("retry", (RetryByPolicy(),), faulted=True),
    Tried("avoid-host", (AvoidHost(), Resubmit()), faulted=True),
    Tried("restart-job", (Steer(ActionKind.RESTART, ActionTarget.JOB),), faulted=True),
    Tried("rollback", (Rollback(),)),
    Tried("notify", (Notify("look at this"),)),
    Tried("hold", (Hold(ActionTarget.RUN),), held=True),
)
"""The thirteen of paper P1, with ancestors and single jobs, and those of the default policy that need nothing else."""
