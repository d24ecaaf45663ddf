"""Schedules: stored by the engine, which starts runs at their times.

The law, for every adapter:

* A schedule belongs to a tenant and has a name in it. `put` writes it whole; the same again changes nothing.
* Each planned time brings one request for a start, or none if the policies of the schedule say so. A request may be repeated; the run is one.
* `Transient`: the engine did not answer; the same call again is safe. `NotFound`: there is no such schedule. `Permanent`: the engine refuses what it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from forestay.domain.flows.schedule import RunSchedule


class StoredSchedule(NamedTuple):
    """A schedule as the engine keeps it. All times are milliseconds since 1970."""

    schedule: RunSchedule
    owner: str
    flow_name: str
    next: Sequence[int] = ()
    """Its next times; none while it is paused."""
    recent: Sequence[int] = ()
    """The times for which it started runs lately, the newest first."""
    missed: int = 0
    """Starts that were left out because they were too late."""
    skipped: int = 0
    """Starts that were left out because a run had not ended."""


class Schedules(Protocol):
    """The port."""

    async def put_schedule(self, tenant: str, owner: str, schedule: RunSchedule, *, flow_name: str) -> bool:
        """Create or replace a schedule; False: it was there already. Its owner stays."""
        ...

    async def get_schedule(self, tenant: str, name: str) -> StoredSchedule: ...

    async def find_schedules(self, tenant: str) -> Sequence[StoredSchedule]:
        """All of a tenant, by name; up to a second old."""
        ...

    async def pause_schedule(self, tenant: str, name: str, *, paused: bool, note: str) -> None: ...

    async def trigger_schedule(self, tenant: str, name: str) -> None:
        """Start a run now, whatever the last one does."""
        ...

    async def delete_schedule(self, tenant: str, name: str) -> None:
        """Its runs stay as they are."""
        ...
