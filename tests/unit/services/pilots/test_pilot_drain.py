"""Which pilots are told to drain."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.contract.examples import NOW, pilot

from forestay.adapters.sql import pilot_store
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.adapters.sql.pilot_store import SqlPilotStore
from forestay.adapters.system.clock import SystemClock
from forestay.domain.pilots.pilot import PilotState
from forestay.services.pilots.pilot_drain import PilotDrain, PilotSelection


async def test_those_that_are_gone_hide_none_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A domain has had many more pilots than it has, and one page has only so many, the newest first."""
    monkeypatch.setattr(pilot_store, "MAX_PAGE", 5)
    store = SqlJobStore(f"sqlite:///{tmp_path / 'drain.db'}")
    await store.open()
    try:
        pilots = SqlPilotStore(store.database)
        for state in (PilotState.ALIVE, PilotState.SILENT):
            await pilots.put_pilot(pilot(state.value, state=state), None)
        for number in range(9):
            await pilots.put_pilot(pilot(f"gone-{number}", state=PilotState.GONE, registered=NOW + 1 + number), None)
        drains = PilotDrain(store, pilots, SystemClock(), lambda _pilot, _order, _body: True)
        chosen = await drains.choose("alpha", PilotSelection((), "site", ""))
        assert {other_pilot.id for other_pilot in chosen} == {"alive", "silent"}
    finally:
        await store.close()
