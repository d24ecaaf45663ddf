"""The rate at which a batch system is called: a token bucket.

A scheduler is shared with people. Whoever asks takes a token and is told how long to wait before acting on it. Tokens may be taken ahead of time,
so that the turns of many askers come one after the other instead of all at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Pace:
    """So many a second in the long run, and at most so many at once after a pause."""

    rate: float
    burst: float


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """The tokens of one pace, as they stood at a time; below zero, the next askers' turns are given away already."""

    pace: Pace
    tokens: float
    at: float
    """Steady seconds."""


def full(pace: Pace, *, now: float) -> TokenBucket:
    """A bucket that nobody has taken from."""
    return TokenBucket(pace, pace.burst, now)


def take(bucket: TokenBucket, *, now: float) -> tuple[TokenBucket, float]:
    """Take one token; also how many seconds to wait before acting on it. A clock that goes back stands still."""
    now = max(now, bucket.at)
    tokens = min(bucket.pace.burst, bucket.tokens + (now - bucket.at) * bucket.pace.rate) - 1.0
    wait = 0.0 if tokens >= 0 else -tokens / bucket.pace.rate
    return replace(bucket, tokens=tokens, at=now), wait
