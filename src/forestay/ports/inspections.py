"""Read-only inspections of the store and of Temporal: no table, index or namespace is created."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreInspection:
    """A store as it was found. `Transient` or `Permanent` instead: it does not answer, or not us."""

    product: str
    """Name and version."""
    lacking: tuple[str, ...] = ()
    """Tables or indexes that a server would make at its start."""
    wrong: tuple[str, ...] = ()
    """What keeps it from being used as it is, or could lose acknowledged writes."""
    notes: tuple[str, ...] = ()
    """What works and is worth a look."""
    ahead: float | None = None
    """Seconds that its clock is ahead of ours; None: it is ours."""


@dataclass(frozen=True, slots=True)
class EngineInspection:
    """Temporal as it was found."""

    version: str
    has_namespace: bool
    orchestrators: int = 0
    """Orchestrators that asked for runs of our queue in the last minute."""
    hands: int = 0
    """The same for activities."""
    keeps_days: float = 0.0
    """For how long it remembers runs that have ended."""
