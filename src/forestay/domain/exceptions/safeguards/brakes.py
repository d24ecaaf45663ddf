"""Brakes: what has to let an act through before it is done. `permit` asks all of them.

In this order: the global stop, the second person, the loop depth, the storm's canary, and the tokens of every rate limit. An act that is refused
is not lost: its fault is due again when the refusal says, or held for a person where only a person can help.

A handler has its tokens in *local tokens*: what it leased from the buckets (`rate_limit`). No token, no act. Where the local tokens lacks tokens the answer is
`Lacking`; whoever asks leases them and asks again, or is refused because a bucket is empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from forestay.domain.exceptions.safeguards.approval_policy import Approval, approved, needed
from forestay.domain.exceptions.safeguards.canary import Canary, NotYet, let_through
from forestay.domain.exceptions.safeguards.rate_limit import DAY, MINUTE, NEVER, SECOND, NoTokens, RateLimit, TokenLease
from forestay.domain.exceptions.safeguards.storm import MAX_CANARIES, FailureSignature, Storms, with_canary

EVERY_TENANT = ""
"""The tenant of what is for all tenants."""
CORE_HOUR = 3600
"""Core-hours are counted in core-seconds."""
UNKNOWN_WALL = 3600
"""Seconds that a run is taken to last when nothing is known of it."""


class Brake(StrEnum):
    """Which brake refused."""

    STOP = "stop"
    SECOND_PERSON = "second-person"
    LOOP = "loop"
    STORM = "storm"
    CANARY = "canary"
    """The group's canary failed."""
    RATE = "rate"
    CORE_HOURS = "core-hours"


class Meter(StrEnum):
    """What a bucket limits: acts, or the core-seconds that they cost."""

    GLOBAL = "global"
    """All acts of all tenants."""
    OWNER = "owner"
    SITE = "site"
    RULE = "rule"
    TENANT_HOURS = "tenant-hours"
    OWNER_HOURS = "owner-hours"


class BucketName(NamedTuple):
    """One bucket; the tenant of the global one is empty."""

    meter: Meter
    tenant: str
    key: str = ""

    def __str__(self) -> str:
        return f"{self.meter}:{self.tenant}:{self.key}"


ALL_ACTS = RateLimit(2_000, 10 * MINUTE)
OWNER_ACTS = RateLimit(500, 10 * MINUTE)
SITE_ACTS = RateLimit(1_000, 10 * MINUTE)
RULE_ACTS = RateLimit(500, 10 * MINUTE)
TENANT_HOURS = RateLimit(10_000 * CORE_HOUR, DAY)
OWNER_HOURS = RateLimit(2_000 * CORE_HOUR, DAY)


@dataclass(frozen=True, slots=True)
class BrakePolicy:
    """The house's limits."""

    all_acts: RateLimit = ALL_ACTS
    owner_acts: RateLimit = OWNER_ACTS
    site_acts: RateLimit = SITE_ACTS
    rule_acts: RateLimit = RULE_ACTS
    tenant_hours: RateLimit = TENANT_HOURS
    """In any 24 hours, not from midnight to midnight."""
    owner_hours: RateLimit = OWNER_HOURS
    max_depth: int = 8
    """Acts of rules that follow one from the other."""
    max_by_rule: int = 5
    """Acts of one rule on one job."""
    lasts: int = 30 * SECOND
    """How long a lease of tokens is good for."""
    bunch: int = 20
    """Tokens that are leased at a time."""
    second_person: bool = True
    """Whether some acts need a second person; a domain of one person has none."""
    stopped_wait: int = MINUTE
    """When to ask again while a stop holds, a canary runs or an approval is missing."""

    def limit(self, meter: Meter) -> RateLimit:
        return {
            Meter.GLOBAL: self.all_acts,
            Meter.OWNER: self.owner_acts,
            Meter.SITE: self.site_acts,
            Meter.RULE: self.rule_acts,
            Meter.TENANT_HOURS: self.tenant_hours,
            Meter.OWNER_HOURS: self.owner_hours,
        }[meter]


@dataclass(frozen=True, slots=True)
class Stop:
    """A global stop: nothing acts in a tenant, or anywhere."""

    tenant: str
    """`EVERY_TENANT`: all of them."""
    by: str
    why: str
    at: int

    def as_plain(self) -> dict[str, Any]:
        return {"tenant": self.tenant, "by": self.by, "why": self.why, "at": self.at}

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Stop:
        return cls(data["tenant"], data["by"], data["why"], data["at"])


@dataclass(frozen=True, slots=True)
class Chain:
    """The acts that came before on the way to a fault, each on the consequences of the one before."""

    by_rule: int = 0
    """Acts of the same rule on the same job."""
    on_job: int = 0
    """Acts of any rule on the job since a person last touched it."""
    on_item: int = 0
    """Acts that made its item, or its case, begin anew."""
    above: int = 0
    """The depth at which an exlet launched the case."""

    @property
    def depth(self) -> int:
        return self.on_job + self.on_item + self.above


@dataclass(frozen=True, slots=True)
class ActionRequest:
    """An act that a rule or the house wants to do."""

    tenant: str
    owner: str
    """Of the job."""
    job: str
    attempt: int
    """The one that faulted; with the job it names the act in a canary."""
    sign: FailureSignature
    action: str
    target: str = ""
    rule: str = ""
    """Rule set and rule; empty: the house's own retries."""
    rule_owner: str = ""
    """Empty: a rule of the domain or of a pack."""
    core_seconds: int = 0
    """What the act costs beyond what the job has cost already; see `core_seconds`."""
    charged: bool = True
    """Whether the owner's limits pay for it. Infrastructure is never theirs."""
    chain: Chain = Chain()
    also: tuple[tuple[str, str], ...] = ()
    """Further steps of the same exlet, each its action and target: one of them may need a second person too."""
    decision: str = ""
    """The digest of the decision, for an approval."""
    approval: Approval | None = None

    @property
    def act(self) -> str:
        return f"{self.job}/{self.attempt}"


class LeasedTokens(NamedTuple):
    """What is left of a lease."""

    lease: TokenLease
    left: int


@dataclass(frozen=True, slots=True)
class Brakes:
    """All that the brakes of one tenant know, as one handler sees it."""

    policy: BrakePolicy = BrakePolicy()
    stops: tuple[Stop, ...] = ()
    storms: Storms = field(default_factory=Storms)
    local_tokens: Mapping[BucketName, tuple[LeasedTokens, ...]] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class ActionGranted:
    """The act may be done. The brakes are those after it."""

    brakes: Brakes
    tokens: tuple[tuple[BucketName, int], ...]
    group: str = ""
    """The group whose canary let it through: its outcome must be told."""


@dataclass(frozen=True, slots=True)
class ActionRefused:
    """The act must not be done now."""

    brake: Brake
    words: str
    again: int | None
    """When to ask again; None: it is held until a person has done something."""
    group: str = ""
    """The group of the storm, if one is on."""


class Lacking(NamedTuple):
    """The local tokens has not enough tokens of these buckets."""

    tokens: tuple[tuple[BucketName, int], ...]


def passes(brakes: Brakes, request: ActionRequest, now: int) -> tuple[Storms, str] | ActionRefused:
    """Whether all but the rate limits let an act through; the storms after it, and the group whose canary let it."""
    refused = _stopped(brakes, request, now) or _alone(brakes, request, now) or _looping(brakes, request)
    return refused if refused is not None else _tried(brakes, request, now)


def permit(brakes: Brakes, request: ActionRequest, now: int) -> ActionGranted | ActionRefused | Lacking:
    """Whether an act may be done now, and what it uses up."""
    passed = passes(brakes, request, now)
    if isinstance(passed, ActionRefused):
        return passed
    storms, group = passed
    wanted = prices(request)
    lacking = tuple((name, tokens) for name, tokens in wanted if tokens_left(brakes.local_tokens, name, now) < tokens)
    if lacking:
        return Lacking(lacking)
    local_tokens = dict(brakes.local_tokens)
    for name, tokens in wanted:
        local_tokens[name] = spend(local_tokens[name], tokens, now)
    return ActionGranted(replace(brakes, storms=storms, local_tokens=MappingProxyType(local_tokens)), wanted, group)


def prices(request: ActionRequest) -> tuple[tuple[BucketName, int], ...]:
    """The tokens that an act costs, bucket by bucket."""
    tenant = request.tenant
    wanted = [(BucketName(Meter.GLOBAL, EVERY_TENANT), 1)]
    if request.charged:
        wanted.append((BucketName(Meter.OWNER, tenant, request.owner), 1))
    if request.sign.site:
        wanted.append((BucketName(Meter.SITE, tenant, request.sign.site), 1))
    if request.rule:
        wanted.append((BucketName(Meter.RULE, tenant, request.rule), 1))
    if request.core_seconds > 0:
        wanted.append((BucketName(Meter.TENANT_HOURS, tenant), request.core_seconds))
        if request.charged:
            wanted.append((BucketName(Meter.OWNER_HOURS, tenant, request.owner), request.core_seconds))
    return tuple(wanted)


def bunch(policy: BrakePolicy, name: BucketName, least: int) -> int:
    """How many tokens to lease when some are lacking: more than one act needs, and a small part of the whole."""
    part = policy.limit(name.meter).tokens // 50
    hours = name.meter in (Meter.TENANT_HOURS, Meter.OWNER_HOURS)
    return max(least, min(part, policy.bunch * max(1, least)) if hours else min(max(1, part), policy.bunch))


def empty(name: BucketName, limit: RateLimit, found: NoTokens) -> ActionRefused:
    """The refusal when a bucket has no more tokens."""
    whose = {
        Meter.GLOBAL: "all acts",
        Meter.OWNER: f"acts on jobs of {name.key}",
        Meter.SITE: f"acts on site {name.key}",
        Meter.RULE: f"acts of rule {name.key}",
        Meter.TENANT_HOURS: "extra core-hours of the tenant",
        Meter.OWNER_HOURS: f"extra core-hours of {name.key}",
    }[name.meter]
    hours = name.meter in (Meter.TENANT_HOURS, Meter.OWNER_HOURS)
    allowed = f"{limit.tokens // CORE_HOUR:,} in a day" if hours else str(limit)
    words = f"{whose}: {allowed} are used up"
    if found.again >= NEVER:
        words = f"{whose}: this action alone costs more than the {allowed} that are allowed"
    return ActionRefused(
        Brake.CORE_HOURS if hours else Brake.RATE, words, None if found.again >= NEVER else found.again
    )


def core_seconds(cpus: int, *, expected: float | None, past: float | None, limit: float | None) -> int:
    """What another run costs: its cores times the longest that it is known to run; seconds in, core-seconds out.

    `past`: the wall time of an earlier attempt, `expected`: what the job says, `limit`: after which it is killed.
    """
    known = [one for one in (expected, past) if one is not None]
    wall = max(known) if known else limit if limit is not None else UNKNOWN_WALL
    return max(1, cpus) * max(1, round(wall))


def tokens_left(local_tokens: Mapping[BucketName, tuple[LeasedTokens, ...]], name: BucketName, now: int) -> int:
    """How many tokens of a bucket can be spent now."""
    return sum(one.left for one in local_tokens.get(name, ()) if one.lease.until > now)


def add_tokens(brakes: Brakes, name: BucketName, leased: TokenLease, now: int) -> Brakes:
    """The brakes with leased tokens in the local tokens; those that ran out are thrown away."""
    kept = tuple(one for one in brakes.local_tokens.get(name, ()) if one.left and one.lease.until > now)
    local_tokens = MappingProxyType({**brakes.local_tokens, name: (*kept, LeasedTokens(leased, leased.tokens))})
    return replace(brakes, local_tokens=local_tokens)


def spend(leased_tokens: tuple[LeasedTokens, ...], tokens: int, now: int) -> tuple[LeasedTokens, ...]:
    """Take tokens from leases that hold, the one that ends first first."""
    out: list[LeasedTokens] = []
    for one in sorted(leased_tokens, key=lambda one: one.lease.until):
        take = min(tokens, one.left) if one.lease.until > now else 0
        tokens -= take
        out.append(LeasedTokens(one.lease, one.left - take))
    return tuple(out)


def _stopped(brakes: Brakes, request: ActionRequest, now: int) -> ActionRefused | None:
    for stop in brakes.stops:
        if stop.tenant in (EVERY_TENANT, request.tenant):
            where = "everywhere" if stop.tenant == EVERY_TENANT else f"in tenant {stop.tenant}"
            words = f"{stop.by} stopped all actions {where}: {stop.why or 'no reason given'}"
            return ActionRefused(Brake.STOP, words, now + brakes.policy.stopped_wait)
    return None


def _alone(brakes: Brakes, request: ActionRequest, now: int) -> ActionRefused | None:
    why = why_alone(request)
    if why is None or not brakes.policy.second_person:
        return None
    missing = approved(request.approval, tenant=request.tenant, decision=request.decision, now=now)
    group = brakes.storms.group_of(request.sign)
    named = group.id if group is not None else ""
    return None if missing is None else ActionRefused(Brake.SECOND_PERSON, f"{why}: {missing.words}", None, named)


def why_alone(request: ActionRequest) -> str | None:
    """Why one person's rule may not do this alone; None: it may."""
    steps = ((request.action, request.target), *request.also)
    owners = {"rule_owner": request.rule_owner, "job_owner": request.owner}
    return next((why for action, target in steps if (why := needed(action, target, **owners)) is not None), None)


def _looping(brakes: Brakes, request: ActionRequest) -> ActionRefused | None:
    policy, chain = brakes.policy, request.chain
    if request.action == "ladder" and not request.also:
        # A ladder counts its own tries, on the job's document, and comes to its end by itself.
        chain = replace(chain, by_rule=0, on_job=0)
    if request.rule and chain.by_rule >= policy.max_by_rule:
        words = f"rule {request.rule} acted {chain.by_rule} times on this job; {policy.max_by_rule} are allowed"
        return ActionRefused(Brake.LOOP, words, None)
    if chain.depth >= policy.max_depth:
        words = f"{chain.depth} actions followed from each other; {policy.max_depth} are allowed"
        return ActionRefused(Brake.LOOP, words, None)
    return None


def _tried(brakes: Brakes, request: ActionRequest, now: int) -> tuple[Storms, str] | ActionRefused:
    storms = brakes.storms
    group = storms.group_of(request.sign)
    if group is None:
        return storms, ""
    about = f"a storm is active ({group.key}, {group.faults:,} faults)"
    known = group.canaries.get(request.rule)
    if known is None and len(group.canaries) >= MAX_CANARIES:
        return ActionRefused(
            Brake.CANARY, f"{about}: {MAX_CANARIES} rules were tried; a person must decide", None, group.id
        )
    canary = let_through(known or Canary(), request.act)
    if isinstance(canary, NotYet):
        again = None if canary.held else now + brakes.policy.stopped_wait
        return ActionRefused(Brake.CANARY if canary.held else Brake.STORM, f"{about}: {canary.words}", again, group.id)
    if canary is known:
        return storms, group.id
    return with_canary(storms, group.id, request.rule, canary), group.id
