"""Many acts asked for at once: which may be done, and which tokens have to be leased for them, decided on one reading of everything.

What is planned counts only when all that it leases is written. Nothing is leased that no act of the batch needs, but for a small bunch beside it: a token
that is leased and not spent is out of its bucket for a whole window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from forestay.domain.exceptions.safeguards.rate_limit import NEVER, Bucket, NoTokens, TokenLease, lease, pass_time
from forestay.domain.exceptions.safeguards.safeguards import (
    ActionGranted,
    ActionRefused,
    ActionRequest,
    BucketName,
    Safeguard,
    SafeguardPolicy,
    SafeguardState,
    bunch,
    empty,
    passes,
    prices,
    tokens_left,
)
from forestay.domain.exceptions.safeguards.storm import Storms

TOGETHER = 20
"""Acts on a storm's group that are asked for again at the same time."""
LONGEST = 10
"""Waits after which even the last of a group is asked for again."""


@dataclass(frozen=True, slots=True)
class PermitPlan:
    """What a batch of requests comes to."""

    answers: tuple[ActionGranted | ActionRefused, ...]
    storms: Storms
    needs: Mapping[BucketName, int]
    """The tokens that those granted spend."""
    leases: Mapping[BucketName, tuple[Bucket, TokenLease]]
    """What has to be leased for them, with the bucket after it."""


@dataclass(slots=True)
class _Purchase:
    """The tokens of a batch, while it is planned."""

    safeguards: SafeguardState
    buckets: Mapping[BucketName, Bucket]
    now: int
    needs: dict[BucketName, int] = field(default_factory=dict)
    queued: dict[BucketName, int] = field(default_factory=dict)
    """Tokens that those refused so far would have needed: whoever comes later waits longer."""

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
    """While one of a group is tried the others need not all ask every minute."""
    if refused.again is None or refused.safeguard is not Safeguard.STORM:
        return refused
    place = waiting.get(refused.group, 0)
    waiting[refused.group] = place + 1
    return replace(refused, again=refused.again + min(LONGEST - 1, place // TOGETHER) * policy.stopped_wait)
