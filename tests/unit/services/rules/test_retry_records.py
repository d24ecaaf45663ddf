"""What became of one error's failures is counted at its site, by two reads, and never in the way of anything else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.contract.examples import job

from forestay.adapters.sql.incident_store import SqlIncidentStore
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import Incident, IncidentStatus, status_of
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, State, Token
from forestay.ports.errors import Transient
from forestay.ports.jobs.job_store import DocumentChange
from forestay.services.rules.retry_records import MOST, RetryRecords

WON = AttemptResult(Token(0, 2), "c", AttemptOutcome.OK)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlJobStore]:
    store = SqlJobStore(f"sqlite:///{tmp_path / 'records.db'}")
    await store.open()
    yield store
    await store.close()


def failure(number: int, site: str, tenant: str = "lab") -> tuple[Incident, IncidentStatus]:
    context: dict[str, Any] = {"evidence": {"log_tail": "FrobError: seven"}, "site": {"name": site}}
    incident = Incident(
        f"i{number}", tenant, "ann", ExceptionType.ABORT, number, job=f"j{number}", attempt=1, context=context
    )
    return incident, status_of(incident)


async def test_the_failures_of_the_error_at_its_site_are_counted(store: SqlJobStore) -> None:
    incidents = SqlIncidentStore(store.database)
    failures = [failure(n, "north") for n in range(3)] + [failure(3, "south"), failure(4, "north", "other")]
    await incidents.add_incidents(failures)
    await store.write(
        [
            DocumentChange(job(f"j{n}", tenant="lab", state=State.COMPLETED, attempt=2, winner=WON), None)
            for n in (0, 1, 3)
        ]
    )
    records = RetryRecords(incidents, store)
    record = await records.of(failures[2][1])
    assert record is not None
    assert (record.seen, record.retried, record.helped, record.whole) == (3, 2, 2, True)
    assert await records.of(IncidentStatus("x", "lab", "ann", ExceptionType.ABORT, 0)) is None, "without a fingerprint"


async def test_of_many_the_newest_are_counted_by_two_reads(store: SqlJobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    incidents = SqlIncidentStore(store.database)
    failures = [failure(n, "north") for n in range(MOST + 5)]
    await incidents.add_incidents(failures)
    reads: list[str] = []
    for owner, name in ((incidents, "find"), (store, "get")):
        real = getattr(owner, name)

        async def counted(*args: Any, _real: Any = real, _name: str = name, **options: Any) -> Any:
            reads.append(_name)
            return await _real(*args, **options)

        monkeypatch.setattr(owner, name, counted, raising=True)
    record = await RetryRecords(incidents, store).of(failures[-1][1])
    assert record is not None
    assert (record.seen, record.whole, reads) == (MOST, False, ["find", "get"])

    async def away(*_args: Any, **_options: Any) -> Any:
        raise Transient("the store is away")

    monkeypatch.setattr(store, "get", away)
    assert await RetryRecords(incidents, store).of(failures[-1][1]) is None
