"""A playbook: the named, ordered steps that answer an exception. Any number of rules, of any rule sets, may conclude the same one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from forestay.domain.playbooks.action import Action, ActionKind, ActionTarget, Hold, Steer

MAX_STEPS = 32


class WhenRefused(StrEnum):
    """What a step that cannot be done means for the playbook."""

    STOP = "stop"
    """The playbook has failed, and a person is asked; what it suspended stays suspended."""
    GO_ON = "go-on"


@dataclass(frozen=True, slots=True)
class PlaybookStep:
    """One action of a playbook."""

    do: Action
    when_refused: WhenRefused | None = None
    """``None``: as `refusal_of` says."""

    @property
    def action(self) -> ActionKind:
        return self.do.action


_HARMLESS = frozenset(
    {ActionKind.CONTINUE, ActionKind.NOTIFY, ActionKind.AVOID_HOST, ActionKind.REPOLL, ActionKind.REREGISTER}
)
"""Actions without which the rest of a playbook still makes sense."""


def refusal_of(step: PlaybookStep) -> WhenRefused:
    """What becomes of the playbook when this step is refused."""
    if step.when_refused is not None:
        return step.when_refused
    return WhenRefused.GO_ON if step.action in _HARMLESS else WhenRefused.STOP


@dataclass(frozen=True, slots=True)
class Playbook:
    """What is done about an exception."""

    name: str
    steps: tuple[PlaybookStep, ...]
    description: str = ""


_ONE_WRITE = frozenset(
    {
        ActionKind.RESUBMIT,
        ActionKind.RETRY,
        ActionKind.AVOID_HOST,
        ActionKind.RESTAGE,
        ActionKind.FREE_SPACE,
        ActionKind.RESERVE_SPACE,
    }
)
_FORCED = frozenset(
    {ActionKind.RESTART, ActionKind.FORCE_COMPLETE, ActionKind.FORCE_FAIL, ActionKind.REMOVE, ActionKind.SUSPEND}
)


def aimed(playbook: Playbook, *, at_job: bool) -> Playbook:
    """The playbook for one exception: steps without a target of their own are about its job, or about its task if it is about no job."""
    subject = ActionTarget.JOB if at_job else ActionTarget.TASK

    def aim(step: PlaybookStep) -> PlaybookStep:
        match step.do:
            case Steer(target=ActionTarget.SUBJECT) | Hold(target=ActionTarget.SUBJECT):
                return replace(step, do=replace(step.do, target=subject))
            case _:
                return step

    return replace(playbook, steps=tuple(aim(step) for step in playbook.steps))


def is_one_write(playbook: Playbook, *, of_run: bool = False) -> bool:
    """Whether the whole playbook is one write on one job's document, for which no workflow is needed.

    ``of_run``: the job belongs to a run, so that its task is more than the job.
    """
    if len(playbook.steps) != 1:
        return False
    do = playbook.steps[0].do
    if do.action in _ONE_WRITE:
        return True
    match do:
        case Steer(action, target) if action in _FORCED:
            return target is ActionTarget.JOB or (target in (ActionTarget.SUBJECT, ActionTarget.TASK) and not of_run)
        case Hold(target):
            return target is ActionTarget.JOB or (target in (ActionTarget.SUBJECT, ActionTarget.TASK) and not of_run)
        case _:
            return False


def is_of_job(playbook: Playbook) -> bool:
    """Whether every step is about the job alone and over at once, so that they can be done one after the other without a workflow."""
    return all(step.action in _ONE_WRITE or step.action is ActionKind.NOTIFY for step in playbook.steps)


def actions_of(steps: Sequence[PlaybookStep]) -> tuple[str, ...]:
    """A playbook in a line, for people: ``suspend run``, ``compensate``, ``continue run``."""
    return tuple(
        f"{step.action} {step.do.target}" if isinstance(step.do, Steer) else step.action.value for step in steps
    )
