"""Rate limits: a number of tokens for each window, leased in batches to those who act.

A bucket has a limit, such as 200 acts in ten minutes or 1,000 core-hours in a day. A lease takes tokens out of it for a short time, in which
they may be spent. A token comes back a whole window after it could last be spent. Therefore, whatever the order of the requests and
however many handlers lease at the same time, no window has more tokens spent than the limit: those spent in it were all out of the bucket at
the moment when the last of them was leased.

Times are milliseconds. A clock that goes back is treated as stopped; one that is ahead by some time shortens the windows by that time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

SLICES = 60
"""Returning tokens are kept by slices of the window, at most this many; the later end of a slice counts."""
MAX_LEASES = 200
"""Leases of one bucket at the same time."""
LONGEST_NAME = 300
"""Bytes of the name of a bucket's document; a longer one is hashed."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most so many tokens in any window of so many milliseconds."""

    tokens: int
    window: int

    def __str__(self) -> str:
        return f"{self.tokens:,} in {span_in_words(self.window)}"


@dataclass(frozen=True, slots=True)
class TokenLease:
    """Tokens that one handler alone may spend until a given time."""

    id: str
    """Random and unique."""
    tokens: int
    until: int


class LeasedTokens(NamedTuple):
    """The remaining tokens of a lease."""

    lease: TokenLease
    left: int


@dataclass(frozen=True, slots=True)
class NoTokens:
    """There are not enough tokens; says when to ask again."""

    free: int
    again: int
    """The earliest time at which there can be enough. `NEVER`: not under this limit."""


NEVER = 2**62


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

    @property
    def document(self) -> str:
        """The name of the document in which it is stored."""
        text = f"safeguard:{self}"
        if len(text.encode()) <= LONGEST_NAME:
            return text
        return f"safeguard:{hashlib.sha256(text.encode()).hexdigest()}"


@dataclass(frozen=True, slots=True)
class Bucket:
    """The tokens of one limit. What is neither leased nor on its way back is free."""

    limit: RateLimit
    leases: tuple[TokenLease, ...] = ()
    """Leases that may still be spent from."""
    returning: tuple[tuple[int, int], ...] = ()
    """When how many tokens come back, the soonest first."""
    latest: int = 0
    """The latest time that was seen."""

    @property
    def free(self) -> int:
        """The free tokens; never negative, even when the limit was lowered while tokens are out."""
        out = sum(lease.tokens for lease in self.leases) + sum(tokens for _, tokens in self.returning)
        return max(0, self.limit.tokens - out)

    def as_plain(self) -> dict[str, Any]:
        return {
            "limit": [self.limit.tokens, self.limit.window],
            "leases": [[lease.id, lease.tokens, lease.until] for lease in self.leases],
            "returning": [list(token) for token in self.returning],
            "latest": self.latest,
        }

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Bucket:
        return cls(
            RateLimit(*data["limit"]),
            tuple(TokenLease(*lease) for lease in data["leases"]),
            tuple((at, tokens) for at, tokens in data["returning"]),
            data["latest"],
        )


def bucket_of(stored: Mapping[str, Any] | None, limit: RateLimit) -> Bucket:
    """A stored bucket under the current limit; a full one if nothing was stored."""
    return Bucket(limit) if stored is None else with_limit(Bucket.from_plain(stored), limit)


def with_limit(bucket: Bucket, limit: RateLimit) -> Bucket:
    """The bucket under another limit. Tokens that are out stay out for the longer of both windows."""
    if limit == bucket.limit:
        return bucket
    longer = max(0, limit.window - bucket.limit.window)
    returning = tuple((at + longer, tokens) for at, tokens in bucket.returning)
    return replace(bucket, limit=limit, returning=returning)


def lease(
    bucket: Bucket, *, name: str, wanted: int, least: int = 1, now: int, lasts: int
) -> tuple[Bucket, TokenLease] | NoTokens:
    """Take up to `wanted` tokens, `least` at least, to be spent within `lasts`; or how long to wait."""
    bucket = pass_time(bucket, now)
    free = bucket.free
    if least > free:
        return NoTokens(free, _again(bucket, least))
    if len(bucket.leases) >= MAX_LEASES:
        return NoTokens(free, min(lease.until for lease in bucket.leases))
    taken = TokenLease(name, max(least, min(wanted, free)), bucket.latest + lasts)
    return replace(bucket, leases=(*bucket.leases, taken)), taken


def settle(bucket: Bucket, *, name: str, spent: int, now: int) -> Bucket:
    """End a lease early: unspent tokens are free at once. A lease that has ended, or was settled before, gives nothing back."""
    bucket = pass_time(bucket, now)
    lease = next((token_lease for token_lease in bucket.leases if token_lease.id == name), None)
    if lease is None:
        return bucket
    left = tuple(lease for lease in bucket.leases if lease.id != name)
    gone = min(max(0, spent), lease.tokens)
    return replace(bucket, leases=left, returning=_put_back(bucket, bucket.latest, gone))


def pass_time(bucket: Bucket, now: int) -> Bucket:
    """The bucket at a later time: tokens of expired leases are returning, and returned ones are free."""
    now = max(now, bucket.latest)
    out = replace(bucket, latest=now)
    for lease in bucket.leases:
        if lease.until <= now:
            out = replace(out, returning=_put_back(out, lease.until, lease.tokens))
    leases = tuple(lease for lease in bucket.leases if lease.until > now)
    returning = tuple((at, tokens) for at, tokens in out.returning if at > now)
    return replace(out, leases=leases, returning=returning)


def _put_back(bucket: Bucket, last_spent: int, tokens: int) -> tuple[tuple[int, int], ...]:
    if tokens <= 0:
        return bucket.returning
    slice_ = max(1, bucket.limit.window // SLICES)
    at = last_spent + bucket.limit.window
    at = -(-at // slice_) * slice_
    back = dict(bucket.returning)
    back[at] = back.get(at, 0) + tokens
    return tuple(sorted(back.items()))


def _again(bucket: Bucket, least: int) -> int:
    """When enough tokens will have come back, if nobody takes them before."""
    if least > bucket.limit.tokens:
        return NEVER
    window = bucket.limit.window
    coming = sorted((*bucket.returning, *((lease.until + window, lease.tokens) for lease in bucket.leases)))
    out = sum(tokens for _, tokens in coming)
    for at, tokens in coming:
        out -= tokens
        if bucket.limit.tokens - out >= least:
            return at
    return NEVER


def span_in_words(milliseconds: int) -> str:
    """A duration in words."""
    for unit, name in ((DAY, "day"), (HOUR, "hour"), (MINUTE, "minute"), (SECOND, "second")):
        if milliseconds >= unit and milliseconds % unit == 0:
            count = milliseconds // unit
            return f"a {name}" if count == 1 and name != "hour" else "an hour" if count == 1 else f"{count} {name}s"
    return f"{milliseconds} ms"
