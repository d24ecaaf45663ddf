"""Many jobs are steered at once, and the same again changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.contract.examples import job

from forestay.adapters.sql.incident_store import SqlIncidentStore
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.adapters.system.clock import SystemClock
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import Incident, IncidentState, failure_incident_id, status_of
from forestay.domain.jobs.claim import leave_failure
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, Claim, State, Token
from forestay.ports.errors import Transient
from forestay.ports.jobs.job_store import DocumentChange
from forestay.services.jobs.job_control import JobControl
from forestay.services.shared.checked_writer import Answer, CheckedWriter, ProposedWrite, WriteUnsettled


async def test_jobs_that_were_cancelled_already_are_cancelled_again(tmp_path: Path) -> None:
    """As a run does it that is rolled back while one of its blocks ends."""
    store = SqlJobStore(f"sqlite:///{tmp_path / 'steer.db'}")
    await store.open()
    try:
        steer = JobControl(store, CheckedWriter(store), SystemClock(), leave_failure)
        await store.write([DocumentChange(job(name), None) for name in ("one", "two")])
        for jobs in (["one"], ["one", "two"]):
            await steer.many(jobs, "cancel", holder="run", by="run")
        stored_jobs = await store.get(["one", "two"])
        assert {stored_job.document.state for stored_job in stored_jobs.values()} == {State.CANCELLED}
    finally:
        await store.close()


async def test_what_runs_is_ordered_to_stop_although_the_store_did_not_settle_all(tmp_path: Path) -> None:
    """The repeat finds those cancelled already, and would not order it any more."""

    class Forgetful(CheckedWriter):
        async def write(self, wishes: Sequence[ProposedWrite]) -> Sequence[Answer]:
            first, *others = await super().write(wishes)
            return [WriteUnsettled("no answer"), *others] if others else [first]

    store = SqlJobStore(f"sqlite:///{tmp_path / 'steer.db'}")
    await store.open()
    try:
        runs: dict[str, Any] = {"state": State.RUNNING, "attempt": 1, "claim": Claim("c", "pilot-1", "n17", 1)}
        await store.write([DocumentChange(job("one"), None), DocumentChange(job("two", **runs), None)])
        steer = JobControl(store, Forgetful(store), SystemClock(), leave_failure)
        with pytest.raises(Transient):
            await steer.many(["one", "two"], "cancel", holder="run", by="run")
        (order,) = await store.find_records(kind="order")
        assert (order.job, order.body["order"]) == ("two", "cancel")
    finally:
        await store.close()


@pytest.mark.finding("F-D1")
@pytest.mark.parametrize("answers", [True, False])
async def test_a_retry_lets_go_of_what_the_playbook_of_its_failure_holds_before_the_incident_is_settled(
    tmp_path: Path, *, answers: bool
) -> None:
    store = SqlJobStore(f"sqlite:///{tmp_path / 'steer.db'}")
    await store.open()
    try:
        last = AttemptResult(Token(0, 1), "claim-1", AttemptOutcome.FAILURE, exit_code=1, host="n17")
        document = job("one", state=State.FAULTED, attempt=1, last=last)
        name = failure_incident_id(document)
        await store.write([DocumentChange(document.having(holders=(f"{name}:1:0", "ann")), None)])
        incidents = SqlIncidentStore(store.database)
        incident = Incident(name, document.tenant, "ann", ExceptionType.ABORT, 1, job="one", attempt=1)
        await incidents.add_incidents([(incident, status_of(incident).moved(IncidentState.HELD, now=1, n=1))])
        asked: list[str] = []

        async def released(incident: str) -> None:
            asked.append(incident)
            if not answers:
                raise Transient("the engine does not answer")

        steer = JobControl(store, CheckedWriter(store), SystemClock(), leave_failure, incidents, released)
        if not answers:
            with pytest.raises(Transient):
                await steer.retry("one", by="ann", reason="looked at")
            assert (await store.get(["one"]))["one"].document.state is State.FAULTED, "the command can be repeated"
            assert (await incidents.get_statuses([name]))[name].status.state is IncidentState.HELD
            return
        await steer.retry("one", by="ann", reason="looked at")
        now = (await store.get(["one"]))["one"].document
        assert (now.state, now.holders) == (State.AVAILABLE, ("ann",)), "what a person holds stays held"
        assert asked == [name]
        assert (await incidents.get_statuses([name]))[name].status.state is IncidentState.COMPLETE
    finally:
        await store.close()
