"""Rules behind the safeguards: a storm is one group, loops end, and what a rule did is in the audit log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.services.exceptions.building import recovery_of, sql_stores
from tests.unit.services.exceptions.test_failures import IS_MEMORY, LOST_NODE, MORE_MEMORY, OOM, Desk

from forestay.adapters.sql.job_store import SqlJobStore
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import PLAYBOOK, Decision, Incident, IncidentState, status_of
from forestay.domain.exceptions.incidents.retry_policy import RETRIES, Budgets
from forestay.domain.exceptions.safeguards.rate_limit import Meter
from forestay.domain.jobs.job_document import State
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import RetryPolicy
from forestay.ports.exceptions.incident_store import IncidentQuery
from forestay.services.exceptions.safeguards.action_limits import ActionLimits, CanaryOutcome

NEEDS = Resources(cpus=1, memory=1 << 30)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    store = SqlJobStore(f"sqlite:///{tmp_path / 'failures.db'}")
    await store.open()
    yield Desk(sql_stores(store))
    await store.close()


async def test_in_a_storm_one_job_is_tried_and_the_others_are_one_group(desk: Desk) -> None:
    rule = await desk.add_rule(IS_MEMORY, MORE_MEMORY)
    handler = desk.handler()
    audit = handler.log.audit
    await handler.handle_failures([(await desk.put(f"job-{number}", resources=NEEDS), OOM) for number in range(60)])
    states = [(await desk.now(f"job-{number}")).state for number in range(60)]
    assert (states.count(State.AVAILABLE), states.count(State.FAULTED)) == (1, 59)
    kept = (await desk.incidents.find(IncidentQuery(states=frozenset({IncidentState.WAITING})))).statuses
    assert len(kept) == 59
    (group,) = {stored.status.group for stored in kept}
    assert group.startswith("cause:memory of ada@")
    entries, _ = await audit.read("lab")
    (entry,) = entries
    assert entry.what == "rule.act"
    assert entry.by.endswith(f"#{rule}")
    assert entry.detail["owner"] == "ada"


async def test_a_rule_that_acts_on_its_own_consequences_is_ended(desk: Desk) -> None:
    rule = await desk.add_rule(IS_MEMORY, MORE_MEMORY)
    stored = await desk.put("one", attempt=6, failures=6, resources=NEEDS)
    for number in range(5):
        made = Incident(f"i{number}", "lab", "ada", ExceptionType.ABORT, 1_000 + number, job="one", attempt=number + 1)
        await desk.incidents.add_incidents([(made, replace(status_of(made), state=IncidentState.COMPLETE))])
        acted = Decision(made.id, 1, "lab", made.at, PLAYBOOK, f"domain/site#{rule}")
        await desk.incidents.add_decisions([acted])
    handler = desk.handler()
    await handler.handle_failures([(stored, OOM)])
    held = (await desk.incidents.find(IncidentQuery(states=frozenset({IncidentState.HELD})))).statuses
    (known,) = held
    assert f"#{rule} acted 5 times on this job" in known.status.note
    assert (await desk.now("one")).state is State.FAULTED


async def test_a_step_that_needs_approval_waits_for_one(desk: Desk) -> None:
    await desk.add_rule(IS_MEMORY, {"action": "force-complete", "target": "job"})
    stored = await desk.put("one", resources=NEEDS)
    await desk.handler().handle_failures([(stored, OOM)])
    assert (await desk.now("one")).state is State.FAULTED
    assert (await desk.status("one"))[0] is IncidentState.HELD


async def test_retries_of_the_default_policy_in_a_storm_are_one_group_with_one_tried_first(desk: Desk) -> None:
    """The node is to blame, so nobody pays: but 60 resubmissions at once are a storm all the same."""
    handler = desk.handler()
    await handler.handle_failures([(await desk.put(f"job-{number}"), LOST_NODE) for number in range(60)])
    documents = [await desk.now(f"job-{number}") for number in range(60)]
    states = [document.state for document in documents]
    assert (states.count(State.AVAILABLE), states.count(State.FAULTED)) == (1, 59)
    kept = (await desk.incidents.find(IncidentQuery(states=frozenset({IncidentState.WAITING})))).statuses
    (group,) = {stored.status.group for stored in kept}
    assert group.startswith("cause:node@"), "infrastructure is nobody's own: all owners are one storm"
    (tried,) = [document for document in documents if document.state is State.AVAILABLE]
    assert (tried.failures, tried.releases) == (0, 1), "the user did not pay"
    waits = {document.not_before for document in documents if document.state is State.FAULTED}
    assert len(waits) > 1, "they do not all ask again in the same minute"


async def test_a_few_failures_cost_one_write_of_documents_and_their_retries_are_counted(desk: Desk) -> None:
    handler = desk.handler()
    safeguards = handler.safeguards.limits
    puts: list[int] = []
    real = safeguards.documents.put

    async def counted(documents: Any) -> Any:
        puts.append(len(documents))
        return await real(documents)

    safeguards.documents.put = counted  # type: ignore[method-assign]
    failures = [(await desk.put(f"job-{number}"), LOST_NODE) for number in range(10)]
    await handler.handle_failures(failures)
    assert len(puts) == 1, "what is noticed and what is leased is one write"
    assert all([(await desk.now(f"job-{number}")).state is State.AVAILABLE for number in range(10)])
    assert (await desk.now("job-0")).extra[RETRIES] == [["forestay", "node", 1]]
    owner = [name for name in await safeguards.buckets("lab") if name.meter is Meter.OWNER]
    assert not owner, "infrastructure is not taken from the owner's limit"


async def test_one_owners_storm_does_not_hold_anothers_jobs(desk: Desk) -> None:
    twice = RetryPolicy(max_attempts=2)
    handler = desk.handler()
    await handler.handle_failures([(await desk.put(f"job-{number}", retry=twice), OOM) for number in range(60)])
    other = await desk.put("bens", retry=twice, owner="ben")
    await handler.handle_failures([(other, OOM)])
    assert (await desk.now("bens")).state is State.AVAILABLE


async def test_retries_of_other_layers_are_in_the_one_ledger_and_budgets_see_them(desk: Desk) -> None:
    """Snakemake has tried it twice and the batch system requeued it once: of four tries for this cause one is left."""
    await desk.add_rule(IS_MEMORY, {"action": "retry"})
    labels = {"snakemake_attempt": "3", "scheduler_restarts": "1"}
    handler = desk.handler()
    handler.executor.playbooks.jobs.budgets = Budgets(causes={"memory": 4})
    await handler.handle_failures([(await desk.put("one", resources=NEEDS, labels=labels), OOM)])
    document = await desk.now("one")
    assert document.state is State.AVAILABLE
    retries = document.extra[RETRIES]
    assert isinstance(retries, list)
    assert sorted(retries) == [
        ["batch", "memory", 1],
        ["executor", "memory", 2],
        ["forestay", "memory", 1],
    ]
    spent = await desk.put("two", resources=NEEDS, labels=labels | {"temporal_attempt": "2"})
    await handler.handle_failures([(spent, OOM)])
    assert (await desk.now("two")).state is State.FAULTED
    assert (await desk.status("two"))[0] is IncidentState.HELD


async def test_what_needs_approval_goes_on_when_one_agrees(desk: Desk) -> None:
    await desk.add_rule(IS_MEMORY, {"action": "force-complete", "target": "job"})
    handler = desk.handler()
    approvals = handler.safeguards.approvals
    stored = await desk.put("one", resources=NEEDS)
    await handler.handle_failures([(stored, OOM)])
    (asked,) = await approvals.find("lab")
    assert asked.asking.on == "one"
    assert asked.asking.act["kind"] == "decision"
    await approvals.answer("lab", asked.id, agreed=True, by="ben", approver=True, why="")
    act = asked.asking.act
    assert await recovery_of(handler).resume(act["incident"], act["n"])
    assert (await desk.now("one")).state is State.FORCED_COMPLETE
    assert (await desk.status("one"))[0] is IncidentState.COMPLETE


async def test_what_is_held_while_its_group_is_let_through_does_not_stay_held(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = await desk.add_rule(IS_MEMORY, MORE_MEMORY)
    handler = desk.handler()
    safeguards = handler.safeguards.limits
    await handler.handle_failures([(await desk.put(f"job-{number}", resources=NEEDS), OOM) for number in range(60)])
    (group,) = await safeguards.storms.groups("lab")
    ((trial, canary),) = group.canaries.items()
    assert trial.rule.endswith(rule)
    await safeguards.storms.tell("lab", [CanaryOutcome(group.id, trial, act, well=False) for act in canary.pending])
    await handler.handle_failures([(await desk.put("before", resources=NEEDS), OOM)])
    assert (await desk.status("before"))[0] is IncidentState.HELD
    real = ActionLimits.permit

    async def spoken_meanwhile(self: ActionLimits, *asked: Any) -> Any:
        answers = await real(self, *asked)
        await self.storms.let_all("lab", group.id, trial.rule)
        return answers

    monkeypatch.setattr(ActionLimits, "permit", spoken_meanwhile)
    await handler.handle_failures([(await desk.put("after", resources=NEEDS), OOM)])
    assert (await desk.status("after"))[0] is IncidentState.WAITING, "nobody would have woken it"
    assert (await desk.now("after")).not_before is not None
    assert await recovery_of(handler).wake("lab", group.id) >= 1
    assert (await desk.status("before"))[0] is IncidentState.WAITING
