"""Incidents that waited for a person, and for nobody any more."""

from __future__ import annotations

from collections.abc import Sequence

from forestay.domain.exceptions.incidents.incident import IncidentState
from forestay.ports.exceptions.incident_store import IncidentStore

NOTE_KEPT = 1000


async def settle_held(incidents: IncidentStore, names: Sequence[str], words: str, *, now: int) -> None:
    """Say of those that are held that somebody has mended them. What others wrote meanwhile is left as it is."""
    known = await incidents.get_standings(names) if names else {}
    moved = [
        (one.standing.moved(IncidentState.COMPLETE, now=now, note=words.strip()[:NOTE_KEPT]), one.version)
        for one in known.values()
        if one.standing.state is IncidentState.HELD
    ]
    if moved:
        await incidents.put_standings(moved)
