"""The rate at which a batch system is called: a token bucket.

A scheduler is shared with people. A caller takes a token and learns how long to wait before using it. Tokens may be taken ahead of time,
so that the turns of many callers come one after another instead of all at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Pace:
    """The rate per second in the long run, and the largest burst after a pause."""

    rate: float
    burst: float


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """The tokens of a pace at a given time; below zero, the turns of later callers are already assigned."""

    pace: Pace
    tokens: float
    at: float
    """Seconds of a monotonic clock."""


def full(pace: Pace, *, now: float) -> TokenBucket:
    """An unused bucket."""
    return TokenBucket(pace, pace.burst, now)


def take(bucket: TokenBucket, *, now: float) -> tuple[TokenBucket, float]:
    """Take one token; also returns how many seconds to wait before using it. A clock that goes back is treated as stopped."""
    now = max(now, bucket.at)
    tokens = min(bucket.pace.burst, bucket.tokens + (now - bucket.at) * bucket.pace.rate) - 1.0
    wait = 0.0 if tokens >= 0 else -tokens / bucket.pace.rate
    return replace(bucket, tokens=tokens, at=now), wait
