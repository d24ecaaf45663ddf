"""Which pilots stand on a server's heartbeat page, and until when."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

from forestay.adapters.sql.job_store import SqlJobStore
from forestay.adapters.sql.pilot_store import SqlPilotStore
from forestay.adapters.system.clock import SystemClock
from forestay.domain.pilots.pilot import Heartbeat, HeartbeatPage, newest_heartbeats
from forestay.services.pilots.heartbeats import Heartbeats, HeartbeatSettings


async def test_a_pilot_that_moved_stays_while_only_we_know_its_newest_channel(tmp_path: Path) -> None:
    """It opened a channel here a moment ago; its heartbeats still go elsewhere and name the channel before."""
    store = SqlJobStore(f"sqlite:///{tmp_path / 'heartbeats.db'}")
    await store.open()
    desk = Heartbeats(SqlPilotStore(store.database), SystemClock(), server="ours")
    running = asyncio.create_task(desk.run())
    try:
        await desk.open_session("p1", 6, 60)
        desk._look([_elsewhere(Heartbeat(counter=50, session=5, lease=60, claims=("c",)))])
        assert desk.last_heartbeat("p1") is not None, "whoever lost the channel before must find the newer one"
        desk._look([_elsewhere(Heartbeat(counter=51, session=6, lease=60, claims=("c",)))])
        assert desk.last_heartbeat("p1") is None
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await store.close()


def _elsewhere(heartbeat: Heartbeat) -> HeartbeatPage:
    return HeartbeatPage("other", 0, 1, "", {"p1": heartbeat})


class _Shelf:
    """Remembers the heartbeat pages as a store does."""

    def __init__(self) -> None:
        self.heartbeat_pages: dict[int, HeartbeatPage] = {}
        self.written: list[int] = []

    async def put_heartbeat_page(self, heartbeat_page: HeartbeatPage) -> None:
        self.heartbeat_pages[heartbeat_page.bucket] = heartbeat_page
        self.written.append(len(heartbeat_page.heartbeats))


class _Hand(SystemClock):
    now_at = 0.0

    def monotonic(self) -> float:
        return self.now_at


async def test_with_many_pilots_a_heartbeat_is_written_about_once() -> None:
    """Those that send heartbeats together stand on one heartbeat page; the newest heartbeat of everyone is always on some heartbeat page, and those gone on none."""
    shelf, clock = _Shelf(), _Hand()
    settings = HeartbeatSettings(many=10, phases=5, flush_many=1.0, sweep=3.0)
    desk = Heartbeats(shelf, clock, server="ours", settings=settings)  # type: ignore[arg-type]
    pilots = [f"p{number}" for number in range(50)]
    for counter in range(1, 4):
        for phase in range(5):
            clock.now_at = 100.0 + 5 * counter + phase
            heartbeats = [
                asyncio.ensure_future(desk.heartbeat(pilot, Heartbeat(counter, 1, 60)))
                for pilot in pilots[10 * phase : 10 * phase + 10]
            ]
            await asyncio.sleep(0)
            before = len(shelf.written)
            await desk._write_dirty()
            await asyncio.gather(*heartbeats)
            if counter > 1:
                assert sum(shelf.written[before:]) <= 20, "not everyone's heartbeats, but those of now"
    newest = newest_heartbeats(shelf.heartbeat_pages.values())
    assert {pilot: newest[pilot].counter for pilot in pilots} == dict.fromkeys(pilots, 3)
    desk.forget("p7")
    for bucket in desk._buckets:
        bucket.dirty = bucket.dirty or bucket.stale_since is not None
    await desk._write_dirty()
    assert "p7" not in newest_heartbeats(shelf.heartbeat_pages.values())
    assert desk.last_heartbeat("p7") is None
    assert desk.last_heartbeat("p8") == Heartbeat(3, 1, 60)
