"""Many jobs are steered at once, and the same again changes nothing."""

from __future__ import annotations

from pathlib import Path

from tests.contracts.examples import job

from holdfast.adapters.sql.job_store import SqlJobStore
from holdfast.adapters.system.clock import SystemClock
from holdfast.domain.jobs.claim import leave_fault
from holdfast.domain.jobs.job_document import State
from holdfast.ports.job_store import Change
from holdfast.services.steer_jobs import SteerJobs
from holdfast.services.write_checked import CheckedWriter


async def test_jobs_that_were_cancelled_already_are_cancelled_again(tmp_path: Path) -> None:
    """As a case does it that is rolled back while one of its blocks ends."""
    store = SqlJobStore(f"sqlite:///{tmp_path / 'steer.db'}")
    await store.open()
    try:
        steer = SteerJobs(store, CheckedWriter(store), SystemClock(), leave_fault)
        await store.write([Change(job(name), None) for name in ("one", "two")])
        for jobs in (["one"], ["one", "two"]):
            await steer.many(jobs, "cancel", holder="case", by="case")
        found = await store.get(["one", "two"])
        assert {one.document.state for one in found.values()} == {State.CANCELLED}
    finally:
        await store.close()
