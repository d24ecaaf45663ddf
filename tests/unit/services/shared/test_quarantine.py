"""A document that cannot be read, or an item that raises, stops no other item: of its tenant or of another."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pytest
from sqlalchemy import make_url, select, text, update
from sqlalchemy.ext.asyncio import create_async_engine
from tests import servers
from tests.contract.examples import job
from tests.unit.services.exceptions.building import build_pipeline, build_runner, recovery_of, sql_stores
from tests.unit.services.exceptions.test_exceptions import Scenario

from forestay.adapters.cel.conditions import CelConditions
from forestay.adapters.sql.document_store import SqlDocumentStore
from forestay.adapters.sql.incident_store import SqlIncidentStore
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.adapters.sql.tables import documents, jobs, papers, statuses
from forestay.adapters.system.clock import SystemClock
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import Decision, Incident, IncidentState, IncidentStatus, status_of
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, State, Token
from forestay.domain.playbooks.action import ActionKind, ActionTarget, Steer
from forestay.domain.playbooks.playbook import Playbook, PlaybookStep, playbook_as_plain
from forestay.ports.errors import Permanent, Transient, Unreadable
from forestay.ports.exceptions.incident_store import IncidentQuery
from forestay.ports.jobs.job_store import DocumentChange, Written
from forestay.services.exceptions.act.incident_closer import IncidentCloser
from forestay.services.exceptions.pipeline import ExceptionPipeline
from forestay.services.exceptions.safeguards.action_limits import StormTracker
from forestay.services.rules.rule_store import VERSION, RuleCache, RuleStore
from forestay.services.shared.checked_writer import CheckedWriter, ProposedWrite, WriteApplied, WriteUnsettled
from forestay.services.shared.quarantine import OUTAGE, Quarantine

OLD = 1_600_000_000_000
HOLD = playbook_as_plain(Playbook("look", (PlaybookStep(Steer(ActionKind.HOLD, ActionTarget.JOB)),)))
GONE = {**HOLD, "steps": [{"action": "an-action-of-another-release"}]}
"""A playbook with a step that this release does not know."""


@dataclass
class Desk:
    """The loops of a reconciler over one real store."""

    store: SqlJobStore
    reports: list[str] = field(default_factory=list)

    @property
    def incidents(self) -> SqlIncidentStore:
        return SqlIncidentStore(self.store.database)

    def exceptions(self) -> ExceptionPipeline:
        return build_pipeline(sql_stores(self.store), troubled=self.reports.append)

    async def put_job(self, name: str, tenant: str, **fields: Any) -> None:
        (result,) = await self.store.write([DocumentChange(job(name, tenant=tenant, **fields), None)])
        assert isinstance(result, Written)

    async def add_violation(self, name: str, tenant: str, *, due: int, playbook: Any = HOLD) -> None:
        """A constraint violation of a job that was decided on and is due: a rule holds the job."""
        await self.put_job(name, tenant)
        incident = Incident(name, tenant, "ann", ExceptionType.CONSTRAINT_VIOLATION, OLD, job=name)
        await self.incidents.add_incidents([(incident, status_of(incident, due=due))])
        await self.incidents.add_decisions([Decision(name, 1, tenant, OLD, "playbook", "rule", playbook=playbook)])

    async def add_failure(self, name: str, tenant: str, *, changed: int) -> None:
        last = AttemptResult(Token(0, 1), f"claim-{name}", AttemptOutcome.FAILURE, exit_code=1, host="n17")
        await self.put_job(
            name, tenant, state=State.FAULTED, attempt=1, failures=1, last=last, changed=changed, not_before=changed
        )

    async def spoil(self, table: Any, column: str, name: str, body: bytes = b'{"cut off') -> None:
        """Overwrite the stored bytes of one document."""
        assert await self.store.database.rows(select(table.c.id).where(table.c.id == name)), f"there is no {name}"
        await self.store.database.run(update(table).where(table.c.id == name).values({column: body}))

    async def is_held(self, name: str) -> bool:
        return bool((await self.store.get([name]))[name].document.holders)

    async def status(self, name: str) -> IncidentStatus:
        return (await self.incidents.get_statuses([name]))[name].status


@asynccontextmanager
async def _database(kind: str, folder: Path) -> AsyncIterator[SqlJobStore]:
    if kind == "sqlite":
        store = SqlJobStore(f"sqlite:///{folder / 'desk.db'}")
        await store.open()
        yield store
        await store.close()
        return
    schema, url = f"aside_{uuid4().hex}", make_url(servers.postgres())
    store = SqlJobStore(url.render_as_string(hide_password=False), schema=schema)
    await store.open()
    yield store
    await store.close()
    engine = create_async_engine(url.set(drivername="postgresql+asyncpg"))
    async with engine.begin() as connection:
        await connection.execute(text(f"DROP SCHEMA IF EXISTS {schema} CASCADE"))
    await engine.dispose()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.live)])
async def desk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    async with _database(request.param, tmp_path) as store:
        yield Desk(store)


@pytest.mark.finding("F-D5")
async def test_incidents_and_decisions_that_cannot_be_read_stop_no_other_tenant(desk: Desk) -> None:
    for place, name in enumerate(("bad-decision", "bad-incident", "bad-status")):
        await desk.add_violation(name, "lab", due=OLD + place)
    await desk.add_violation("bad-playbook", "lab", due=OLD + 3, playbook=GONE)
    await desk.add_violation("good-lab", "lab", due=OLD + 4)
    await desk.add_violation("good-other", "other", due=OLD + 5)
    await desk.spoil(papers, "body", "Decision:bad-decision:1")
    await desk.spoil(papers, "body", "Incident:bad-incident", orjson.dumps({"id": "bad-incident", "kind": "no-kind"}))
    await desk.spoil(statuses, "document", "bad-status")
    service = desk.exceptions()
    await recovery_of(service).look_at_incidents()
    assert await desk.is_held("good-lab")
    assert await desk.is_held("good-other")
    for name in ("bad-decision", "bad-incident", "bad-playbook"):
        status = await desk.status(name)
        assert status.state is IncidentState.HELD, f"{name} waits for a person"
        assert status.note.startswith("could not be handled: ")
        assert any(name in report for report in desk.reports), desk.reports
    with pytest.raises(Unreadable) as refused:
        await desk.incidents.get_statuses(["bad-status", "good-lab"])
    assert refused.value.names == ("bad-status",)
    assert service.quarantine.count == 3
    await recovery_of(service).look_at_incidents()
    assert service.quarantine.count == 3, "each is counted once, however many passes find it"


@pytest.mark.finding("F-D5")
async def test_more_unreadable_statuses_than_a_page_has_hide_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forestay.services.exceptions.recovery.BULK", 2)
    for place in range(5):
        await desk.add_violation(f"bad-{place}", "lab", due=OLD + place)
        await desk.spoil(statuses, "document", f"bad-{place}")
    await desk.add_violation("good", "other", due=OLD + 9)
    await recovery_of(desk.exceptions()).look_at_incidents()
    assert await desk.is_held("good")


@pytest.mark.finding("F-D5")
async def test_a_rule_set_that_cannot_be_read_stops_only_those_whose_it_is(desk: Desk) -> None:
    await Scenario(desk.store).add_rule(
        ExceptionType.CONSTRAINT_VIOLATION,
        "task.data.grams > 10",
        {"action": "hold", "target": "job"},
        task={"data": {"grams": 11}},
    )
    kept = SqlDocumentStore(desk.store.database)
    versions = await desk.store.database.rows(select(documents.c.id).where(documents.c.kind == VERSION))
    assert versions
    for (name,) in versions:
        await desk.spoil(documents, "body", name)
    rules = RuleCache(RuleStore(kept), CelConditions())
    await rules.refresh()
    rulings = rules.decide("other", "", ExceptionType.CONSTRAINT_VIOLATION, "", {})
    assert not rulings.active.by
    with pytest.raises(Permanent, match="cannot be read"):
        rules.decide("lab", "", ExceptionType.CONSTRAINT_VIOLATION, "", {})
    await desk.add_violation("good", "other", due=OLD)
    await recovery_of(desk.exceptions()).look_at_incidents()
    assert await desk.is_held("good")


@pytest.mark.finding("F-D5")
async def test_faults_whose_decisions_cannot_be_read_stop_no_other(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forestay.services.exceptions.recovery.BULK", 2)
    for place in range(3):
        await desk.add_failure(f"bad-{place}", "lab", changed=OLD + place)
    service = desk.exceptions()
    await recovery_of(service).look_at_failures()
    found_statuses = {
        stored.status.job: stored.status for stored in (await desk.incidents.find(IncidentQuery())).statuses
    }
    for place in range(3):
        await desk.spoil(papers, "body", f"Decision:{found_statuses[f'bad-{place}'].id}:1")
        # As if whoever decided had died before the act.
        stored = (await desk.store.get([f"bad-{place}"]))[f"bad-{place}"]
        faulted = stored.document.having(state=State.FAULTED, not_before=OLD, changed=OLD + place)
        await desk.store.write([DocumentChange(faulted, stored.version)])
        known = (await desk.incidents.get_statuses([found_statuses[f"bad-{place}"].id]))[
            found_statuses[f"bad-{place}"].id
        ]
        waits = known.status.moved(IncidentState.WAITING, now=OLD, due=OLD, n=1)
        await desk.incidents.put_statuses([(waits, known.version)])
    await desk.add_failure("good-lab", "lab", changed=OLD + 10)
    await desk.add_failure("good-other", "other", changed=OLD + 11)
    await recovery_of(service).look_at_failures()
    decided = {stored.status.job for stored in (await desk.incidents.find(IncidentQuery())).statuses if stored.status.n}
    assert {"good-lab", "good-other"} <= decided
    for place in range(3):
        assert (await desk.status(found_statuses[f"bad-{place}"].id)).state is IncidentState.HELD


@pytest.mark.finding("F-D5")
async def test_overdue_incidents_are_closed_beside_one_that_cannot_be(desk: Desk) -> None:
    for place, (name, tenant) in enumerate([("bad", "lab"), ("spoilt-job", "lab"), ("good", "other")]):
        await desk.put_job(name, tenant)
        incident = Incident(name, tenant, "ann", ExceptionType.ABORT, OLD, job=name, attempt=1, event="claim-1")
        await desk.incidents.add_incidents([(incident, status_of(incident, due=OLD + place))])
        await desk.incidents.add_decisions([Decision(name, 1, tenant, OLD, "retry", "default policy")])
    await desk.spoil(papers, "body", "Decision:bad:1")
    await desk.spoil(jobs, "document", "spoilt-job")
    closing = IncidentCloser(
        desk.incidents, desk.store, build_runner(sql_stores(desk.store)), SystemClock(), troubled=desk.reports.append
    )
    await closing.look()
    assert (await desk.status("good")).state is IncidentState.COMPLETE
    assert (await desk.status("spoilt-job")).state is IncidentState.OPEN, "to be unreadable is not to be gone"
    assert closing.quarantine.count >= 2


@pytest.mark.finding("F-D5")
async def test_a_spoilt_tenant_stops_no_storm_of_another(desk: Desk) -> None:
    kept, clock = SqlDocumentStore(desk.store.database), SystemClock()
    storms = StormTracker(kept, desk.store, clock, troubled=desk.reports.append)
    for tenant in ("a-lab", "b-lab"):
        await storms.tell(tenant, [])
    looked: list[str] = []
    await desk.spoil(documents, "body", "storms:a-lab", b'{"slices": 7}')

    class Watched(StormTracker):
        async def look(self, tenant: str) -> Any:
            looked.append(tenant)

        def read(self, stored: Any) -> Any:
            looked.append(stored.document.tenant)
            return super().read(stored)

    watched = Watched(kept, desk.store, clock, troubled=desk.reports.append)
    await watched.look_at_all()
    assert looked == ["a-lab", "b-lab"]
    assert watched.quarantine.count == 1


@pytest.mark.finding("F-D5")
async def test_a_spoilt_job_stops_no_write_of_another(desk: Desk) -> None:
    for name in ("spoilt", "good"):
        await desk.put_job(name, "lab")
    await desk.spoil(jobs, "document", "spoilt")
    wishes = [
        ProposedWrite(name, lambda document: document.having(priority=9), lambda _document: False)
        for name in ("spoilt", "good")
    ]
    refused, settled = await CheckedWriter(desk.store).write(wishes)
    assert isinstance(refused, WriteUnsettled)
    assert isinstance(settled, WriteApplied)


async def test_an_outage_ends_a_pass_and_an_item_does_not() -> None:
    quarantine, handled, reports = Quarantine(), list[int](), list[str]()

    async def handle(number: int) -> None:
        if number == 1:
            raise ValueError("no")
        if number == 2 or number >= 10:
            raise Transient("away")
        handled.append(number)

    later = await quarantine.each(range(5), handle, name=str, troubled=reports.append)
    assert isinstance(later, Transient)
    assert handled == [0, 3, 4]
    assert reports == ["1 is set aside: ValueError: no"]
    with pytest.raises(Transient):
        await quarantine.each(range(10, 10 + OUTAGE), handle, name=str, troubled=reports.append)
