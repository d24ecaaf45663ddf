"""How many pilots to submit to a site: the PilotMonitor's algorithm of the paper, section IV-A, as a pure function.

The three thresholds are the paper's. The differences are deliberate:

* A pilot may have several slots, and sizes differ, so a pilot covers as many tasks of a group as it can run at once.
* If there is not enough room for all tasks of a group, as many pilots are sent as there is room for; the paper sends none.
* Idle pilots cover tasks too, as long as they can be expected to take them; otherwise a burst of tasks that idle pilots
  are just taking would be answered by as many new pilots. Tasks that wait in spite of idle pilots count as uncovered (`stale`).
* Pilots that wait at the scheduler and are needed by no task count as idle ones to be kept; otherwise each cycle would send
  them again until the scheduler starts the first.

Beyond the paper: launches are rate limited, and failed launches are followed by increasing waits, with one pilot sent as a probe
after each. Both are derived from the launches themselves, so that a restarted site agent knows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from forestay.domain.jobs.resources import Resources, fits

MINUTE = 60_000


def size_for(size: str, owner: str) -> str:
    """The name of a size whose pilots are one owner's, where jobs run as their submitters. A size has no slash in its name."""
    return f"{size}/{owner}" if owner else size


def size_and_owner(name: str) -> tuple[str, str]:
    """What such a name is made of; the owner is empty where pilots are for all."""
    size, _, owner = name.partition("/")
    return size, owner


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The site policy's bounds on the number of its pilots, those that wait at the scheduler included."""

    max_pilots: int
    min_pilots: int = 0
    min_idle: int = 0
    """Pilots that should stand ready beside those that tasks need."""
    max_per_owner: int | None = None
    """Of the pilots that are one owner's each, so many for one owner."""


@dataclass(frozen=True, slots=True)
class PilotSize:
    """One kind of pilot that may be sent: what it asks of the scheduler and offers to jobs."""

    name: str
    offers: Resources
    """All slots together; `wall` is how long the pilot may run jobs."""
    slots: int = 1
    owner: str = ""
    """Whose jobs alone its pilots run; empty: those of all. Its name then is that of `size_for`."""

    def at_once(self, need: Resources) -> int:
        """How many jobs with these needs one pilot runs at once; 0 if none fits."""
        if not fits(need, self.offers):
            return 0
        shares = [
            have // want
            for want, have in (
                (need.cpus, self.offers.cpus),
                (need.memory, self.offers.memory),
                (need.disk, self.offers.disk),
                (need.gpus, self.offers.gpus),
            )
            if want > 0
        ]
        return max(1, min([self.slots, *shares]))


@dataclass(frozen=True, slots=True)
class SubmissionPace:
    """The rate at which launches may be submitted. Times are in seconds."""

    per_minute: int = 60
    """Launches in any minute."""
    at_once: int = 20
    """Launches in one cycle."""
    first_wait: int = 30
    """The wait after the first failed round of launches; doubled with each further one."""
    longest_wait: int = 3600


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """Queued tasks with similar needs."""

    name: str
    tasks: int
    need: Resources
    """The needs of a typical one."""
    stale: bool = False
    """They have waited for a while although idle pilots stood by: those do not count for them."""
    owner: str = ""
    """Whose they are, where each pilot is one owner's."""


@dataclass(frozen=True, slots=True)
class PilotCount:
    """The pilots of one size by the paper's states."""

    inactive: int = 0
    """Planned, or waiting at the site's scheduler, or started and not yet registered."""
    idle: int = 0
    busy: int = 0

    @property
    def submitted(self) -> int:
        return self.inactive + self.idle + self.busy


@dataclass(frozen=True, slots=True)
class LaunchOutcome:
    """The outcome of a launch, as far as the pace of the next depends on it."""

    size: str
    planned: int
    """Milliseconds, as all times here."""
    good: bool = False
    """Its pilot registered."""
    failed: int | None = None
    """When it was known to have failed: refused by the scheduler, or ended before its pilot registered."""


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """What to send now, and why not more."""

    launches: Mapping[str, int] = field(default_factory=dict)
    """By size."""
    wanted: int = 0
    """How many would be sent without the pace."""
    paced: int = 0
    """How many of them wait because of the pace."""
    backing_off: Mapping[str, int] = field(default_factory=dict)
    """The sizes whose launches failed, and when the next may be sent."""
    unfit: tuple[str, ...] = ()
    """Groups that no size of this site can run."""
    uncovered: int = 0
    """Tasks for which the maximum number of pilots leaves no room."""

    @property
    def total(self) -> int:
        return sum(self.launches.values())


def plan(
    *,
    thresholds: Thresholds,
    sizes: Sequence[PilotSize],
    groups: Iterable[TaskGroup],
    pilots: Mapping[str, PilotCount],
    pace: SubmissionPace = SubmissionPace(),  # noqa: B008 - frozen
    history: Sequence[LaunchOutcome] = (),
    now: int = 0,
) -> FleetPlan:
    """The pilots to send to one site. The first size is the one that is kept idle; a group gets the first size that fits it.

    `pilots` may count pilots of sizes that are no longer in use: they take up room and cover nothing.
    """
    room = max(0, thresholds.max_pilots - sum(pilot.submitted for pilot in pilots.values()))
    fleet = _Fleet(sizes, pilots, room, thresholds.max_per_owner)
    unfit = fleet.cover(tuple(groups)) if sizes else ()
    if sizes:
        fleet.keep_ready(thresholds.min_idle)
        status = sum(pilot.submitted for pilot in pilots.values()) + sum(fleet.sent.values())
        fleet.send(sizes[0].name, thresholds.min_pilots - status)
    launches, resting = _paced(fleet.sent, pace, history, now)
    wanted = sum(fleet.sent.values())
    return FleetPlan(
        launches=launches,
        wanted=wanted,
        paced=wanted - sum(launches.values()),
        backing_off=resting,
        unfit=unfit,
        uncovered=fleet.uncovered,
    )


class _Fleet:
    """The existing pilots while tasks are distributed among them, and those to be sent."""

    def __init__(
        self, sizes: Sequence[PilotSize], pilots: Mapping[str, PilotCount], room: int, per_owner: int | None
    ) -> None:
        self.sizes = sizes
        self.per_owner = per_owner
        self.owned: dict[str, int] = {}
        """How many pilots each owner has."""
        for name, count in pilots.items():
            _, owner = size_and_owner(name)
            self.owned[owner] = self.owned.get(owner, 0) + count.submitted
        self.coming = {size.name: pilots.get(size.name, PilotCount()).inactive for size in sizes}
        self.idle = {size.name: pilots.get(size.name, PilotCount()).idle for size in sizes}
        self.room = room
        self.sent: dict[str, int] = {}
        self.uncovered = 0

    def cover(self, groups: Sequence[TaskGroup]) -> tuple[str, ...]:
        """Find pilots for the tasks of groups, or send them, for the first groups first; returns the groups that no size can run."""
        fitting = {
            number: [
                (size, many) for size in self.sizes if size.owner == group.owner and (many := size.at_once(group.need))
            ]
            for number, group in enumerate(groups)
        }
        left: dict[int, int] = {}
        # Groups that only the last sizes fit choose first. Otherwise one that fits many would take, in the next cycle, the pilot
        # that was sent for one that fits few, for which another pilot would then be sent.
        for number in sorted(filter(fitting.get, fitting), key=lambda number: -self.sizes.index(fitting[number][0][0])):
            left[number] = self._take_free(groups[number], fitting[number])
        for number, tasks in sorted(left.items()):
            size, many = fitting[number][0]
            self.uncovered += max(0, tasks - many * self.send(size.name, -(-tasks // many)))
        return tuple(group.name for number, group in enumerate(groups) if not fitting[number])

    def _take_free(self, group: TaskGroup, fitting: Sequence[tuple[PilotSize, int]]) -> int:
        """Assign the tasks of a group to present or expected pilots, first to those that run the most of them; returns how many are left."""
        left = group.tasks
        widest = sorted(fitting, key=lambda choice: -choice[1])
        for free in (self.coming,) if group.stale else (self.idle, self.coming):
            for size, many in widest:
                used = min(free[size.name], -(-left // many))
                free[size.name] -= used
                left = max(0, left - used * many)
        return left

    def keep_ready(self, wanted: int) -> None:
        """Send pilots until this many that no task needs are ready, or will be."""
        ready = sum(self.idle.values()) + sum(self.coming.values())
        self.send(self.sizes[0].name, wanted - ready)

    def send(self, size: str, many: int) -> int:
        """Send as many as there is room for; gives how many."""
        _, owner = size_and_owner(size)
        room = self.room
        if owner and self.per_owner is not None:
            room = min(room, self.per_owner - self.owned.get(owner, 0))
        many = max(0, min(many, room))
        if many:
            self.room -= many
            self.owned[owner] = self.owned.get(owner, 0) + many
            self.sent[size] = self.sent.get(size, 0) + many
        return many


def _paced(
    wanted: Mapping[str, int], pace: SubmissionPace, history: Sequence[LaunchOutcome], now: int
) -> tuple[dict[str, int], dict[str, int]]:
    """The wanted launches that may be made now, and the sizes that wait after failures."""
    recent = sum(now - outcome.planned < MINUTE for outcome in history)
    free = max(0, min(pace.at_once, pace.per_minute - recent))
    launches: dict[str, int] = {}
    resting: dict[str, int] = {}
    for size, many in wanted.items():
        allowed = many
        trouble = _trouble([outcome for outcome in history if outcome.size == size], pace)
        if trouble is not None:
            until, probing = trouble
            allowed = 0 if now < until or probing else min(many, 1)
            if allowed < many:
                resting[size] = until
        allowed = min(allowed, free)
        free -= allowed
        if allowed:
            launches[size] = allowed
    return launches, resting


def _trouble(history: Sequence[LaunchOutcome], pace: SubmissionPace) -> tuple[int, bool] | None:
    """Until when a size waits after failures, and whether a probe is in progress; None if the last known launch succeeded.

    Launches that were in progress together and failed together are one round, so that a burst of failures does not
    lead to the longest wait at once.
    """
    rounds = 0
    known_at = until = 0
    last_good = max((outcome.planned for outcome in history if outcome.good), default=-1)
    failures = sorted(
        (outcome.failed, outcome.planned)
        for outcome in history
        if outcome.failed is not None and outcome.planned > last_good
    )
    for failed, planned in failures:
        if not rounds or planned >= known_at:
            rounds += 1
            known_at = failed
        wait = min(pace.longest_wait, pace.first_wait << min(rounds - 1, 30))
        until = failed + 1000 * wait
    if not rounds:
        return None
    last = failures[-1][0]
    probing = any(not outcome.good and outcome.failed is None and outcome.planned >= last for outcome in history)
    return until, probing
