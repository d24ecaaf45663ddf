"""The primitives that exlets are made of: each one thing that is done, with its arguments.

The thirteen of paper P1 are `Steer` (remove, suspend and continue of an item, a case or all cases; restart, force-complete and force-fail of an
item) and `CompensateAction`; `Select` is of its selection service. The job patterns of paper P0 are `Restage`, `FreeSpace`, `ReserveSpace`, `Resubmit`,
`Repoll` and `Reregister`. `ClimbLadder`, `Rollback`, `Notify`, `AvoidHost` and `Hold` are the house's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

MAX_WORKLETS = 16
"""Worklets that one step runs together."""
MAX_MAPPINGS = 64
MAX_WAIT = 30 * 86_400
"""Seconds that a step may put something off."""
MAX_SIZE = 1 << 50
MAX_FACTOR = 64
MAX_TEXT = 500
MAX_RECIPIENTS = 16


class Action(StrEnum):
    """What is done; the value is its name in documents."""

    REMOVE = "remove"
    SUSPEND = "suspend"
    CONTINUE = "continue"
    """Takes away what this very exlet has suspended, and nothing else."""
    RESTART = "restart"
    FORCE_COMPLETE = "force-complete"
    FORCE_FAIL = "force-fail"
    COMPENSATE = "compensate"
    """Runs worklets, and goes on when all of them have ended."""
    SELECT = "select"
    """Runs a worklet for the late-bound task."""
    RESTAGE = "restage"
    FREE_SPACE = "free-space"
    RESERVE_SPACE = "reserve-space"
    RESUBMIT = "resubmit"
    REPOLL = "repoll"
    """Answers polls for the job that was submitted first with what the one in its place is at."""
    REREGISTER = "reregister"
    """Has the end of the job in its place told to whoever waits for the first one."""
    LADDER = "ladder"
    """Tries again after the wait of the level that comes next."""
    ROLLBACK = "rollback"
    """Fails the case: what it did is compensated, the last thing first."""
    NOTIFY = "notify"
    AVOID_HOST = "avoid-host"
    HOLD = "hold"
    """Keeps it for a person: it stays suspended, and is shown in the inbox."""


class ActionTarget(StrEnum):
    """What is meant, from the small to the large."""

    SUBJECT = "subject"
    """What the exception is about: its job, or its item if it is about no job. The default. A decision has one of the others in its place."""
    JOB = "job"
    """The one job that the exception is about; of a scatter one element."""
    ITEM = "item"
    """The work item; of a job that no case asked for, the job itself."""
    CASE = "case"
    ANCESTORS = "ancestors"
    """The case, the case that started it, and on upwards: all cases, restricted to ancestors."""
    ALL_CASES = "all-cases"
    """Every case of the same version of the flow; suspended, also those that start later."""


@dataclass(frozen=True, slots=True)
class Steer:
    """Does something to an item, a case, all cases or the ancestors."""

    action: Action
    target: ActionTarget = ActionTarget.SUBJECT


STEERING = frozenset(
    {
        Action.REMOVE,
        Action.SUSPEND,
        Action.CONTINUE,
        Action.RESTART,
        Action.FORCE_COMPLETE,
        Action.FORCE_FAIL,
    }
)
"""The actions of `Steer`."""


@dataclass(frozen=True, slots=True)
class Worklet:
    """A flow that is run as a case of its own, and the data that go in and come back."""

    flow: str
    """The version of a stored flow."""
    give: Mapping[str, object] = field(default_factory=dict)
    """Its parameters. In a text, ``${params.NAME}``, ``${tasks.NAME.result…}`` or ``${incident.…}`` stands for a value of the case or incident."""
    take: Mapping[str, str] = field(default_factory=dict)
    """What comes back: the case's parameter, and the worklet's output that it is set to."""


@dataclass(frozen=True, slots=True)
class CompensateAction:
    """Runs worklets together; the exlet goes on when all have ended well."""

    worklets: tuple[Worklet, ...]

    action = Action.COMPENSATE


@dataclass(frozen=True, slots=True)
class Select:
    """Chooses the worklet that a late-bound task runs, or that runs in the place of an item."""

    worklet: Worklet

    action = Action.SELECT


class Restaging(StrEnum):
    """How files are brought again."""

    SAME = "same"
    CHANGED = "changed"
    """With another protocol, buffer or time limit."""
    OTHER_REPLICA = "other-replica"
    OTHER_TARGET = "other-target"


@dataclass(frozen=True, slots=True)
class Restage:
    """Stages the job's files again."""

    how: Restaging = Restaging.SAME
    protocol: str = ""
    buffer: int | None = None
    """Bytes."""
    timeout: int | None = None
    """Seconds."""
    place: str = ""
    """The other target; empty: any that fits."""

    action = Action.RESTAGE


@dataclass(frozen=True, slots=True)
class FreeSpace:
    """Makes room where the job's files are to go, by removing what may be removed."""

    size: int
    """Bytes."""

    action = Action.FREE_SPACE


@dataclass(frozen=True, slots=True)
class ReserveSpace:
    """Reserves space for the job's files."""

    size: int
    seconds: int = 86_400

    action = Action.RESERVE_SPACE


class Resubmission(StrEnum):
    """Where and how a job is tried again."""

    SAME = "same"
    CHANGED = "changed"
    """With other needs."""
    OTHER_DOMAIN = "other-domain"


class Amount(StrEnum):
    """A need of a job that may be changed."""

    CPUS = "cpus"
    MEMORY = "memory"
    DISK = "disk"
    GPUS = "gpus"
    WALL = "wall"


@dataclass(frozen=True, slots=True)
class NeedChange:
    """How a need changes: times a factor, or to an amount; never above the bound, and never below what it was."""

    factor: float | None = None
    to: int | None = None
    at_most: int | None = None


@dataclass(frozen=True, slots=True)
class Resubmit:
    """Retries the job."""

    how: Resubmission = Resubmission.SAME
    needs: Mapping[Amount, NeedChange] = field(default_factory=dict)
    wait: int = 0
    """Seconds."""
    domain: str = ""
    """The other domain; empty: any that can take it."""

    action = Action.RESUBMIT


@dataclass(frozen=True, slots=True)
class Repoll:
    action = Action.REPOLL


@dataclass(frozen=True, slots=True)
class Reregister:
    action = Action.REREGISTER


@dataclass(frozen=True, slots=True)
class ClimbLadder:
    """Tries the job again by a ladder: its level's wait, then the next level, then what the ladder says."""

    ladder: str = ""
    """Its name; empty: the house's."""

    action = Action.LADDER


@dataclass(frozen=True, slots=True)
class Rollback:
    action = Action.ROLLBACK


@dataclass(frozen=True, slots=True)
class Notify:
    """Tells people. Nobody named: the owner."""

    text: str
    to: tuple[str, ...] = ()

    action = Action.NOTIFY


class AvoidScope(StrEnum):
    """What is avoided."""

    HOST = "host"
    SITE = "site"


@dataclass(frozen=True, slots=True)
class AvoidHost:
    """Keeps the job away from where it failed, for some time."""

    seconds: int = 3600
    scope: AvoidScope = AvoidScope.HOST

    action = Action.AVOID_HOST


@dataclass(frozen=True, slots=True)
class Hold:
    """Suspends it for a person; the last step of its exlet."""

    target: ActionTarget = ActionTarget.SUBJECT
    reason: str = ""

    action = Action.HOLD


Primitive = (
    Steer
    | CompensateAction
    | Select
    | Restage
    | FreeSpace
    | ReserveSpace
    | Resubmit
    | Repoll
    | Reregister
    | ClimbLadder
    | Rollback
    | Notify
    | AvoidHost
    | Hold
)

KINDS: Mapping[Action, type[Primitive]] = {
    **dict.fromkeys(sorted(STEERING), Steer),
    Action.COMPENSATE: CompensateAction,
    Action.SELECT: Select,
    Action.RESTAGE: Restage,
    Action.FREE_SPACE: FreeSpace,
    Action.RESERVE_SPACE: ReserveSpace,
    Action.RESUBMIT: Resubmit,
    Action.REPOLL: Repoll,
    Action.REREGISTER: Reregister,
    Action.LADDER: ClimbLadder,
    Action.ROLLBACK: Rollback,
    Action.NOTIFY: Notify,
    Action.AVOID_HOST: AvoidHost,
    Action.HOLD: Hold,
}
"""The record of arguments that belongs to each action."""

INSIDE: Mapping[ActionTarget, frozenset[ActionTarget]] = {
    ActionTarget.SUBJECT: frozenset({ActionTarget.SUBJECT, ActionTarget.JOB}),
    ActionTarget.JOB: frozenset({ActionTarget.JOB}),
    ActionTarget.ITEM: frozenset({ActionTarget.JOB, ActionTarget.ITEM}),
    ActionTarget.CASE: frozenset({ActionTarget.JOB, ActionTarget.ITEM, ActionTarget.CASE}),
    ActionTarget.ANCESTORS: frozenset({ActionTarget.JOB, ActionTarget.ITEM, ActionTarget.CASE, ActionTarget.ANCESTORS}),
    ActionTarget.ALL_CASES: frozenset({ActionTarget.JOB, ActionTarget.ITEM, ActionTarget.CASE, ActionTarget.ALL_CASES}),
}
"""What is part of each target: what ends a case ends its items."""

RESENDING = frozenset({Action.RESTART, Action.RESUBMIT, Action.RESTAGE, Action.LADDER})
"""Those that send the work off again; an exlet has at most one of them."""
JOB_PATTERNS = frozenset(
    {
        Action.RESTAGE,
        Action.FREE_SPACE,
        Action.RESERVE_SPACE,
        Action.RESUBMIT,
        Action.REPOLL,
        Action.REREGISTER,
        Action.LADDER,
        Action.AVOID_HOST,
    }
)
"""Those that are about a job; no case as a whole has one."""


def target_of(primitive: Primitive) -> ActionTarget | None:
    """What a primitive is about; ``None``: nothing that can be suspended or ended."""
    match primitive:
        case Steer(target=target) | Hold(target=target):
            return target
        case Rollback():
            return ActionTarget.CASE
        case Restage() | Resubmit() | Repoll() | Reregister() | ClimbLadder() | AvoidHost():
            return ActionTarget.JOB
        case _:
            return None


def worklets_of(primitive: Primitive) -> tuple[Worklet, ...]:
    """The worklets that a primitive runs."""
    match primitive:
        case CompensateAction(worklets):
            return worklets
        case Select(worklet):
            return (worklet,)
        case _:
            return ()
