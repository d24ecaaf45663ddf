"""Faults of jobs are answered once each, whoever handles them and however often."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.examples import job

from holdfast.adapters.sql.incident_store import SqlIncidentStore
from holdfast.adapters.sql.job_store import SqlJobStore
from holdfast.adapters.system.clock import SystemClock
from holdfast.adapters.system.patterns import Patterns
from holdfast.domain.faults.house_policy import NEVER
from holdfast.domain.faults.incident import IncidentState
from holdfast.domain.jobs.job_document import Ending, JobDocument, Outcome, State, Token
from holdfast.domain.jobs.specification import RetryPolicy, WhenExhausted
from holdfast.ports.incident_store import IncidentQuery
from holdfast.ports.job_store import Change, Record, Stored, Written
from holdfast.services.handle_faults import HandleFaults
from holdfast.services.write_checked import CheckedWriter

OLD = 1_600_000_000_000
PATTERNS = Patterns()
OOM = "slurmstepd: error: Detected 1 oom_kill event in StepId=811.batch. Some of the step tasks have been OOM Killed.\n"
LOST_NODE = "slurmstepd: error: *** JOB 4711 ON n17 CANCELLED AT 2026-03-01T10:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n"


@dataclass
class Desk:
    store: SqlJobStore
    incidents: SqlIncidentStore

    def handler(self) -> HandleFaults:
        return HandleFaults(self.store, self.incidents, CheckedWriter(self.store), SystemClock(), PATTERNS.classifier)

    async def put(self, name: str, **fields: Any) -> Stored:
        last = Ending(Token(0, 1), f"claim-{name}", Outcome.FAULT, exit_code=1, host="n17")
        known: dict[str, Any] = {
            "state": State.FAULTED,
            "attempt": 1,
            "faults": 1,
            "last": last,
            "changed": OLD,
            "not_before": OLD,
        }
        document = job(name, tenant="lab", **known | fields)
        (result,) = await self.store.write([Change(document, None)])
        assert isinstance(result, Written)
        return Stored(document, result.version)

    async def now(self, name: str) -> JobDocument:
        return (await self.store.get([name]))[name].document

    async def standing(self, name: str) -> tuple[IncidentState, str]:
        (found,) = (await self.incidents.find(IncidentQuery(job=name))).found
        return found.standing.state, found.standing.cause


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    store = SqlJobStore(f"sqlite:///{tmp_path / 'faults.db'}")
    await store.open()
    yield Desk(store, SqlIncidentStore(store.database))
    await store.close()


async def test_a_fault_becomes_an_incident_with_its_evidence_cause_and_decision(desk: Desk) -> None:
    stored = await desk.put("one", retry=RetryPolicy(max_attempts=2))
    await desk.handler().handle([(stored, "password=hunter2\n" + OOM)])
    document = await desk.now("one")
    assert (document.state, document.faults) == (State.AVAILABLE, 1)
    assert document.history[-1].note == "attempt 2 of 2"
    (found,) = (await desk.incidents.find(IncidentQuery(job="one"))).found
    incident = (await desk.incidents.get_incidents([found.standing.id]))[found.standing.id]
    assert (incident.cause, found.standing.state) == ("memory", IncidentState.COMPLETE)
    evidence, finding = incident.context["evidence"], incident.context["finding"]
    assert isinstance(evidence, dict)
    assert isinstance(finding, dict)
    assert "hunter2" not in evidence["log_tail"], "secrets are not kept"
    assert finding["retry"] == "changed"
    (decision,) = await desk.incidents.decisions(incident.id)
    assert (decision.verdict, decision.by) == ("retry", "house policy")


async def test_infrastructure_is_not_charged_to_the_user(desk: Desk) -> None:
    stored = await desk.put("one")  # one attempt, and it was used
    await desk.handler().handle([(stored, LOST_NODE)])
    document = await desk.now("one")
    assert (document.state, document.faults, document.releases) == (State.AVAILABLE, 0, 1)
    assert await desk.standing("one") == (IncidentState.COMPLETE, "node")


async def test_what_is_exhausted_fails_or_waits_for_a_person(desk: Desk) -> None:
    fails = await desk.put("fails")
    waits = await desk.put("waits", retry=RetryPolicy(when_exhausted=WhenExhausted.HOLD))
    await desk.handler().handle([(fails, ""), (waits, "")])
    assert (await desk.now("fails")).state is State.FAILED
    assert await desk.standing("fails") == (IncidentState.FAILED, "unknown")
    assert ((await desk.now("waits")).state, (await desk.now("waits")).not_before) == (State.FAULTED, NEVER)
    assert await desk.standing("waits") == (IncidentState.HELD, "unknown")


@pytest.mark.ledger("P2-02")
async def test_what_a_dead_server_left_behind_is_found_and_many_handlers_answer_it_once(desk: Desk) -> None:
    for number in range(30):
        stored = await desk.put(f"job-{number}", retry=RetryPolicy(max_attempts=3))
        last = stored.document.last
        assert last is not None
        body = {"ending": {"claim": last.claim}, "pilot": "p", "log_tail": OOM}
        await desk.store.add_records([Record(f"e-{number}", "lab", "evidence", stored.document.id, OLD, body)])
    handlers = [desk.handler() for _ in range(4)]
    await asyncio.gather(*(one.look() for one in handlers))
    for number in range(30):
        document = await desk.now(f"job-{number}")
        assert (document.state, document.faults) == (State.AVAILABLE, 1)
        assert [line.event for line in document.history].count("retry") == 1
        assert await desk.standing(f"job-{number}") == (IncidentState.COMPLETE, "memory")
    await handlers[0].look()
    assert sum((await desk.incidents.count(IncidentQuery(), by="cause")).values()) == 30


async def test_a_decision_stands_whatever_would_be_decided_later(desk: Desk) -> None:
    """The handler that decided died before it acted; by now the job's policy would say otherwise."""
    stored = await desk.put("one", retry=RetryPolicy(max_attempts=2))
    dying = desk.handler()

    class Dead(Exception):
        pass

    class NoWriter:
        async def write(self, _wishes: object) -> object:
            raise Dead

    dying.writer = NoWriter()  # type: ignore[assignment]
    with pytest.raises(Dead):
        await dying.handle([(stored, "")])
    changed = stored.document.having(retry=RetryPolicy(max_attempts=1))
    (result,) = await desk.store.write([Change(changed, stored.version)])
    assert isinstance(result, Written)
    await desk.handler().look()
    assert (await desk.now("one")).state is State.AVAILABLE, "by the recorded decision"


async def test_a_fault_that_someone_answered_meanwhile_is_left_alone(desk: Desk) -> None:
    stored = await desk.put("one")
    moved = stored.document.having(state=State.CANCELLED)
    await desk.store.write([Change(moved, stored.version)])
    await desk.handler().handle([(stored, "")])
    assert (await desk.now("one")).state is State.CANCELLED
