"""How long jobs are reserved for the pilots that should have them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MatchingPolicy:
    """How jobs and pilots are matched."""

    wait: float = 10.0
    """The most seconds in total for which a job is held back for pilots that have its data or at whose place it is to be co-located; 0: never. Idle pilots ask all the time, so a few seconds suffice."""
    quarantine: float = 300.0
    """The most seconds in total for which a job is quarantined for busy pilots while asking ones find other work; 0: never."""
    keep: float = 3600.0
    """Seconds for which the place of an inactive colocation is kept."""
