"""How deep a fault lies: what rules did to its job, its item and case, and the worklets above it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.unit.services.exceptions.test_failure_handler import OLD, Desk

from forestay.adapters.sql.incident_store import SqlIncidentStore
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import Decision, Incident, IncidentStatus, status_of
from forestay.domain.exceptions.safeguards.brakes import BrakePolicy, Chain
from forestay.domain.jobs.job_document import FlowRef
from forestay.ports.jobs.job_store import Record
from forestay.services.exceptions.decide.failure_decider import EXLET
from forestay.services.exceptions.detect.pending_failure import PendingFailure
from forestay.services.exceptions.safeguards.chain_counter import ChainCounter


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    store = SqlJobStore(f"sqlite:///{tmp_path / 'faults.db'}")
    await store.open()
    yield Desk(store, SqlIncidentStore(store.database))
    await store.close()


async def _fault(desk: Desk, name: str, case: str, work: str) -> PendingFailure:
    stored = await desk.put(name, tie=FlowRef(case, work, "f" * 64, 0, 0, 1))
    item = work.partition("@")[0]
    standing = IncidentStatus(
        f"fault-{name}", "lab", "ada", ExceptionType.ABORT, OLD + 9, case=case, item=item, job=name
    )
    return PendingFailure(stored.document, standing, Decision(standing.id, 1, "lab", OLD, EXLET, "domain/house#r1"))


async def test_worklets_of_worklets_are_counted(desk: Desk) -> None:
    """The exlet of c1 launched c2, whose exlet launched c3."""
    for below, above in (("c2", "c1"), ("c3", "c2")):
        body = {"incident": f"i-{above}", "n": 1, "step": 0, "case": above}
        await desk.store.add_records([Record(f"worklet:{below}", "lab", "worklet", below, OLD, body)])
    chains = ChainCounter(desk.incidents, desk.store)
    found = [await _fault(desk, f"of-{case}", case, "align@1") for case in ("c1", "c2", "c3")]
    counted = await chains.count(found, BrakePolicy())
    assert [counted[one.id].above for one in found] == [0, 1, 2]
    assert await chains.count(found, BrakePolicy()) == counted, "what is remembered says the same"
    assert counted["fault-of-c3"].depth == 2


async def test_an_item_that_a_rule_began_anew_counts_with_all_its_jobs(desk: Desk) -> None:
    for number, step in enumerate(
        (
            {"action": "restart", "target": "item"},
            {"action": "restart", "target": "case"},
            {"action": "resubmit", "how": "same"},
        )
    ):
        made = Incident(
            f"i{number}", "lab", "ada", ExceptionType.ABORT, OLD, case="c1", item="align", job=f"old-{number}"
        )
        await desk.incidents.add_incidents([(made, status_of(made))])
        acted = Decision(made.id, 1, "lab", OLD, EXLET, "domain/house#r1", exlet={"name": "x", "steps": [step]})
        await desk.incidents.add_decisions([acted])
    again = await _fault(desk, "again", "c1", "align@2")
    other = await _fault(desk, "other", "c1", "sort@2")
    first = await _fault(desk, "first", "c1", "align@1")
    counted = await ChainCounter(desk.incidents, desk.store).count([again, other, first], BrakePolicy())
    assert counted[again.id] == Chain(on_item=2)
    assert counted[other.id] == Chain(on_item=1), "the case as a whole began anew"
    alone = await ChainCounter(desk.incidents, desk.store).count([first], BrakePolicy())
    assert alone[first.id] == Chain(), "what never began anew is not looked up"
