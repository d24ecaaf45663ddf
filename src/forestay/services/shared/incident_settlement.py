"""Settles incidents that waited for a person and no longer need one."""

from __future__ import annotations

from collections.abc import Sequence

from forestay.domain.exceptions.incidents.incident import IncidentState
from forestay.ports.exceptions.incident_store import IncidentStore

NOTE_KEPT = 1000


async def settle_held(incidents: IncidentStore, names: Sequence[str], words: str, *, now: int) -> None:
    """Mark held incidents as recovered by a person. Concurrent writes of others are kept."""
    known = await incidents.get_statuses(names) if names else {}
    moved = [
        (stored.status.moved(IncidentState.COMPLETE, now=now, note=words.strip()[:NOTE_KEPT]), stored.version)
        for stored in known.values()
        if stored.status.state is IncidentState.HELD
    ]
    if moved:
        await incidents.put_statuses(moved)
