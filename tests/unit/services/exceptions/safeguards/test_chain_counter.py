"""How deep a failure lies: what rules did to its job, its task and run, and the worklets above it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.unit.services.exceptions.building import sql_stores
from tests.unit.services.exceptions.test_failures import OLD, Desk

from forestay.adapters.sql.job_store import SqlJobStore
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import PLAYBOOK, Decision, Incident, status_of
from forestay.domain.exceptions.safeguards.safeguards import Chain, SafeguardPolicy
from forestay.domain.jobs.job_document import FlowRef
from forestay.ports.jobs.job_store import Record
from forestay.services.exceptions.exception_event import PendingException
from forestay.services.exceptions.safeguards.safeguards import ChainCounter


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    store = SqlJobStore(f"sqlite:///{tmp_path / 'failures.db'}")
    await store.open()
    yield Desk(sql_stores(store))
    await store.close()


async def _failure(desk: Desk, name: str, run: str, work: str) -> PendingException:
    stored = await desk.put(name, flow_ref=FlowRef(run, work, "f" * 64, 0, 0, 1))
    instance, _, round_ = work.partition("@")
    incident = Incident(
        f"failure-{name}",
        "lab",
        "ada",
        ExceptionType.ABORT,
        OLD + 9,
        run=run,
        instance=instance,
        job=name,
        attempt=1,
        round=int(round_),
    )
    plain = {"name": "x", "steps": [{"action": "resubmit", "how": "same"}]}
    decision = Decision(incident.id, 1, "lab", OLD, PLAYBOOK, "domain/site#r1", playbook=plain)
    return PendingException(incident, status_of(incident), decision, stored.document)


async def test_worklets_of_worklets_are_counted(desk: Desk) -> None:
    """The playbook of c1 launched c2, whose playbook launched c3."""
    for below, above in (("c2", "c1"), ("c3", "c2")):
        body = {"incident": f"i-{above}", "n": 1, "step": 0, "run": above}
        await desk.store.add_records([Record(f"worklet:{below}", "lab", "worklet", below, OLD, body)])
    chains = ChainCounter(desk.incidents, desk.store)
    failures = [await _failure(desk, f"of-{run}", run, "align@1") for run in ("c1", "c2", "c3")]
    counted = await chains.count(failures, SafeguardPolicy())
    assert [counted[failure.id].above for failure in failures] == [0, 1, 2]
    assert await chains.count(failures, SafeguardPolicy()) == counted, "what is remembered says the same"
    assert counted["failure-of-c3"].depth == 2


async def test_an_instance_that_a_rule_began_anew_counts_with_all_its_jobs(desk: Desk) -> None:
    for number, step in enumerate(
        (
            {"action": "restart", "target": "task"},
            {"action": "restart", "target": "run"},
            {"action": "resubmit", "how": "same"},
        )
    ):
        made = Incident(
            f"i{number}", "lab", "ada", ExceptionType.ABORT, OLD, run="c1", instance="align", job=f"old-{number}"
        )
        await desk.incidents.add_incidents([(made, status_of(made))])
        acted = Decision(made.id, 1, "lab", OLD, PLAYBOOK, "domain/site#r1", playbook={"name": "x", "steps": [step]})
        await desk.incidents.add_decisions([acted])
    again = await _failure(desk, "again", "c1", "align@2")
    other = await _failure(desk, "other", "c1", "sort@2")
    first = await _failure(desk, "first", "c1", "align@1")
    counted = await ChainCounter(desk.incidents, desk.store).count([again, other, first], SafeguardPolicy())
    assert counted[again.id] == Chain(on_instance=2)
    assert counted[other.id] == Chain(on_instance=1), "the run as a whole began anew"
    alone = await ChainCounter(desk.incidents, desk.store).count([first], SafeguardPolicy())
    assert alone[first.id] == Chain(), "what never began anew is not looked up"
