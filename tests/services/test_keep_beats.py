"""Which pilots stand on a server's sheet, and until when."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

from holdfast.adapters.sql.job_store import SqlJobStore
from holdfast.adapters.sql.pilot_store import SqlPilotStore
from holdfast.adapters.system.clock import SystemClock
from holdfast.domain.pilots.pilot import Beat, BeatSheet
from holdfast.services.keep_beats import KeepBeats


async def test_a_pilot_that_moved_stays_while_only_we_know_its_newest_channel(tmp_path: Path) -> None:
    """It opened a channel here a moment ago; its beats still go elsewhere and name the channel before."""
    store = SqlJobStore(f"sqlite:///{tmp_path / 'beats.db'}")
    await store.open()
    desk = KeepBeats(SqlPilotStore(store.database), SystemClock(), server="ours")
    running = asyncio.create_task(desk.run())
    try:
        await desk.open_session("p1", 6, 60)
        desk._look([_elsewhere(Beat(counter=50, session=5, lease=60, claims=("c",)))])
        assert desk.last_beat("p1") is not None, "whoever lost the channel before must find the newer one"
        desk._look([_elsewhere(Beat(counter=51, session=6, lease=60, claims=("c",)))])
        assert desk.last_beat("p1") is None
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await store.close()


def _elsewhere(beat: Beat) -> BeatSheet:
    return BeatSheet("other", 0, 1, "", {"p1": beat})
