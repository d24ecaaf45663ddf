"""The store of pilots and their heartbeats. It is the same store as the jobs', with the same contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from forestay.domain.pilots.pilot import HeartbeatPage, Pilot
from forestay.ports.jobs.job_store import Version, WriteResult


class StoredPilot(NamedTuple):
    """A pilot as it was read, with its version."""

    pilot: Pilot
    version: Version


class PilotStore(Protocol):
    """The port."""

    async def put_pilot(self, pilot: Pilot, expected: Version | None) -> WriteResult:
        """Write over the version that was read; None: it must not exist yet."""
        ...

    async def get_pilot(self, pilot: str) -> StoredPilot | None:
        """Realtime."""
        ...

    async def find_pilots(
        self, *, tenant: str | None = None, state: str | None = None, limit: int | None = None
    ) -> Sequence[Pilot]:
        """By search, most recently registered first: all, however many there are, or at most `limit`, up to `MAX_PAGE`."""
        ...

    async def drop_gone(self, before: int) -> int:
        """Remove pilots that are gone and registered before then (milliseconds since 1970); return how many. `Transient` if unsure: drop again."""
        ...

    async def put_heartbeat_page(self, heartbeat_page: HeartbeatPage) -> None:
        """Store a server's heartbeat page, unchecked: only that server writes it. `Transient` if unsure: put again."""
        ...

    async def heartbeat_pages(self, *, fresh: bool = False, but_of: str = "") -> Sequence[HeartbeatPage]:
        """All heartbeat pages of all servers but one; up to a second old unless `fresh`."""
        ...

    async def drop_heartbeat_pages(self, server: str) -> None:
        """Remove the heartbeat pages of a server that is gone for good."""
        ...
