"""Schedules: stored by the engine, which starts runs at their times.

The contract of every adapter:

* A schedule belongs to a tenant, in which its name is unique. `put_schedule` writes it whole; a repeat changes nothing.
* Each planned time produces one request for a start, or none if the schedule's policies say so. A repeated request is the same run.
* `Transient`: the engine did not answer; repeating the call is safe. `NotFound`: there is no such schedule. `Permanent`: the engine refuses its content.
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
    """The times for which it recently started runs, newest first."""
    missed: int = 0
    """Starts that were omitted because they were too late."""
    skipped: int = 0
    """Starts that were omitted because a run had not ended."""


class Schedules(Protocol):
    """The port."""

    async def put_schedule(self, tenant: str, owner: str, schedule: RunSchedule, *, flow_name: str) -> bool:
        """Create or replace a schedule; False: it existed already. Its owner does not change."""
        ...

    async def get_schedule(self, tenant: str, name: str) -> StoredSchedule: ...

    async def find_schedules(self, tenant: str) -> Sequence[StoredSchedule]:
        """All schedules of a tenant, by name; up to a second old."""
        ...

    async def pause_schedule(self, tenant: str, name: str, *, paused: bool, note: str) -> None: ...

    async def trigger_schedule(self, tenant: str, name: str) -> None:
        """Start a run now, whatever the state of the last one."""
        ...

    async def delete_schedule(self, tenant: str, name: str) -> None:
        """Delete a schedule; its runs are not affected."""
        ...
