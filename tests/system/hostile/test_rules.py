"""Rules that fight each other, err, or meet hundreds of failures at once: what they may do is bounded, and whoever waits is not forgotten."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.contract.room import Stores
from tests.unit.services.exceptions.building import recovery_of
from tests.unit.services.exceptions.test_failures import MORE_MEMORY, Desk

from forestay.domain.exceptions.incidents.incident import IncidentState, IncidentStatus
from forestay.domain.exceptions.safeguards.safeguards import SafeguardPolicy
from forestay.domain.jobs.job_document import State
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import RetryPolicy, WhenExhausted
from forestay.ports.exceptions.incident_store import IncidentQuery

LOG = "Killed\nslurmstepd: error: Detected 1 oom_kill event in StepId=811.batch.\n"


@pytest.fixture
def desk(stores: Stores) -> Desk:
    """On every kind of store."""
    return Desk(stores)


async def _statuses(desk: Desk, query: IncidentQuery) -> list[IncidentStatus]:
    await desk.incidents.refresh()
    return [stored.status for stored in (await desk.incidents.find(query, limit=1000)).statuses]


async def test_two_rules_that_take_turns_stop_and_ask(desk: Desk) -> None:
    """Each acts on what the other one left. (No rule may ask for less than a job had, so they cannot undo each other's resources.)"""
    await desk.add_rule("job.attempt % 2 == 1", {"action": "resubmit", "how": "same"})
    await desk.add_rule("job.attempt % 2 == 0", MORE_MEMORY, attempt=2)
    await desk.put("one", retry=RetryPolicy(max_attempts=99), resources=Resources(cpus=1, memory=1 << 30))
    pipeline, acts = desk.handler(), 0
    for _ in range(40):
        stored = (await desk.store.get(["one"]))["one"]
        await pipeline.handle_failures([(stored, LOG)])
        document = await desk.now("one")
        if document.state is State.FAULTED:
            break
        acts += 1
        await desk.fail_again(document, exit_code=137, oom_kills=1)
    assert acts == SafeguardPolicy().max_depth, "as many as may follow from each other"
    statuses = await _statuses(desk, IncidentQuery(job="one"))
    (held,) = [status for status in statuses if status.state is IncidentState.HELD]
    assert f"{acts} actions followed from each other" in held.note, "the inbox says why"
    by = Counter(decision.by for decision in await desk.incidents.decisions_of([status.id for status in statuses]))
    assert sorted(by.values()) == [4, 5], "each in its turn, and the last one was refused"


async def test_a_rule_that_is_promoted_over_five_hundred_open_failures_is_tried_on_one(desk: Desk) -> None:
    """It is tried on one of them first; none of the others is lost or answered twice."""
    many = 500
    for number in range(many):
        stored = await desk.put(f"job-{number}", retry=RetryPolicy(when_exhausted=WhenExhausted.HOLD))
        await desk.handler().handle_failures([(stored, LOG)])
    assert len(await _statuses(desk, IncidentQuery(states=frozenset({IncidentState.HELD})))) == many
    await desk.add_rule('cause == "memory"', {"action": "resubmit", "how": "same"})
    pipeline = desk.handler()
    for _ in range(3):
        await desk.store.refresh()
        await recovery_of(pipeline).look_at_failures()
    states = Counter([(await desk.now(f"job-{number}")).state for number in range(many)])
    assert states[State.AVAILABLE] == 1, states
    assert states[State.AVAILABLE] + states[State.FAULTED] == many, "none is lost"
    for number in range(many):
        history = (await desk.now(f"job-{number}")).history
        assert sum(line.event == "retry" for line in history) <= 1, "none is answered twice"


async def test_a_rule_whose_condition_errs_acts_on_nothing_and_says_so(desk: Desk) -> None:
    await desk.add_rule("external.quota.left > 1", {"action": "resubmit", "how": "same"})
    stored = await desk.put("one", retry=RetryPolicy(max_attempts=5))
    await desk.handler().handle_failures([(stored, LOG)])
    assert (await desk.now("one")).state is State.FAULTED
    (status,) = await _statuses(desk, IncidentQuery(job="one"))
    assert status.state is IncidentState.HELD
    assert "quota" in status.note, status.note
