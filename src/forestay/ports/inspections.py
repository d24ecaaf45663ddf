"""Read-only inspections of the store and of Temporal: no table, index or namespace is created."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreInspection:
    """The result of inspecting a store. `Transient` or `Permanent` instead: it does not answer, or refuses us."""

    product: str
    """Name and version."""
    lacking: tuple[str, ...] = ()
    """Tables or indexes that a server would create at its start."""
    wrong: tuple[str, ...] = ()
    """Problems that prevent its use as it is, or could lose acknowledged writes."""
    notes: tuple[str, ...] = ()
    """Remarks on what works but deserves attention."""
    ahead: float | None = None
    """Seconds by which its clock is ahead of ours; None: it has the same clock."""


@dataclass(frozen=True, slots=True)
class EngineInspection:
    """The result of inspecting Temporal."""

    version: str
    has_namespace: bool
    orchestrators: int = 0
    """Orchestrators that polled our queue for runs in the last minute."""
    hands: int = 0
    """The same for activities."""
    keeps_days: float = 0.0
    """Days for which it keeps ended runs."""
