"""Which hosts get no jobs because jobs fail there: the broken machine that takes job after job and loses each at once.

A host that fails jobs fast, one after the other, is *closed* after five of them, or after a minute of nothing else. It then gets nothing but a *probe*, one job after a
while; when that goes well it is open again, when not it waits longer. A closing ends by itself after an hour at the latest.

A failure counts against a host only if it is likely the host's: its cause says so, or jobs of the same specification went well on other hosts. Failures that point nowhere count
once different owners have met them there. A program that fails everywhere closes nothing, and never are more than a set share of the hosts closed. What is done about the failing
work itself is in `failing_work`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum


class HostStatus(StrEnum):
    """Whether a host gets jobs."""

    OPEN = "open"
    CLOSED = "closed"
    PROBING = "probing"
    """It has one job, by which it is judged."""


@dataclass(frozen=True, slots=True)
class HealthPolicy:
    """When hosts are closed and opened again. Times are in seconds."""

    fast: int = 60
    """A failure within so long of the start is fast; what runs longer has shown that the host can run something."""
    most: int = 5
    span: int = 60
    probe_after: int = 30
    """Doubled with each probe that fails."""
    longest: int = 600
    expiry: int = 3600
    forget: int = 600
    """Failures older than this no longer count."""
    doubt: int = 10
    """Work that only fails on a host is tried there so far apart."""
    share: float = 0.25
    """Of all hosts, so many may be closed at a time; one of several always may."""


HOSTS_FAILURE = frozenset({"node", "disk"})
"""Causes that are the host's."""
NOT_THE_HOSTS = frozenset(
    {"bad-input", "policy", "preempted", "time", "memory", "data-missing", "data-corrupt", "scheduler", "cleanup"}
)
"""Causes that say nothing about the host. All others may be its failure or not."""


@dataclass(frozen=True, slots=True)
class HostFailure:
    """One attempt that failed fast on a host, or a check that the host did not pass."""

    what: str
    """The job and its attempt, or the check: the same is never counted twice."""
    at: int
    owner: str = ""
    specification: str = ""
    cause: str = ""
    sure: bool = False
    """It is the host's: by its cause, by a rule, or because the same goes well elsewhere."""


@dataclass(frozen=True, slots=True)
class HostHealth:
    """What is known of one host. Times are milliseconds since 1970. A host of which nothing is known is open."""

    host: str
    status: HostStatus = HostStatus.OPEN
    failures: tuple[HostFailure, ...] = ()
    """Since something last went well there; the newest ones."""
    since: int = 0
    probe_at: int = 0
    """When the next probe may be given; 0: never, a person closed it."""
    until: int = 0
    """When the closing ends by itself; 0: only a person ends it."""
    probes: int = 0
    """That failed since it was closed."""
    by: str = ""
    """The person who closed it; empty: it was closed for its failures."""
    reason: str = ""

    @property
    def quiet(self) -> bool:
        """Whether there is nothing to say about it."""
        return self.status is HostStatus.OPEN and not self.failures


def blamed(cause: str) -> bool | None:
    """Whether a cause is the host's; None: it may be."""
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
    """A failure on a host is noted; a probe that failed puts off the next one."""
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
    """Jobs of a specification fail on several hosts and go well on none: that is not the hosts' failure."""
    kept = tuple(failure for failure in health.failures if failure.sure or failure.specification != specification)
    return health if len(kept) == len(health.failures) else replace(health, failures=kept)


def convinced(health: HostHealth, well_elsewhere: Callable[[str], bool]) -> HostHealth:
    """What fails here goes well elsewhere by now."""
    if all(failure.sure or not well_elsewhere(failure.specification) for failure in health.failures):
        return health
    surer = (
        replace(failure, sure=failure.sure or well_elsewhere(failure.specification)) for failure in health.failures
    )
    return replace(health, failures=tuple(surer))


def close(health: HostHealth, *, now: int, policy: HealthPolicy) -> HostHealth:
    """Close a host for its failures."""
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
    """A person closes a host: no probes, until it is opened or the time is over."""
    until = 0 if seconds is None else now + 1000 * seconds
    return HostHealth(host, HostStatus.CLOSED, since=now, until=until, by=by, reason=reason)


def probed(health: HostHealth, *, now: int) -> HostHealth:
    """One job was given to a closed host."""
    return replace(health, status=HostStatus.PROBING, since=now) if health.status is HostStatus.CLOSED else health


def went_well(health: HostHealth) -> HostHealth:
    """Something went well on a host: what was held against it is forgotten. What a person closed stays closed."""
    return health if health.by else HostHealth(health.host)


def passed(health: HostHealth, *, now: int, policy: HealthPolicy) -> HostHealth:
    """What time alone changes: closings end, and a probe of which nothing is heard has shown that the host runs something."""
    if health.until and now >= health.until and health.status is not HostStatus.OPEN:
        return HostHealth(health.host)
    if health.status is HostStatus.PROBING and now - health.since >= 1000 * policy.fast:
        return HostHealth(health.host)
    if health.status is HostStatus.OPEN and health.failures and now - health.failures[-1].at >= 1000 * policy.forget:
        return HostHealth(health.host)
    return health


def allowance(health: HostHealth | None, *, proven: bool, out: int, now: int, policy: HealthPolicy) -> int | None:
    """How many more jobs a host may get now; None: as many as it wants.

    `out` are those it has had for less than the time in which a failure is fast. A host on which nothing has gone well yet, or that has failed since, gets no
    more at once than it may lose.
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
    """How a host stands, in plain words."""
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
    """The form in which a store keeps them."""
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
    """Read them back; what a newer writer means by words we do not know is an open host."""
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
