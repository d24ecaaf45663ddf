"""Quotas: how much an owner or a team of a tenant may use at once, and which attempts use it.

The policy of a tenant says who belongs to which team and who may use how much. A ledger has the attempts that use a part of one quota.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

from forestay.domain.jobs.resources import Resources

EVERY = "*"
"""The name under which those without limits of their own have theirs."""
MAX_SUBJECTS = 2000
MAX_MEMBERS = 10_000


class QuotaKind(StrEnum):
    """Whose quota it is."""

    OWNER = "owner"
    TEAM = "team"


KINDS = frozenset(kind.value for kind in QuotaKind)


class QuotaSubject(NamedTuple):
    """An owner or a team of a tenant."""

    kind: QuotaKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @staticmethod
    def named(text: str) -> QuotaSubject | None:
        """Parse a subject; None: a newer release has more kinds."""
        kind, _, name = text.partition(":")
        return QuotaSubject(QuotaKind(kind), name) if kind in KINDS else None


class QuotaUse(NamedTuple):
    """What running attempts use together, or one of them."""

    jobs: int = 0
    cpus: int = 0
    gpus: int = 0

    def plus(self, other: QuotaUse) -> QuotaUse:
        return QuotaUse(self.jobs + other.jobs, self.cpus + other.cpus, self.gpus + other.gpus)

    def minus(self, other: QuotaUse) -> QuotaUse:
        return QuotaUse(self.jobs - other.jobs, self.cpus - other.cpus, self.gpus - other.gpus)


def use_of(resources: Resources) -> QuotaUse:
    """What one attempt uses."""
    return QuotaUse(1, resources.used_cores, resources.gpus * resources.nodes)


WORDS = {"jobs": "running jobs", "cpus": "cores", "gpus": "GPUs"}


@dataclass(frozen=True, slots=True)
class QuotaLimits:
    """The most that may be used at once; None: no limit."""

    jobs: int | None = None
    cpus: int | None = None
    gpus: int | None = None
    share: float | None = None
    """The part that it should have beside others of its kind; None: 1."""
    extra: Mapping[str, object] = field(default_factory=dict)
    """Fields of a newer writer."""

    @property
    def limited(self) -> bool:
        return self.jobs is not None or self.cpus is not None or self.gpus is not None

    def lacking(self, used: QuotaUse, need: QuotaUse) -> str:
        """The first amount of which not enough is left: `jobs`, `cpus` or `gpus`; empty for none. What is not needed is never lacking."""
        for name, most, now, more in zip(QuotaUse._fields, (self.jobs, self.cpus, self.gpus), used, need, strict=True):
            if most is not None and more and now + more > most:
                return name
        return ""

    def room(self, used: QuotaUse, need: QuotaUse) -> int | None:
        """How many attempts with the same need fit into what is left; None: any number."""
        left = (
            max(0, most - now) // more
            for most, now, more in zip((self.jobs, self.cpus, self.gpus), used, need, strict=True)
            if most is not None and more
        )
        return min(left, default=None)


@dataclass(frozen=True, slots=True)
class QuotaPolicy:
    """The quotas, teams and shares of one tenant."""

    limits: Mapping[QuotaSubject, QuotaLimits] = field(default_factory=dict)
    teams: Mapping[str, str] = field(default_factory=dict)
    """The team of each owner that is in one."""
    half_life: int = 0
    """Seconds after which use of the past counts half in the fair share; 0: owners take turns, as without shares."""
    others: Mapping[str, object] = field(default_factory=dict)
    """Limits of kinds that a newer release has."""
    extra: Mapping[str, object] = field(default_factory=dict)
    """Fields of a newer writer."""

    @property
    def empty(self) -> bool:
        return not (self.limits or self.teams or self.half_life or self.others or self.extra)

    def limited(self, owner: str) -> tuple[tuple[QuotaSubject, QuotaLimits], ...]:
        """The quotas that an owner's jobs count in: its own and its team's."""
        subjects = [QuotaSubject(QuotaKind.OWNER, owner)]
        if team := self.teams.get(owner):
            subjects.append(QuotaSubject(QuotaKind.TEAM, team))
        found = ((subject, self.limits_of(subject)) for subject in subjects)
        return tuple((subject, limits) for subject, limits in found if limits.limited)

    def limits_of(self, subject: QuotaSubject) -> QuotaLimits:
        """Its own limits, or those of everyone of its kind."""
        return self.limits.get(subject) or self.limits.get(QuotaSubject(subject.kind, EVERY)) or QuotaLimits()

    def share_of(self, subject: QuotaSubject) -> float:
        return self.limits_of(subject).share or 1.0

    def having(self, subject: QuotaSubject, limits: QuotaLimits | None) -> QuotaPolicy | str:
        """The policy with other limits of one subject (None: none), or why not."""
        others = {known: value for known, value in self.limits.items() if known != subject}
        if limits is not None and len(others) >= MAX_SUBJECTS:
            return f"a tenant has at most {MAX_SUBJECTS:,} quotas"
        return replace(self, limits=others if limits is None else {**others, subject: limits})

    def with_member(self, owner: str, team: str) -> QuotaPolicy | str:
        """The policy with an owner in a team (empty: in none), or why not."""
        others = {known: value for known, value in self.teams.items() if known != owner}
        if team and len(others) >= MAX_MEMBERS:
            return f"a tenant has at most {MAX_MEMBERS:,} owners in teams"
        return replace(self, teams={**others, owner: team} if team else others)

    def with_half_life(self, seconds: int) -> QuotaPolicy:
        return replace(self, half_life=seconds)

    def to_dict(self) -> dict[str, object]:
        out: dict[str, object] = dict(self.extra)
        limits = {str(subject): _limits_to_dict(limits) for subject, limits in sorted(self.limits.items())}
        out["limits"] = {**self.others, **limits}
        out["teams"] = dict(sorted(self.teams.items()))
        return out | ({"half_life": self.half_life} if self.half_life else {})

    @staticmethod
    def from_dict(body: Mapping[str, Any]) -> QuotaPolicy:
        limits: dict[QuotaSubject, QuotaLimits] = {}
        others: dict[str, object] = {}
        for name, value in body.get("limits", {}).items():
            subject = QuotaSubject.named(name)
            if subject is None:
                others[name] = value
            else:
                limits[subject] = _limits_from_dict(value)
        known = {"limits", "teams", "half_life"}
        extra = {name: value for name, value in body.items() if name not in known}
        return QuotaPolicy(limits, dict(body.get("teams", {})), body.get("half_life", 0), others, extra)


_LIMITS = ("jobs", "cpus", "gpus", "share")


def _limits_to_dict(limits: QuotaLimits) -> dict[str, object]:
    stated = {name: getattr(limits, name) for name in _LIMITS if getattr(limits, name) is not None}
    return {**limits.extra, **stated}


def _limits_from_dict(body: Mapping[str, Any]) -> QuotaLimits:
    extra = {name: value for name, value in body.items() if name not in _LIMITS}
    return QuotaLimits(body.get("jobs"), body.get("cpus"), body.get("gpus"), body.get("share"), extra)


class QuotaHolder(NamedTuple):
    """An attempt that uses a part of a quota."""

    job: str
    cpus: int
    gpus: int
    at: int
    """When it was entered, in milliseconds since 1970."""

    @property
    def use(self) -> QuotaUse:
        return QuotaUse(1, self.cpus, self.gpus)


class QuotaCharge(NamedTuple):
    """An attempt that is to be entered in a ledger."""

    claim: str
    job: str
    use: QuotaUse


@dataclass(frozen=True, slots=True)
class QuotaLedger:
    """The attempts that use one quota, by the ids of their claims, which are never used again."""

    tenant: str
    subject: QuotaSubject
    holders: Mapping[str, QuotaHolder] = field(default_factory=dict)
    changed: int = 0
    """When it was last written, in milliseconds since 1970."""
    asking: Mapping[str, int] = field(default_factory=dict)
    """The servers whose jobs wait for it, and when each said so."""

    @property
    def used(self) -> QuotaUse:
        return sum_of(holder.use for holder in self.holders.values())


def sum_of(uses: Iterable[QuotaUse]) -> QuotaUse:
    total = QuotaUse()
    for use in uses:
        total = total.plus(use)
    return total


def charge(
    ledger: QuotaLedger, charges: Iterable[QuotaCharge], limits: QuotaLimits, now: int
) -> tuple[QuotaLedger, frozenset[str]]:
    """Enter the attempts, in order, as long as the limits allow; returns those entered. A repeated one changes nothing."""
    used, holders, entered = ledger.used, dict(ledger.holders), set[str]()
    for claim, job, use in charges:
        if claim not in holders:
            if limits.lacking(used, use):
                continue
            holders[claim] = QuotaHolder(job, use.cpus, use.gpus, now)
            used = used.plus(use)
        entered.add(claim)
    if len(holders) == len(ledger.holders):
        return ledger, frozenset(entered)
    return replace(ledger, holders=holders, changed=now), frozenset(entered)


def discharge(ledger: QuotaLedger, claims: Collection[str], now: int) -> QuotaLedger:
    """The ledger without these attempts."""
    if not any(claim in ledger.holders for claim in claims):
        return ledger
    left = {claim: holder for claim, holder in ledger.holders.items() if claim not in claims}
    return replace(ledger, holders=left, changed=now)


ASKED_FOR = 15_000
"""Milliseconds for which a server's jobs count as waiting after it said so."""


def ask(ledger: QuotaLedger, server: str, now: int) -> QuotaLedger:
    """The ledger with a server whose jobs wait for it."""
    others = {name: at for name, at in ledger.asking.items() if abs(now - at) < ASKED_FOR}
    return replace(ledger, asking={**others, server: now})


def others_ask(ledger: QuotaLedger, server: str, now: int) -> bool:
    """Whether jobs of another server wait for it."""
    return any(name != server and abs(now - at) < ASKED_FOR for name, at in ledger.asking.items())


def why_waiting(subject: QuotaSubject, limits: QuotaLimits, used: QuotaUse, need: QuotaUse) -> str:
    """Why an attempt has to wait for a quota, as text; empty if it need not."""
    lacking = limits.lacking(used, need)
    if not lacking:
        return ""
    most, now, more = (getattr(amounts, lacking) for amounts in (limits, used, need))
    words = WORDS[lacking]
    if more > most:
        return f"quota of {subject.kind} {subject.name}: at most {most} {words}, and the job needs {more}"
    needed = "" if lacking == "jobs" else f", and the job needs {more}"
    return f"quota of {subject.kind} {subject.name}: {now} of {most} {words}{needed}"
