"""The actions of playbooks: each is one effect, with its arguments.

The thirteen of paper P1 are `Steer` (remove, suspend and continue of a task, a run or all runs; restart, force-complete and force-fail of a
task) and `CompensateAction`; `Select` is of its selection service. The job patterns of paper P0 are `Restage`, `FreeSpace`, `ReserveSpace`, `Resubmit`,
`Repoll` and `Reregister`. `Remake`, `RetryByPolicy`, `Rollback`, `Notify`, `AvoidHost` and `Hold` are additions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

MAX_WORKLETS = 16
"""Worklets that one step runs together."""
MAX_MAPPINGS = 64
MAX_WAIT = 30 * 86_400
"""The longest delay of a step in seconds."""
MAX_SIZE = 1 << 50
MAX_FACTOR = 64
MAX_TEXT = 500
MAX_RECIPIENTS = 16


class ActionKind(StrEnum):
    """What is done; the value is its name in documents."""

    REMOVE = "remove"
    SUSPEND = "suspend"
    CONTINUE = "continue"
    """Ends the suspensions of this playbook, and no others."""
    RESTART = "restart"
    FORCE_COMPLETE = "force-complete"
    FORCE_FAIL = "force-fail"
    COMPENSATE = "compensate"
    """Runs worklets, and continues when all of them have ended."""
    SELECT = "select"
    """Runs a worklet for the late-bound task."""
    RESTAGE = "restage"
    REMAKE = "remake"
    """Has the producer of a lost input make it again, and retries the failed job when that is done."""
    FREE_SPACE = "free-space"
    RESERVE_SPACE = "reserve-space"
    RESUBMIT = "resubmit"
    REPOLL = "repoll"
    """Answers polls for the original job with the state of its replacement."""
    REREGISTER = "reregister"
    """Reports the end of the replacement job to those who wait for the original."""
    RETRY = "retry"
    """Retries after the wait of the next level."""
    ROLLBACK = "rollback"
    """Fails the run: its completed tasks are compensated, in reverse order."""
    NOTIFY = "notify"
    AVOID_HOST = "avoid-host"
    HOLD = "hold"
    """Leaves it to a person: it stays suspended, and is shown in the inbox."""


class ActionTarget(StrEnum):
    """The target of an action, from the smallest to the largest."""

    SUBJECT = "subject"
    """The subject of the exception: its job, or its task if there is no job. The default. A decision replaces it by one of the others."""
    JOB = "job"
    """The job that the exception is about; in a scatter one element."""
    TASK = "task"
    """The task; for a job without a run, the job itself."""
    RUN = "run"
    ANCESTORS = "ancestors"
    """The run, the run that started it, and so on upwards: all runs, restricted to ancestors."""
    ALL_RUNS = "all-runs"
    """Every run of the same version of the flow; a suspension includes those that start later."""


@dataclass(frozen=True, slots=True)
class Steer:
    """Does something to a task, a run, all runs or the ancestors."""

    action: ActionKind
    target: ActionTarget = ActionTarget.SUBJECT


STEERING = frozenset(
    {
        ActionKind.REMOVE,
        ActionKind.SUSPEND,
        ActionKind.CONTINUE,
        ActionKind.RESTART,
        ActionKind.FORCE_COMPLETE,
        ActionKind.FORCE_FAIL,
    }
)
"""The actions of `Steer`."""


@dataclass(frozen=True, slots=True)
class Worklet:
    """A flow that is run as a run of its own, and the data that go in and come back."""

    flow: str
    """The version of a stored flow."""
    give: Mapping[str, object] = field(default_factory=dict)
    """Its parameters. In a text, ``${params.NAME}``, ``${tasks.NAME.result…}`` or ``${incident.…}`` stands for a value of the run or incident."""
    take: Mapping[str, str] = field(default_factory=dict)
    """The returned data: the run's parameter, and the worklet's output that it is set to."""


@dataclass(frozen=True, slots=True)
class CompensateAction:
    """Runs worklets together; the playbook continues when all have succeeded."""

    worklets: tuple[Worklet, ...]

    action = ActionKind.COMPENSATE


@dataclass(frozen=True, slots=True)
class Select:
    """Chooses the worklet that a late-bound task runs, or that runs in the place of a task."""

    worklet: Worklet

    action = ActionKind.SELECT


class Restaging(StrEnum):
    """How files are staged again."""

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
    """The other target; empty: any suitable one."""

    action = ActionKind.RESTAGE


@dataclass(frozen=True, slots=True)
class Remake:
    """Has a lost input made again by a new run of its producer; the failed job waits for it, and is not charged for the attempt."""

    action = ActionKind.REMAKE


@dataclass(frozen=True, slots=True)
class FreeSpace:
    """Frees space at the target of the job's files by deleting removable files."""

    size: int
    """Bytes."""

    action = ActionKind.FREE_SPACE


@dataclass(frozen=True, slots=True)
class ReserveSpace:
    """Reserves space for the job's files."""

    size: int
    seconds: int = 86_400

    action = ActionKind.RESERVE_SPACE


class Resubmission(StrEnum):
    """Where and how a job is tried again."""

    SAME = "same"
    CHANGED = "changed"
    """With changed needs."""
    OTHER_DOMAIN = "other-domain"


class Amount(StrEnum):
    """A resource need of a job that may be changed."""

    CPUS = "cpus"
    MEMORY = "memory"
    DISK = "disk"
    GPUS = "gpus"
    WALL = "wall"


@dataclass(frozen=True, slots=True)
class NeedChange:
    """The change of a need: by a factor, or to an amount; never above the bound, and never below the present value."""

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
    """The other domain; empty: any that can run it."""

    action = ActionKind.RESUBMIT


@dataclass(frozen=True, slots=True)
class Repoll:
    action = ActionKind.REPOLL


@dataclass(frozen=True, slots=True)
class Reregister:
    action = ActionKind.REREGISTER


@dataclass(frozen=True, slots=True)
class RetryByPolicy:
    """Retries the job by a retry policy: its level's wait, then the next level, then the policy's final action."""

    retry_policy: str = ""
    """Its name; empty: the default policy's."""

    action = ActionKind.RETRY


@dataclass(frozen=True, slots=True)
class Rollback:
    action = ActionKind.ROLLBACK


@dataclass(frozen=True, slots=True)
class Notify:
    """Notifies people. Without a name: the owner."""

    text: str
    to: tuple[str, ...] = ()

    action = ActionKind.NOTIFY


class AvoidScope(StrEnum):
    """What is avoided."""

    HOST = "host"
    SITE = "site"


@dataclass(frozen=True, slots=True)
class AvoidHost:
    """Keeps the job away from where it failed, for some time."""

    seconds: int = 3600
    scope: AvoidScope = AvoidScope.HOST

    action = ActionKind.AVOID_HOST


@dataclass(frozen=True, slots=True)
class Hold:
    """Suspends it for a person; the last step of its playbook."""

    target: ActionTarget = ActionTarget.SUBJECT
    reason: str = ""

    action = ActionKind.HOLD


Action = (
    Steer
    | CompensateAction
    | Select
    | Restage
    | Remake
    | FreeSpace
    | ReserveSpace
    | Resubmit
    | Repoll
    | Reregister
    | RetryByPolicy
    | Rollback
    | Notify
    | AvoidHost
    | Hold
)

KINDS: Mapping[ActionKind, type[Action]] = {
    **dict.fromkeys(sorted(STEERING), Steer),
    ActionKind.COMPENSATE: CompensateAction,
    ActionKind.SELECT: Select,
    ActionKind.RESTAGE: Restage,
    ActionKind.REMAKE: Remake,
    ActionKind.FREE_SPACE: FreeSpace,
    ActionKind.RESERVE_SPACE: ReserveSpace,
    ActionKind.RESUBMIT: Resubmit,
    ActionKind.REPOLL: Repoll,
    ActionKind.REREGISTER: Reregister,
    ActionKind.RETRY: RetryByPolicy,
    ActionKind.ROLLBACK: Rollback,
    ActionKind.NOTIFY: Notify,
    ActionKind.AVOID_HOST: AvoidHost,
    ActionKind.HOLD: Hold,
}
"""The argument record of each action."""

_IN_RUN = frozenset({ActionTarget.SUBJECT, ActionTarget.JOB, ActionTarget.TASK, ActionTarget.RUN})
INSIDE: Mapping[ActionTarget, frozenset[ActionTarget]] = {
    ActionTarget.SUBJECT: frozenset({ActionTarget.SUBJECT, ActionTarget.JOB}),
    ActionTarget.JOB: frozenset({ActionTarget.JOB}),
    ActionTarget.TASK: frozenset({ActionTarget.SUBJECT, ActionTarget.JOB, ActionTarget.TASK}),
    ActionTarget.RUN: _IN_RUN,
    ActionTarget.ANCESTORS: _IN_RUN | {ActionTarget.ANCESTORS},
    ActionTarget.ALL_RUNS: _IN_RUN | {ActionTarget.ALL_RUNS},
}
"""The parts of each target: an action that ends a run ends its tasks, and the job or task that the exception is about."""

RESENDING = frozenset(
    {ActionKind.RESTART, ActionKind.RESUBMIT, ActionKind.RESTAGE, ActionKind.REMAKE, ActionKind.RETRY}
)
"""Those that start the work again; a playbook has at most one of them."""
JOB_PATTERNS = frozenset(
    {
        ActionKind.RESTAGE,
        ActionKind.REMAKE,
        ActionKind.FREE_SPACE,
        ActionKind.RESERVE_SPACE,
        ActionKind.RESUBMIT,
        ActionKind.REPOLL,
        ActionKind.REREGISTER,
        ActionKind.RETRY,
        ActionKind.AVOID_HOST,
    }
)
"""Those that apply to a job; a run as a whole has none."""


def target_of(action: Action) -> ActionTarget | None:
    """The target of an action; ``None``: nothing that can be suspended or ended."""
    match action:
        case Steer(target=target) | Hold(target=target):
            return target
        case Rollback():
            return ActionTarget.RUN
        case Restage() | Remake() | Resubmit() | Repoll() | Reregister() | RetryByPolicy() | AvoidHost():
            return ActionTarget.JOB
        case _:
            return None


def worklets_of(action: Action) -> tuple[Worklet, ...]:
    """The worklets that an action runs."""
    match action:
        case CompensateAction(worklets):
            return worklets
        case Select(worklet):
            return (worklet,)
        case _:
            return ()
