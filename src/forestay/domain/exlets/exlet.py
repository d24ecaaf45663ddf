"""An exlet: the named, ordered steps that answer an exception. Any number of rules, of any rule sets, may conclude the same one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from forestay.domain.exlets.primitive import Action, ActionTarget, Hold, Primitive, Steer

MAX_STEPS = 32


class WhenRefused(StrEnum):
    """What a step that cannot be done means for the exlet."""

    STOP = "stop"
    """The exlet has failed, and a person is asked; what it suspended stays suspended."""
    GO_ON = "go-on"


@dataclass(frozen=True, slots=True)
class PlaybookStep:
    """One primitive of an exlet."""

    do: Primitive
    when_refused: WhenRefused | None = None
    """``None``: as `refusal_of` says."""

    @property
    def action(self) -> Action:
        return self.do.action


_HARMLESS = frozenset({Action.CONTINUE, Action.NOTIFY, Action.AVOID_HOST, Action.REPOLL, Action.REREGISTER})
"""Actions without which the rest of an exlet still makes sense."""


def refusal_of(step: PlaybookStep) -> WhenRefused:
    """What becomes of the exlet when this step is refused."""
    if step.when_refused is not None:
        return step.when_refused
    return WhenRefused.GO_ON if step.action in _HARMLESS else WhenRefused.STOP


@dataclass(frozen=True, slots=True)
class Exlet:
    """What is done about an exception."""

    name: str
    steps: tuple[PlaybookStep, ...]
    description: str = ""


_ONE_WRITE = frozenset(
    {
        Action.RESUBMIT,
        Action.LADDER,
        Action.AVOID_HOST,
        Action.RESTAGE,
        Action.FREE_SPACE,
        Action.RESERVE_SPACE,
    }
)
_FORCED = frozenset({Action.RESTART, Action.FORCE_COMPLETE, Action.FORCE_FAIL, Action.REMOVE, Action.SUSPEND})


def aimed(exlet: Exlet, *, at_job: bool) -> Exlet:
    """The exlet for one exception: steps without a target of their own are about its job, or about its item if it is about no job."""
    subject = ActionTarget.JOB if at_job else ActionTarget.ITEM

    def aim(step: PlaybookStep) -> PlaybookStep:
        match step.do:
            case Steer(target=ActionTarget.SUBJECT) | Hold(target=ActionTarget.SUBJECT):
                return replace(step, do=replace(step.do, target=subject))
            case _:
                return step

    return replace(exlet, steps=tuple(aim(step) for step in exlet.steps))


def is_one_write(exlet: Exlet, *, of_case: bool = False) -> bool:
    """Whether the whole exlet is one write on one job's document, for which no workflow is needed.

    ``of_case``: the job belongs to a case, so that its item is more than the job.
    """
    if len(exlet.steps) != 1:
        return False
    do = exlet.steps[0].do
    if do.action in _ONE_WRITE:
        return True
    match do:
        case Steer(action, target) if action in _FORCED:
            return target is ActionTarget.JOB or (target in (ActionTarget.SUBJECT, ActionTarget.ITEM) and not of_case)
        case Hold(target):
            return target is ActionTarget.JOB or (target in (ActionTarget.SUBJECT, ActionTarget.ITEM) and not of_case)
        case _:
            return False


def is_of_job(exlet: Exlet) -> bool:
    """Whether every step is about the job alone and over at once, so that they can be done one after the other without a workflow."""
    return all(one.action in _ONE_WRITE or one.action is Action.NOTIFY for one in exlet.steps)


def actions_of(steps: Sequence[PlaybookStep]) -> tuple[str, ...]:
    """An exlet in a line, for people: ``suspend case``, ``compensate``, ``continue case``."""
    return tuple(f"{one.action} {one.do.target}" if isinstance(one.do, Steer) else one.action.value for one in steps)
