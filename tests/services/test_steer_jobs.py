"""Many jobs are steered at once, and the same again changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.examples import job

from holdfast.adapters.sql.job_store import SqlJobStore
from holdfast.adapters.system.clock import SystemClock
from holdfast.domain.jobs.claim import leave_fault
from holdfast.domain.jobs.job_document import Claim, State
from holdfast.ports.errors import Transient
from holdfast.ports.job_store import Change
from holdfast.services.steer_jobs import SteerJobs
from holdfast.services.write_checked import Answer, CheckedWriter, Unsettled, Wish


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


async def test_what_runs_is_ordered_to_stop_although_the_store_did_not_settle_all(tmp_path: Path) -> None:
    """The repeat finds those cancelled already, and would not order it any more."""

    class Forgetful(CheckedWriter):
        async def write(self, wishes: Sequence[Wish]) -> Sequence[Answer]:
            first, *others = await super().write(wishes)
            return [Unsettled("no answer"), *others] if others else [first]

    store = SqlJobStore(f"sqlite:///{tmp_path / 'steer.db'}")
    await store.open()
    try:
        runs: dict[str, Any] = {"state": State.RUNNING, "attempt": 1, "claim": Claim("c", "pilot-1", "n17", 1)}
        await store.write([Change(job("one"), None), Change(job("two", **runs), None)])
        steer = SteerJobs(store, Forgetful(store), SystemClock(), leave_fault)
        with pytest.raises(Transient):
            await steer.many(["one", "two"], "cancel", holder="case", by="case")
        (order,) = await store.find_records(kind="order")
        assert (order.job, order.body["order"]) == ("two", "cancel")
    finally:
        await store.close()
