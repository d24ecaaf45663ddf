"""How long jobs are reserved for the pilots that should have them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MatchingPolicy:
    """How jobs and pilots are matched."""

    wait: float = 10.0
    """Seconds for which a job is held back at most, in all, for pilots that have its data or at whose place it is to meet others; 0: never. Idle pilots ask all the time, so a few are enough."""
    quarantine: float = 300.0
    """Seconds for which, in all, it is put aside for pilots that are busy while those who ask find something else; 0: never."""
    keep: float = 3600.0
    """Seconds for which it is remembered where jobs were to meet when nothing is heard of them."""
