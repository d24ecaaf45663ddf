"""Time and randomness, passed in so that a simulation can control them."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Two kinds of time that are never mixed."""

    def now(self) -> int:
        """Milliseconds since 1970 in UTC: for people and event logs, never to measure a duration."""
        ...

    def monotonic(self) -> float:
        """Seconds of this process's monotonic clock: for leases and waits, never stored."""
        ...


class Ids(Protocol):
    """Unique ids."""

    def claim(self) -> str:
        """128 random bits, new for every attempt to claim."""
        ...

    def job(self) -> str:
        """An id for a job whose submitter gave no key."""
        ...
