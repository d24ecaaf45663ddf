"""Which hosts get no jobs because jobs fail there, and which work is kept away from a host because it fails there.

A host on which jobs fail fast, one after another, is *closed* after five failures, or after a minute of nothing else. It then gets only a *probe*, one job after a
while; if the probe succeeds, the host is open again, otherwise it waits longer. A closure ends by itself after an hour at the latest.

A failure counts against a host only if the host is its likely cause: the classified cause indicates it, or jobs of the same specification succeeded on other hosts. Failures without an indication count
once different owners have had them there. A program that fails everywhere closes no host, and never more than a configured share of the hosts is closed.

The failing work itself is doubted meanwhile: a specification, or an owner whose different specifications fail, on one host. It does not slow down the work of others there. Work that fails on several
hosts is given out when no other work needs the slot; work that fails on one host only is kept away from that host, which may be the cause. Either is tried there now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum


class HostStatus(StrEnum):
    """Whether a host gets jobs."""

    OPEN = "open"
    CLOSED = "closed"
    PROBING = "probing"
    """It has one job, which serves as the test."""


@dataclass(frozen=True, slots=True)
class HealthPolicy:
    """When hosts are closed and opened again. Times are in seconds."""

    fast: int = 60
    """A failure within this time of the start is fast; a longer run has shown that the host works."""
    most: int = 5
    span: int = 60
    probe_after: int = 30
    """Doubled with each probe that fails."""
    longest: int = 600
    expiry: int = 3600
    forget: int = 600
    """Failures older than this no longer count."""
    doubt: int = 10
    """The interval between tries of work that only fails on a host."""
    share: float = 0.25
    """The share of all hosts that may be closed at a time; one of several always may."""


HOSTS_FAILURE = frozenset({"node", "disk"})
"""Causes that indicate a fault of the host."""
NOT_THE_HOSTS = frozenset(
    {"bad-input", "policy", "preempted", "time", "memory", "data-missing", "data-corrupt", "scheduler", "cleanup"}
)
"""Causes that say nothing about the host. All others may or may not be due to it."""


@dataclass(frozen=True, slots=True)
class HostFailure:
    """An attempt that failed fast on a host, or a check that the host failed."""

    what: str
    """The job and its attempt, or the check: the same is never counted twice."""
    at: int
    owner: str = ""
    specification: str = ""
    cause: str = ""
    sure: bool = False
    """The host is at fault: by the cause, by a rule, or because the same work succeeds elsewhere."""


@dataclass(frozen=True, slots=True)
class HostHealth:
    """The health of one host. Times are milliseconds since 1970. An unknown host is open."""

    host: str
    status: HostStatus = HostStatus.OPEN
    failures: tuple[HostFailure, ...] = ()
    """The newest failures since the last success there."""
    since: int = 0
    probe_at: int = 0
    """When the next probe may be given; 0: never, a person closed it."""
    until: int = 0
    """When the closure ends by itself; 0: only a person ends it."""
    probes: int = 0
    """Failed probes since it was closed."""
    by: str = ""
    """The person who closed it; empty: it was closed because of failures."""
    reason: str = ""

    @property
    def quiet(self) -> bool:
        """Whether there is nothing to record about it."""
        return self.status is HostStatus.OPEN and not self.failures


def blamed(cause: str) -> bool | None:
    """Whether a cause is a fault of the host; None: it may be."""
    return True if cause in HOSTS_FAILURE else False if cause in NOT_THE_HOSTS else None


def weight(health: HostHealth) -> int:
    """How many failures count against a host."""
    sure = sum(failure.sure for failure in health.failures)
    unsure = [failure for failure in health.failures if not failure.sure]
    different = {failure.owner for failure in health.failures}
    return sure + (len(unsure) if len(different) > 1 else 0)


def too_many(health: HostHealth, now: int, policy: HealthPolicy) -> bool:
    """Whether an open host should be closed."""
    count = weight(health)
    if count >= policy.most:
        return True
    return count >= 2 and now - health.failures[0].at >= 1000 * policy.span


def may_close(closed: int, hosts: int, policy: HealthPolicy) -> bool:
    """Whether one more of so many hosts may be closed."""
    return hosts > 1 and closed + 1 <= max(1, int(policy.share * hosts))


def failed(health: HostHealth, failure: HostFailure, *, now: int, policy: HealthPolicy) -> HostHealth:
    """Record a failure on a host; a failed probe postpones the next one."""
    if any(host_failure.what == failure.what and host_failure.sure >= failure.sure for host_failure in health.failures):
        return health
    recent = [
        host_failure
        for host_failure in health.failures
        if now - host_failure.at < 1000 * policy.forget and host_failure.what != failure.what
    ]
    health = replace(health, failures=(*recent, failure)[-4 * policy.most :])
    if health.status is not HostStatus.PROBING:
        return health
    probes = health.probes + 1
    wait = min(policy.probe_after * 2**probes, policy.longest)
    return replace(health, status=HostStatus.CLOSED, probes=probes, probe_at=now + 1000 * wait)


def absolved(health: HostHealth, specification: str) -> HostHealth:
    """Jobs of a specification fail on several hosts and succeed on none: the hosts are not at fault."""
    kept = tuple(failure for failure in health.failures if failure.sure or failure.specification != specification)
    return health if len(kept) == len(health.failures) else replace(health, failures=kept)


def convinced(health: HostHealth, well_elsewhere: Callable[[str], bool]) -> HostHealth:
    """Work that fails here has succeeded elsewhere: the host is at fault."""
    if all(failure.sure or not well_elsewhere(failure.specification) for failure in health.failures):
        return health
    surer = (
        replace(failure, sure=failure.sure or well_elsewhere(failure.specification)) for failure in health.failures
    )
    return replace(health, failures=tuple(surer))


def close(health: HostHealth, *, now: int, policy: HealthPolicy) -> HostHealth:
    """Close a host because of its failures."""
    counted = len(health.failures)
    causes = sorted({failure.cause for failure in health.failures if failure.cause})
    span = max(1, (now - health.failures[0].at) // 1000) if health.failures else 1
    words = f"{counted} jobs failed there within {_words(span)}, and none succeeded"
    return replace(
        health,
        status=HostStatus.CLOSED,
        since=now,
        probe_at=now + 1000 * policy.probe_after,
        until=now + 1000 * policy.expiry,
        probes=0,
        by="",
        reason=words + (f" ({', '.join(causes)})" if causes else ""),
    )


def close_by_hand(host: str, *, by: str, reason: str, now: int, seconds: int | None) -> HostHealth:
    """A person closes a host: no probes until it is opened or the time has passed."""
    until = 0 if seconds is None else now + 1000 * seconds
    return HostHealth(host, HostStatus.CLOSED, since=now, until=until, by=by, reason=reason)


def probed(health: HostHealth, *, now: int) -> HostHealth:
    """Record a probe: one job was given to a closed host."""
    return replace(health, status=HostStatus.PROBING, since=now) if health.status is HostStatus.CLOSED else health


def went_well(health: HostHealth) -> HostHealth:
    """Work succeeded on a host: its failures are cleared. A host closed by a person stays closed."""
    return health if health.by else HostHealth(health.host)


def passed(health: HostHealth, *, now: int, policy: HealthPolicy) -> HostHealth:
    """The changes with time alone: closures end, and a probe that has not failed so far has shown that the host works."""
    if health.until and now >= health.until and health.status is not HostStatus.OPEN:
        return HostHealth(health.host)
    if health.status is HostStatus.PROBING and now - health.since >= 1000 * policy.fast:
        return HostHealth(health.host)
    if health.status is HostStatus.OPEN and health.failures and now - health.failures[-1].at >= 1000 * policy.forget:
        return HostHealth(health.host)
    return health


def allowance(health: HostHealth | None, *, proven: bool, out: int, now: int, policy: HealthPolicy) -> int | None:
    """How many more jobs a host may get now; None: no limit.

    `out` are its jobs younger than the time within which a failure is fast. A host without a success so far, or with failures since, gets no
    more jobs at once than it may lose.
    """
    if health is not None and health.status is HostStatus.PROBING:
        return 0
    if health is not None and health.status is HostStatus.CLOSED:
        return 1 if health.probe_at and now >= health.probe_at else 0
    lost = weight(health) if health is not None else 0
    if proven and not lost:
        return None
    return max(0, policy.most - lost - out)


def explained(health: HostHealth, now: int) -> str:
    """The state of a host in words."""
    match health.status:
        case HostStatus.OPEN if health.failures:
            return f"open; {len(health.failures)} jobs failed there since the last success"
        case HostStatus.OPEN:
            return "open"
        case HostStatus.PROBING:
            return f"on trial with one job: {health.reason}"
    if health.by:
        until = f", for {_words(max(1, (health.until - now) // 1000))} more" if health.until else ""
        return f"closed by {health.by}{until}: {health.reason or 'no reason given'}"
    wait = max(0, (health.probe_at - now) // 1000)
    when = f"in {_words(wait)}" if wait else "with the next job"
    return f"closed: {health.reason}; tried again {when}"


def _words(seconds: int) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def as_plain(healths: Mapping[str, HostHealth]) -> dict[str, object]:
    """The stored form."""
    return {
        host: {
            "status": health.status.value,
            "failures": [
                [each.what, each.at, each.owner, each.specification, each.cause, each.sure] for each in health.failures
            ],
            "since": health.since, "probe_at": health.probe_at, "until": health.until, "probes": health.probes,
            "by": health.by, "reason": health.reason,
        }
        for host, health in healths.items()
        if not health.quiet
    }  # fmt: skip


def from_plain(body: Mapping[str, object], known: Collection[str] = frozenset(HostStatus)) -> dict[str, HostHealth]:
    """Read the stored form; an unknown status of a newer writer is read as open."""
    healths: dict[str, HostHealth] = {}
    for host, child in body.items():
        if not isinstance(child, Mapping) or child.get("status") not in known:
            continue
        failures = tuple(HostFailure(*each[:6]) for each in child.get("failures", ()))
        healths[host] = HostHealth(
            host, HostStatus(child["status"]), failures, child.get("since", 0), child.get("probe_at", 0), child.get("until", 0),
            child.get("probes", 0), child.get("by", ""), child.get("reason", ""),
        )  # fmt: skip
    return healths


class SlotTurn(IntEnum):
    """When a job may get a free slot of a host."""

    NOW = 0
    AFTER_OTHERS = 1
    """When no other work needs the slot."""
    NOT_HERE = 2
    """Another host may get it; this one not before its next try."""


@dataclass(slots=True)
class FailingWork:
    """Fast failures on one host since work of the same specification or owner last succeeded there."""

    failures: int = 0
    last: int = 0
    """When it last failed or was tried, in milliseconds since 1970."""
    specifications: set[str] = field(default_factory=set)

    def note(self, specification: str, now: int) -> None:
        self.failures += 1
        self.last = now
        if len(self.specifications) < 2:
            self.specifications.add(specification)


def work_keys(owner: str, specification: str) -> tuple[str, str]:
    """The names under which failing work is recorded."""
    return f"specification {specification}", f"owner {owner}"


def doubted(key: str, work: FailingWork, policy: HealthPolicy) -> bool:
    """Whether it has failed too often. An owner is judged only by different specifications."""
    return work.failures >= policy.most and (key.startswith("specification ") or len(work.specifications) > 1)


def slot_turn(
    works: Mapping[str, FailingWork], names: Iterable[str], everywhere: Iterable[str], now: int, policy: HealthPolicy
) -> SlotTurn:
    """When a job with these names may get a slot of the host; `everywhere` are the names that fail on several hosts."""
    worst = SlotTurn.NOW
    for key in names:
        work = works.get(key)
        if work is None or not doubted(key, work, policy) or now - work.last >= 1000 * policy.doubt:
            continue
        worst = max(worst, SlotTurn.AFTER_OTHERS if key in everywhere else SlotTurn.NOT_HERE)
    return worst


def explained_work(
    works: Mapping[str, FailingWork], everywhere: Iterable[str], policy: HealthPolicy, most: int = 3
) -> str:
    """The measures against failing work on a host, in words; empty if there are none."""
    found = {key: work for key, work in works.items() if doubted(key, work, policy)}
    parts = []
    for key, work in list(found.items())[:most]:
        how = "only when no other job waits" if key in everywhere else "not here"
        name = key if key.startswith("owner") else key[: len("specification ") + 12]
        parts.append(f"{name}: {work.failures} fast failures, {how}, and one every {policy.doubt} s")
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return "; ".join(parts) + more
