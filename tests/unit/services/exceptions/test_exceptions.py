"""Exceptions other than the failures of our jobs: ignored, answered by a rule or by the default policy, once each, whoever raises them and however often."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.contract.examples import job
from tests.unit.services.exceptions.building import CONDITIONS, build_pipeline, recovery_of, sql_stores

from forestay.adapters.cel.sandbox import CelSandbox
from forestay.adapters.sql.document_store import SqlDocumentStore
from forestay.adapters.sql.incident_store import SqlIncidentStore
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.adapters.system.clock import RandomIds, SystemClock
from forestay.domain.exceptions.incidents.exception_policy import ExceptionAction, ExceptionPolicy
from forestay.domain.exceptions.incidents.exception_type import EXCEPTIONS, ExceptionType
from forestay.domain.exceptions.incidents.incident import MAX_DOCUMENT, IncidentState
from forestay.domain.jobs.job_document import JobDocument, State
from forestay.domain.rules.rule_set import RuleSetId, RuleSetLevel
from forestay.domain.rules.rule_tree import Conclusion
from forestay.ports.exceptions.incident_store import IncidentQuery
from forestay.ports.jobs.job_store import DocumentChange, Written
from forestay.services.exceptions.exception_event import ExceptionEvent
from forestay.services.exceptions.pipeline import ExceptionPipeline, HandledException
from forestay.services.exceptions.safeguards.action_limits import EmergencyStop
from forestay.services.exceptions.safeguards.approvals import Approvals
from forestay.services.rules.rule_editor import Edited, RuleDraft, RuleEditor
from forestay.services.rules.rule_store import DOMAIN, RuleStore

DEFAULT_POLICY = RuleSetId("lab", RuleSetLevel.DOMAIN, DOMAIN)
SUSPEND: dict[str, object] = {"action": "hold", "target": "job", "reason": "someone should look"}
VIOLATION = ExceptionType.CONSTRAINT_VIOLATION


@dataclass
class Scenario:
    store: SqlJobStore
    policy: ExceptionPolicy = field(default_factory=ExceptionPolicy)

    @property
    def incidents(self) -> SqlIncidentStore:
        return SqlIncidentStore(self.store.database)

    @property
    def approvals(self) -> Approvals:
        return Approvals(self.store, SystemClock())

    def service(self) -> ExceptionPipeline:
        return build_pipeline(sql_stores(self.store), policy=self.policy)

    async def add_rule(
        self,
        kind: ExceptionType,
        condition: str,
        *steps: dict[str, object],
        for_task: str = "",
        active: bool = True,
        **true: Any,
    ) -> str:
        sandbox = CelSandbox()
        try:
            rules = RuleStore(SqlDocumentStore(self.store.database))
            edit = RuleEditor(rules, CONDITIONS, sandbox, SystemClock(), RandomIds().claim)
            draft = RuleDraft(
                DEFAULT_POLICY, kind, for_task, condition, Conclusion(steps=steps), f"i{time.time_ns()}", true
            )
            made = await edit.add(draft, by="ann", confirmed=True)
            assert isinstance(made, Edited), made
            if active:
                assert isinstance(await edit.promote(DEFAULT_POLICY, made.rule, by="ben"), Edited)
        finally:
            await sandbox.close()
        return made.rule

    async def job(self, name: str, **fields: Any) -> None:
        (result,) = await self.store.write([DocumentChange(job(name, tenant="lab", **fields), None)])
        assert isinstance(result, Written)

    async def now(self, name: str) -> JobDocument:
        return (await self.store.get([name]))[name].document

    async def states(self) -> dict[str, IncidentState]:
        stored_statuses = (await self.incidents.find(IncidentQuery(tenant="lab"))).statuses
        return {stored_status.status.id: stored_status.status.state for stored_status in stored_statuses}


@pytest.fixture
async def scenario(tmp_path: Path) -> AsyncIterator[Scenario]:
    store = SqlJobStore(f"sqlite:///{tmp_path / 'house.db'}")
    await store.open()
    yield Scenario(store)
    await store.close()


def raised(kind: ExceptionType = VIOLATION, event: str = "e1", **more: Any) -> ExceptionEvent:
    known: dict[str, Any] = {"instance": "" if kind.of_run else "eat", "run": "c1"}
    return ExceptionEvent(kind, "lab", "ada", event, SystemClock().now(), **known | more)


def hot(event: str = "e1", grams: int = 20, **more: Any) -> ExceptionEvent:
    return raised(event=event, job="one", run="", context={"task": {"data": {"grams": grams}}}, **more)


HEAVY = "task.data.grams > 10"


@pytest.mark.ledger("P1-23")
async def test_without_a_rule_constraints_and_triggers_are_ignored_and_leave_nothing_behind(scenario: Scenario) -> None:
    ignored = {
        exception for exception in EXCEPTIONS if "external" in exception or exception.endswith(("-pre", "-post"))
    }
    answers = await scenario.service().handle([raised(kind) for kind in sorted(ignored)])
    assert len(answers) == 6
    assert answers == [HandledException("", "ignore")] * 6
    assert await scenario.states() == {}


async def test_a_rule_acts_once_however_often_and_by_whomever_it_is_raised(scenario: Scenario) -> None:
    await scenario.job("one")
    rule = await scenario.add_rule(VIOLATION, HEAVY, SUSPEND, task={"data": {"grams": 11}})
    (first,) = await scenario.service().handle([hot()])
    assert (first.verdict, first.decision and first.decision.by) == ("playbook", f"domain/site#{rule}")
    await scenario.service().handle([hot(), hot()])
    document = await scenario.now("one")
    assert (len(document.holders), document.state) == (1, State.AVAILABLE)
    assert await scenario.states() == {first.incident: IncidentState.HELD}, "its playbook keeps the job for a person"
    (second,) = await scenario.service().handle([hot("e2")])
    assert second.incident != first.incident
    assert (await scenario.service().handle([hot("e3", grams=1)])) == [HandledException("", "ignore")]


async def test_the_default_policy_may_ask_a_person_fail_or_climb_its_retry_policy(scenario: Scenario) -> None:
    await scenario.job("one")
    scenario.policy = ExceptionPolicy({VIOLATION: ExceptionAction.HOLD})
    (held,) = await scenario.service().handle([hot("hold")])
    assert (held.verdict, (await scenario.states())[held.incident]) == ("hold", IncidentState.HELD)
    assert not (await scenario.now("one")).holders, "what goes on is not touched"
    scenario.policy = ExceptionPolicy({VIOLATION: ExceptionAction.FAIL})
    (failed,) = await scenario.service().handle([hot("fail")])
    assert (failed.verdict, (await scenario.states())[failed.incident]) == ("fail", IncidentState.COMPLETE)
    assert (await scenario.now("one")).state is State.FAILED
    scenario.policy = ExceptionPolicy({ExceptionType.TIMEOUT: ExceptionAction.FAIL})
    (nobody,) = await scenario.service().handle([raised(ExceptionType.TIMEOUT, instance="", run="c1")])
    assert nobody.verdict == "hold", "there is nothing that could be failed"


async def test_what_a_shadow_would_have_done_is_recorded_and_not_done(scenario: Scenario) -> None:
    await scenario.job("one")
    rule = await scenario.add_rule(VIOLATION, HEAVY, SUSPEND, active=False, task={"data": {"grams": 11}})
    (answer,) = await scenario.service().handle([hot()])
    assert answer.ignored
    assert answer.decision is not None
    assert answer.decision.detail["shadow"]["rule"].endswith(f"#{rule}")  # type: ignore[index]
    assert await scenario.states() == {answer.incident: IncidentState.IGNORED}
    assert not (await scenario.now("one")).holders


async def test_a_rule_that_errs_lets_nothing_act_and_one_added_later_answers(scenario: Scenario) -> None:
    await scenario.job("one")
    wrong = await scenario.add_rule(
        VIOLATION, "task.data.grams / task.data.none > 1", SUSPEND, task={"data": {"grams": 9, "none": 3}}
    )
    service = scenario.service()
    (answer,) = await service.handle([hot()])
    assert (answer.verdict, answer.acts) == ("hold", False)
    assert (await scenario.states())[answer.incident] is IncidentState.HELD
    assert not (await scenario.now("one")).holders
    sandbox = CelSandbox()
    try:
        edit = RuleEditor(
            RuleStore(SqlDocumentStore(scenario.store.database)), CONDITIONS, sandbox, SystemClock(), RandomIds().claim
        )
        assert isinstance(await edit.remove(DEFAULT_POLICY, wrong, by="ann", confirmed=True), Edited)
    finally:
        await sandbox.close()
    await scenario.add_rule(VIOLATION, HEAVY, SUSPEND, task={"data": {"grams": 11}})
    await service.decider.rules.refresh()
    await recovery_of(service).look_at_incidents()
    assert len((await scenario.now("one")).holders) == 1
    assert [decision.verdict for decision in await scenario.incidents.decisions(answer.incident)] == [
        "hold",
        "playbook",
    ]


async def test_what_the_safeguards_put_off_is_due_and_done_when_they_let_go(scenario: Scenario) -> None:
    await scenario.job("one")
    await scenario.add_rule(VIOLATION, HEAVY, SUSPEND, task={"data": {"grams": 11}})
    stops = EmergencyStop(SqlDocumentStore(scenario.store.database), SystemClock())
    await stops.stop("lab", by="ann", why="look first")
    service = scenario.service()
    (answer,) = await service.handle([hot()])
    assert (await scenario.states())[answer.incident] is IncidentState.WAITING
    assert not (await scenario.now("one")).holders
    await stops.go("lab")
    status = (await scenario.incidents.get_statuses([answer.incident]))[answer.incident]
    await scenario.incidents.put_statuses(
        [(status.status.moved(IncidentState.WAITING, now=1, due=1, n=1), status.version)]
    )
    await recovery_of(service).look_at_incidents()
    assert len((await scenario.now("one")).holders) == 1


async def test_what_its_recorder_left_behind_is_carried_out_by_a_reconciler(scenario: Scenario) -> None:
    await scenario.job("one")
    await scenario.add_rule(VIOLATION, HEAVY, SUSPEND, task={"data": {"grams": 11}})
    (answer,) = await scenario.service().record([hot()], left_behind=-1)
    assert answer.acts
    assert not (await scenario.now("one")).holders
    await recovery_of(scenario.service()).look_at_incidents()
    assert len((await scenario.now("one")).holders) == 1
    assert (await scenario.states())[answer.incident] is IncidentState.HELD


async def test_an_abort_of_another_engine_waits_for_a_person_and_is_not_taken_for_one_of_our_jobs(
    scenario: Scenario,
) -> None:
    foreign = raised(ExceptionType.ABORT, engine="airflow", job="their-job", flow_name="etl")
    (answer,) = await scenario.service().handle([foreign])
    assert answer.verdict == "hold"
    (stored,) = (await scenario.incidents.find(IncidentQuery(tenant="lab", job=""))).statuses
    assert stored.status.id == answer.incident
    assert (await scenario.incidents.get_incidents([answer.incident]))[answer.incident].job == "their-job"


async def test_more_data_than_an_incident_has_room_for_is_left_out_and_named(scenario: Scenario) -> None:
    await scenario.job("one")
    await scenario.add_rule(VIOLATION, HEAVY, SUSPEND, task={"data": {"grams": 11}})
    data = {"grams": 20, "table": ["x" * 1000] * 100}
    (answer,) = await scenario.service().handle([raised(job="one", run="", context={"task": {"data": data}})])
    assert answer.verdict == "playbook"
    kept = (await scenario.incidents.get_incidents([answer.incident]))[answer.incident].context
    assert kept["left_out"] == ["task.data.table"]
    assert len(str(kept)) < MAX_DOCUMENT


async def test_what_one_persons_rule_may_not_do_alone_waits_for_another(scenario: Scenario) -> None:
    await scenario.job("one")
    await scenario.add_rule(
        VIOLATION, HEAVY, {"action": "force-complete", "target": "job"}, task={"data": {"grams": 20}}
    )
    (answered,) = await scenario.service().handle([hot()])
    assert await scenario.states() == {answered.incident: IncidentState.HELD}
    assert (await scenario.now("one")).state is State.AVAILABLE
    (request,) = await scenario.approvals.find("lab")
    assert request.asking.by == "ann", "its author asks"
    assert not await recovery_of(scenario.service()).resume(answered.incident, 7), "there is no such decision"
    await scenario.approvals.answer("lab", request.id, agreed=True, by="zoe", approver=True, why="it is done indeed")
    assert await recovery_of(scenario.service()).resume(answered.incident, 1)
    assert (await scenario.now("one")).state is State.FORCED_COMPLETE
    assert await scenario.states() == {answered.incident: IncidentState.COMPLETE}
    assert not await recovery_of(scenario.service()).resume(answered.incident, 1), "once"
