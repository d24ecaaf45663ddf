"""Safeguards: everything that must permit an action before it is carried out. `permit` asks them all.

In this order: the global stop, approval, the loop depth, the storm's canary, and the tokens of every rate limit. A refused act
is not lost: its failure is due again at the time in the refusal, or held for a person where only a person can help.

A handler has *local tokens*, leased from the buckets (`rate_limit`). Without a token there is no act. If local tokens are lacking, the answer is
`Lacking`; the caller leases them and asks again, or is refused because a bucket is empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from forestay.domain.exceptions.safeguards.approval_policy import Approval, approved, needed
from forestay.domain.exceptions.safeguards.canary import Canary, NotYet, let_through
from forestay.domain.exceptions.safeguards.rate_limit import (
    DAY,
    MINUTE,
    NEVER,
    SECOND,
    Bucket,
    BucketName,
    LeasedTokens,
    Meter,
    NoTokens,
    RateLimit,
    TokenLease,
    lease,
    pass_time,
)
from forestay.domain.exceptions.safeguards.storm import MAX_CANARIES, FailureSignature, Storms, with_canary
from forestay.domain.jobs.job_document import JobDocument

EVERY_TENANT = ""
"""The tenant name for all tenants."""
CORE_HOUR = 3600
"""Core-hours are counted in core-seconds."""
UNKNOWN_WALL = 3600
"""The assumed seconds of a run of unknown duration."""


class Safeguard(StrEnum):
    """Which safeguard refused."""

    STOP = "stop"
    APPROVAL = "approval"
    LOOP = "loop"
    STORM = "storm"
    CANARY = "canary"
    """The group's canary failed."""
    RATE = "rate"
    CORE_HOURS = "core-hours"


ALL_ACTS = RateLimit(2_000, 10 * MINUTE)
OWNER_ACTS = RateLimit(500, 10 * MINUTE)
SITE_ACTS = RateLimit(1_000, 10 * MINUTE)
RULE_ACTS = RateLimit(500, 10 * MINUTE)
TENANT_HOURS = RateLimit(10_000 * CORE_HOUR, DAY)
OWNER_HOURS = RateLimit(2_000 * CORE_HOUR, DAY)


@dataclass(frozen=True, slots=True)
class SafeguardPolicy:
    """The default limits."""

    all_acts: RateLimit = ALL_ACTS
    owner_acts: RateLimit = OWNER_ACTS
    site_acts: RateLimit = SITE_ACTS
    rule_acts: RateLimit = RULE_ACTS
    tenant_hours: RateLimit = TENANT_HOURS
    """In any 24 hours, not from midnight to midnight."""
    owner_hours: RateLimit = OWNER_HOURS
    max_depth: int = 8
    """The longest chain of acts of rules, each a consequence of the one before."""
    max_by_rule: int = 5
    """Acts of one rule on one job."""
    lasts: int = 30 * SECOND
    """How long a lease of tokens is valid."""
    bunch: int = 20
    """Tokens that are leased at a time."""
    approvals: bool = True
    """Whether some acts need approval; a domain of one person has none."""
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
    """The earlier actions that led to a failure, each a consequence of the one before."""

    by_rule: int = 0
    """Acts of the same rule on the same job."""
    on_job: int = 0
    """Acts of any rule on the job since a person last touched it."""
    on_instance: int = 0
    """Acts that restarted its task or its run."""
    above: int = 0
    """The depth at which playbooks launched the run, or had lost outputs made again."""

    @property
    def depth(self) -> int:
        return self.on_job + self.on_instance + self.above


@dataclass(frozen=True, slots=True)
class ActionRequest:
    """An action requested by a rule or the default policy."""

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
    """Rule set and rule; empty: a retry of the default policy."""
    rule_owner: str = ""
    """Empty: the rule is of the domain or of a pack."""
    core_seconds: int = 0
    """The cost of the act beyond what the job has cost already; see `core_seconds`."""
    charged: bool = True
    """Whether it counts against the owner's limits. Failures of the infrastructure never do."""
    chain: Chain = Chain()
    also: tuple[tuple[str, str], ...] = ()
    """Further steps of the same playbook, each its action and target: one of them may need approval too."""
    fingerprint: str = ""
    """The error that the failure is: a storm's canary tries one error at a time."""
    decision: str = ""
    """The digest of the decision, for an approval."""
    approval: Approval | None = None

    @property
    def act(self) -> str:
        return f"{self.job}/{self.attempt}"


@dataclass(frozen=True, slots=True)
class SafeguardState:
    """The state of a tenant's safeguards, as one handler sees it."""

    policy: SafeguardPolicy = SafeguardPolicy()
    stops: tuple[Stop, ...] = ()
    storms: Storms = field(default_factory=Storms)
    local_tokens: Mapping[BucketName, tuple[LeasedTokens, ...]] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class ActionGranted:
    """The act may be done. `safeguards` is the state after it."""

    safeguards: SafeguardState
    tokens: tuple[tuple[BucketName, int], ...]
    group: str = ""
    """The group whose canary let it through: its outcome must be reported."""


@dataclass(frozen=True, slots=True)
class ActionRefused:
    """The act must not be done now."""

    safeguard: Safeguard
    words: str
    again: int | None
    """When to ask again; None: it is held until a person acts."""
    group: str = ""
    """The group of the storm, if one is active."""


class Lacking(NamedTuple):
    """There are not enough local tokens of these buckets."""

    tokens: tuple[tuple[BucketName, int], ...]


def passes(safeguards: SafeguardState, request: ActionRequest, now: int) -> tuple[Storms, str] | ActionRefused:
    """Whether all safeguards but the rate limits permit an act; the storms after it, and the group whose canary let it through."""
    refused = _stopped(safeguards, request, now) or _alone(safeguards, request, now) or _looping(safeguards, request)
    return refused if refused is not None else _tried(safeguards, request, now)


def permit(safeguards: SafeguardState, request: ActionRequest, now: int) -> ActionGranted | ActionRefused | Lacking:
    """Whether an act may be done now, and the tokens that it uses."""
    passed = passes(safeguards, request, now)
    if isinstance(passed, ActionRefused):
        return passed
    storms, group = passed
    wanted = prices(request)
    lacking = tuple(
        (name, tokens) for name, tokens in wanted if tokens_left(safeguards.local_tokens, name, now) < tokens
    )
    if lacking:
        return Lacking(lacking)
    local_tokens = dict(safeguards.local_tokens)
    for name, tokens in wanted:
        local_tokens[name] = spend(local_tokens[name], tokens, now)
    return ActionGranted(replace(safeguards, storms=storms, local_tokens=MappingProxyType(local_tokens)), wanted, group)


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


def bunch(policy: SafeguardPolicy, name: BucketName, least: int) -> int:
    """How many tokens to lease when some are lacking: more than one act needs, and a small part of the whole."""
    part = policy.limit(name.meter).tokens // 50
    hours = name.meter in (Meter.TENANT_HOURS, Meter.OWNER_HOURS)
    return max(least, min(part, policy.bunch * max(1, least)) if hours else min(max(1, part), policy.bunch))


def empty(name: BucketName, limit: RateLimit, tokens: NoTokens) -> ActionRefused:
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
    if tokens.again >= NEVER:
        words = f"{whose}: this action alone costs more than the {allowed} that are allowed"
    return ActionRefused(
        Safeguard.CORE_HOURS if hours else Safeguard.RATE, words, None if tokens.again >= NEVER else tokens.again
    )


def core_seconds(cpus: int, *, expected: float | None, past: float | None, limit: float | None) -> int:
    """What another attempt costs: its cores times the longest that it is known to run; seconds in, core-seconds out.

    `past`: the wall time of an earlier attempt, `expected`: what the job says, `limit`: after which it is killed.
    """
    known = [estimate for estimate in (expected, past) if estimate is not None]
    wall = max(known) if known else limit if limit is not None else UNKNOWN_WALL
    return max(1, cpus) * max(1, round(wall))


def tokens_left(local_tokens: Mapping[BucketName, tuple[LeasedTokens, ...]], name: BucketName, now: int) -> int:
    """How many tokens of a bucket can be spent now."""
    return sum(local_token.left for local_token in local_tokens.get(name, ()) if local_token.lease.until > now)


def add_tokens(safeguards: SafeguardState, name: BucketName, leased: TokenLease, now: int) -> SafeguardState:
    """The safeguards with leased tokens added to the local tokens; expired ones are dropped."""
    kept = tuple(
        local_token
        for local_token in safeguards.local_tokens.get(name, ())
        if local_token.left and local_token.lease.until > now
    )
    local_tokens = MappingProxyType({**safeguards.local_tokens, name: (*kept, LeasedTokens(leased, leased.tokens))})
    return replace(safeguards, local_tokens=local_tokens)


def spend(leased_tokens: tuple[LeasedTokens, ...], tokens: int, now: int) -> tuple[LeasedTokens, ...]:
    """Take tokens from valid leases, the one that ends first before the others."""
    out: list[LeasedTokens] = []
    for leased_token in sorted(leased_tokens, key=lambda other_leased_token: other_leased_token.lease.until):
        take = min(tokens, leased_token.left) if leased_token.lease.until > now else 0
        tokens -= take
        out.append(LeasedTokens(leased_token.lease, leased_token.left - take))
    return tuple(out)


def _stopped(safeguards: SafeguardState, request: ActionRequest, now: int) -> ActionRefused | None:
    for stop in safeguards.stops:
        if stop.tenant in (EVERY_TENANT, request.tenant):
            where = "everywhere" if stop.tenant == EVERY_TENANT else f"in tenant {stop.tenant}"
            words = f"{stop.by} stopped all actions {where}: {stop.why or 'no reason given'}"
            return ActionRefused(Safeguard.STOP, words, now + safeguards.policy.stopped_wait)
    return None


def _alone(safeguards: SafeguardState, request: ActionRequest, now: int) -> ActionRefused | None:
    why = why_alone(request)
    if why is None or not safeguards.policy.approvals:
        return None
    missing = approved(request.approval, tenant=request.tenant, decision=request.decision, now=now)
    group = safeguards.storms.group_of(request.sign)
    named = group.id if group is not None else ""
    return None if missing is None else ActionRefused(Safeguard.APPROVAL, f"{why}: {missing.words}", None, named)


def why_alone(request: ActionRequest) -> str | None:
    """Why the rule of one person may not do this alone; None: it may."""
    steps = ((request.action, request.target), *request.also)
    owners = {"rule_owner": request.rule_owner, "job_owner": request.owner}
    return next((why for action, target in steps if (why := needed(action, target, **owners)) is not None), None)


def _looping(safeguards: SafeguardState, request: ActionRequest) -> ActionRefused | None:
    policy, chain = safeguards.policy, request.chain
    if request.action == "retry" and not request.also:
        # A retry policy counts its own tries in the job's document, and ends by itself.
        chain = replace(chain, by_rule=0, on_job=0)
    if request.rule and chain.by_rule >= policy.max_by_rule:
        words = f"rule {request.rule} acted {chain.by_rule} times on this job; {policy.max_by_rule} are allowed"
        return ActionRefused(Safeguard.LOOP, words, None)
    if chain.depth >= policy.max_depth:
        words = f"{chain.depth} actions followed from each other; {policy.max_depth} are allowed"
        return ActionRefused(Safeguard.LOOP, words, None)
    return None


def _tried(safeguards: SafeguardState, request: ActionRequest, now: int) -> tuple[Storms, str] | ActionRefused:
    storms = safeguards.storms
    group = storms.group_of(request.sign)
    if group is None:
        return storms, ""
    about = f"a storm is active ({group.key}, {group.failures:,} failures)"
    trial = group.trial(request.rule, request.fingerprint)
    known = group.canaries.get(trial)
    if known is None and len(group.canaries) >= MAX_CANARIES:
        return ActionRefused(
            Safeguard.CANARY, f"{about}: {MAX_CANARIES} tries were begun; a person must decide", None, group.id
        )
    canary = let_through(known or Canary(), request.act)
    if isinstance(canary, NotYet):
        again = None if canary.held else now + safeguards.policy.stopped_wait
        return ActionRefused(
            Safeguard.CANARY if canary.held else Safeguard.STORM, f"{about}: {canary.words}", again, group.id
        )
    if canary is known:
        return storms, group.id
    return with_canary(storms, group.id, trial, canary), group.id


def cost_of(document: JobDocument) -> int:
    """The cost in core-seconds, as far as known from the job's last attempt and its request."""
    last, needs = document.last, document.resources
    past = last.wall if last is not None else None
    return core_seconds(needs.cpus, expected=document.expected_runtime, past=past, limit=needs.wall)


TOGETHER = 20
"""The most acts on a storm's group that are requested again at the same time."""
LONGEST = 10
"""The number of waits after which even the last of a group is requested again."""


@dataclass(frozen=True, slots=True)
class PermitPlan:
    """The plan for a batch of requests."""

    answers: tuple[ActionGranted | ActionRefused, ...]
    storms: Storms
    needs: Mapping[BucketName, int]
    """The tokens that the granted requests spend."""
    leases: Mapping[BucketName, tuple[Bucket, TokenLease]]
    """The necessary leases, each with the bucket after it."""


@dataclass(slots=True)
class _Purchase:
    """The tokens of a batch, while it is planned."""

    safeguards: SafeguardState
    buckets: Mapping[BucketName, Bucket]
    now: int
    needs: dict[BucketName, int] = field(default_factory=dict)
    queued: dict[BucketName, int] = field(default_factory=dict)
    """The tokens that the requests refused so far would have needed: later requests wait longer."""

    def take(self, request: ActionRequest) -> ActionRefused | None:
        wanted = prices(request)
        for name, tokens in wanted:
            least = self.needs.get(name, 0) + tokens - tokens_left(self.safeguards.local_tokens, name, self.now)
            if least > 0 and isinstance(found_lease := self._lease(name, least, least), NoTokens):
                return self._line_up(name, tokens, found_lease)
        for name, tokens in wanted:
            self.needs[name] = self.needs.get(name, 0) + tokens
        return None

    def leases(self, name_of: Mapping[BucketName, str]) -> dict[BucketName, tuple[Bucket, TokenLease]]:
        made: dict[BucketName, tuple[Bucket, TokenLease]] = {}
        for name, tokens in self.needs.items():
            least = tokens - tokens_left(self.safeguards.local_tokens, name, self.now)
            if least <= 0:
                continue
            taken = self._lease(name, bunch(self.safeguards.policy, name, least), least, name_of[name])
            assert not isinstance(taken, NoTokens)  # noqa: S101 - it was looked at when the request was let through
            made[name] = taken
        return made

    def _lease(
        self, name: BucketName, wanted: int, least: int, called: str = ""
    ) -> tuple[Bucket, TokenLease] | NoTokens:
        bucket, lasts = self.buckets[name], self.safeguards.policy.lasts
        return lease(bucket, name=called, wanted=wanted, least=least, now=self.now, lasts=lasts)

    def _line_up(self, name: BucketName, tokens: int, no_tokens: NoTokens) -> ActionRefused:
        limit, before = self.buckets[name].limit, self.queued.get(name, 0)
        if tokens > limit.tokens:
            return empty(name, limit, replace(no_tokens, again=NEVER))
        if no_tokens.again >= NEVER:  # with those of this batch before it, more than there are in a window
            no_tokens = replace(no_tokens, again=pass_time(self.buckets[name], self.now).latest + limit.window)
        self.queued[name] = before + tokens
        later = before // max(1, limit.tokens) * limit.window
        return empty(name, limit, replace(no_tokens, again=no_tokens.again + later))


def plan(
    safeguards: SafeguardState,
    buckets: Mapping[BucketName, Bucket],
    requests: Sequence[ActionRequest],
    now: int,
    lease_names: Mapping[BucketName, str],
) -> PermitPlan:
    """Decide on the requests in their order. The buckets are those of all their prices, under the limits that hold; the names, for a lease of each."""
    purchase = _Purchase(safeguards, buckets, now)
    waiting: dict[str, int] = {}
    answers: list[ActionGranted | ActionRefused] = []
    for request in requests:
        passed = passes(safeguards, request, now)
        if isinstance(passed, ActionRefused):
            answers.append(_spread(passed, waiting, safeguards.policy))
            continue
        storms, group = passed
        refused = purchase.take(request)
        if refused is not None:
            answers.append(replace(refused, group=group))
            continue
        safeguards = replace(safeguards, storms=storms)
        answers.append(ActionGranted(safeguards, prices(request), group))
    return PermitPlan(tuple(answers), safeguards.storms, purchase.needs, purchase.leases(lease_names))


def _spread(refused: ActionRefused, waiting: dict[str, int], policy: SafeguardPolicy) -> ActionRefused:
    """Spread the repeated requests of a group: while one member is tried the others need not all ask every minute."""
    if refused.again is None or refused.safeguard is not Safeguard.STORM:
        return refused
    place = waiting.get(refused.group, 0)
    waiting[refused.group] = place + 1
    return replace(refused, again=refused.again + min(LONGEST - 1, place // TOGETHER) * policy.stopped_wait)
