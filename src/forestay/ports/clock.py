"""Time and randomness, passed in so that a simulation can control them."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Two kinds of time that are never mixed."""

    def now(self) -> int:
        """Milliseconds since 1970 in UTC: for people and stories, never to measure how long something took."""
        ...

    def monotonic(self) -> float:
        """Seconds of this process's own steady time: for leases and waits, never stored."""
        ...


class Ids(Protocol):
    """Unique ids."""

    def claim(self) -> str:
        """128 random bits, new for every try to claim."""
        ...

    def job(self) -> str:
        """An id for a job whose submitter gave no key."""
        ...
