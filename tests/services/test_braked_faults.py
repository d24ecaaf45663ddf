"""Rules behind the brakes: a storm is one group, loops end, and what a rule did is in the audit log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.services.test_handle_faults import IS_MEMORY, MORE_MEMORY, OOM, Desk

from holdfast.adapters.sql.audit import SqlAuditStore
from holdfast.adapters.sql.incident_store import SqlIncidentStore
from holdfast.adapters.sql.job_store import SqlJobStore
from holdfast.adapters.system.clock import RandomIds, SystemClock
from holdfast.domain.faults.exception_type import ExceptionType
from holdfast.domain.faults.incident import Decision, Incident, IncidentState, standing_of
from holdfast.domain.jobs.job_document import State
from holdfast.domain.jobs.resources import Resources
from holdfast.ports.incident_store import IncidentQuery
from holdfast.services.decide_faults import EXLET
from holdfast.services.keep_audit import KeepAudit

NEEDS = Resources(cpus=1, memory=1 << 30)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    store = SqlJobStore(f"sqlite:///{tmp_path / 'faults.db'}")
    await store.open()
    yield Desk(store, SqlIncidentStore(store.database))
    await store.close()


async def test_in_a_storm_one_job_is_tried_and_the_others_are_one_group(desk: Desk) -> None:
    rule = await desk.add_rule(IS_MEMORY, MORE_MEMORY)
    handler = desk.handler()
    audit = handler.acting.audit = KeepAudit(SqlAuditStore(desk.store.database), SystemClock(), RandomIds())
    await handler.handle([(await desk.put(f"job-{number}", resources=NEEDS), OOM) for number in range(60)])
    states = [(await desk.now(f"job-{number}")).state for number in range(60)]
    assert (states.count(State.AVAILABLE), states.count(State.FAULTED)) == (1, 59)
    kept = (await desk.incidents.find(IncidentQuery(states=frozenset({IncidentState.WAITING})))).found
    assert len(kept) == 59
    (group,) = {one.standing.group for one in kept}
    assert group.startswith("cause:memory of ada@")
    entries, _ = await audit.read("lab")
    (entry,) = entries
    assert entry.what == "rule.act"
    assert entry.by.endswith(f"#{rule}")
    assert entry.detail["owner"] == "ada"


async def test_a_rule_that_acts_on_its_own_consequences_is_ended(desk: Desk) -> None:
    rule = await desk.add_rule(IS_MEMORY, MORE_MEMORY)
    stored = await desk.put("one", attempt=6, faults=6, resources=NEEDS)
    for number in range(5):
        made = Incident(f"i{number}", "lab", "ada", ExceptionType.ABORT, 1_000 + number, job="one", attempt=number + 1)
        await desk.incidents.add_incidents([(made, replace(standing_of(made), state=IncidentState.COMPLETE))])
        acted = Decision(made.id, 1, "lab", made.at, EXLET, f"domain/house#{rule}")
        await desk.incidents.add_decisions([acted])
    handler = desk.handler()
    await handler.handle([(stored, OOM)])
    held = (await desk.incidents.find(IncidentQuery(states=frozenset({IncidentState.HELD})))).found
    (known,) = held
    assert f"#{rule} has acted 5 times on this job" in known.standing.note
    assert (await desk.now("one")).state is State.FAULTED


async def test_a_step_that_needs_a_second_person_waits_for_one(desk: Desk) -> None:
    await desk.add_rule(IS_MEMORY, {"action": "force-complete", "target": "job"})
    stored = await desk.put("one", resources=NEEDS)
    await desk.handler().handle([(stored, OOM)])
    assert (await desk.now("one")).state is State.FAULTED
    assert (await desk.standing("one"))[0] is IncidentState.HELD
