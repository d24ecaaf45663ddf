"""Failures of jobs are answered once each, whoever handles them and however often."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.contract.examples import job, pilot
from tests.contract.room import Stores
from tests.unit.apps.server.running import until
from tests.unit.services.exceptions.building import CONDITIONS, build_pipeline, recovery_of, sql_stores

from forestay.adapters.cel.sandbox import CelSandbox
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.adapters.system.clock import RandomIds, SystemClock
from forestay.domain.data.staging_terms import restaged
from forestay.domain.exceptions.incidents.default_policy import NEVER
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import IncidentState
from forestay.domain.exceptions.safeguards.rate_limit import RateLimit
from forestay.domain.exceptions.safeguards.safeguards import SafeguardPolicy
from forestay.domain.jobs.claim import Applied, avoids, claim, end, leave_failure
from forestay.domain.jobs.job_document import (
    EFFECTS,
    PILOT_DEATHS,
    AttemptOutcome,
    AttemptResult,
    Delivery,
    JobDocument,
    State,
    Token,
)
from forestay.domain.jobs.job_flow_pattern import FORGOTTEN
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import RetryPolicy, WhenExhausted
from forestay.domain.pilots.pilot import PilotState
from forestay.domain.rules.rule_set import RuleSetId, RuleSetLevel
from forestay.domain.rules.rule_tree import Conclusion
from forestay.ports.exceptions.incident_store import IncidentQuery, IncidentStore
from forestay.ports.jobs.job_store import DocumentChange, JobStore, Record, Stored, Written
from forestay.services.exceptions.decide.decider import FRESH
from forestay.services.exceptions.pipeline import ExceptionPipeline
from forestay.services.rules.rule_editor import Edited, RuleDraft, RuleEditor
from forestay.services.rules.rule_store import DOMAIN, RuleStore

OLD = 1_600_000_000_000
OOM = "slurmstepd: error: Detected 1 oom_kill event in StepId=811.batch. Some of the step tasks have been OOM Killed.\n"
LOST_NODE = "slurmstepd: error: *** JOB 4711 ON n17 CANCELLED AT 2026-03-01T10:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n"


@dataclass
class Desk:
    stores: Stores
    policy: SafeguardPolicy = field(default_factory=SafeguardPolicy)

    @property
    def store(self) -> JobStore:
        return self.stores.jobs

    @property
    def incidents(self) -> IncidentStore:
        return self.stores.incidents

    def handler(self) -> ExceptionPipeline:
        return build_pipeline(self.stores, safeguards=self.policy)

    async def add_rule(
        self,
        condition: str,
        *steps: dict[str, object],
        active: bool = True,
        attempt: int = 1,
        patterns: Sequence[str] = (),
    ) -> str:
        """A rule of the site; its condition is true of a job at `attempt` that has nothing, so that it may be written."""
        rules = RuleStore(self.stores.documents)
        sandbox = CelSandbox()
        try:
            edit = RuleEditor(rules, CONDITIONS, sandbox, SystemClock(), RandomIds().claim)
            scenario = RuleSetId("lab", RuleSetLevel.DOMAIN, DOMAIN)
            true = {
                "cause": "memory",
                "confidence": 0.9,
                "job": {"attempt": attempt, "memory": 1 << 30, "patterns": list(patterns)},
                "history": {"owner_1h": 5},
                "external": {"quota": {"left": 9}},
            }
            draft = RuleDraft(
                scenario, ExceptionType.ABORT, "", condition, Conclusion(steps=steps), f"i{time.time_ns()}", true
            )
            made = await edit.add(draft, by="ann", confirmed=True)
            assert isinstance(made, Edited), made
            if active:
                assert isinstance(await edit.promote(scenario, made.rule, by="ben"), Edited)
        finally:
            await sandbox.close()
        return made.rule

    async def put(self, name: str, **fields: Any) -> Stored:
        last = AttemptResult(Token(0, 1), f"claim-{name}", AttemptOutcome.FAILURE, exit_code=1, host="n17")
        known: dict[str, Any] = {
            "state": State.FAULTED,
            "attempt": 1,
            "failures": 1,
            "last": last,
            "changed": OLD,
            "not_before": OLD,
        }
        document = job(name, tenant="lab", **known | fields)
        (result,) = await self.store.write([DocumentChange(document, None)])
        assert isinstance(result, Written)
        return Stored(document, result.version)

    async def fail_again(self, document: JobDocument, **result: Any) -> None:
        """The job is claimed and fails as before."""
        name = f"claim-{document.attempt}"
        claimed = claim(document, claim_id=name, pilot="p", host="n17", now=NEVER)
        assert isinstance(claimed, JobDocument)
        ending = AttemptResult(claimed.token, name, AttemptOutcome.FAILURE, host="n17", **{"exit_code": 1, **result})
        failed = end(claimed, ending, now=OLD, by="p", answer=leave_failure)
        assert isinstance(failed, Applied)
        version = (await self.store.get([document.id]))[document.id].version
        (written,) = await self.store.write([DocumentChange(failed.document, version)])
        assert isinstance(written, Written)

    async def now(self, name: str) -> JobDocument:
        return (await self.store.get([name]))[name].document

    async def status(self, name: str) -> tuple[IncidentState, str]:
        (stored,) = (await self.incidents.find(IncidentQuery(job=name))).statuses
        return stored.status.state, stored.status.cause


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    store = SqlJobStore(f"sqlite:///{tmp_path / 'failures.db'}")
    await store.open()
    yield Desk(sql_stores(store))
    await store.close()


BROKEN = 'Traceback (most recent call last):\n  File "fetch.py", line 3, in <module>\nssl.SSLError: [SSL] record layer failure\n'


@pytest.mark.finding("F-D13")
@pytest.mark.parametrize(
    ("log", "cause", "wait"),
    [(BROKEN, "network", 60), ("error: slurmctld says the strange thing\n", "unknown", 600)],
    ids=["a broken connection", "an unknown failure with a sign"],
)
async def test_a_failure_that_may_pass_is_tried_once_more_out_of_the_box(
    desk: Desk, log: str, cause: str, wait: int
) -> None:
    """No rule, no settings, a job that asks for no retries: one more try after a wait, then what the job says."""
    ended: dict[str, Any] = {"reason": "exit", "exit_code": 1}
    last = AttemptResult(Token(0, 1), "claim-one", AttemptOutcome.FAILURE, host="n17", **ended)
    pipeline = desk.handler()
    await pipeline.handle_failures([(await desk.put("one", last=last), log)])
    tried = await desk.now("one")
    assert (tried.state, tried.failures, tried.releases) == (State.AVAILABLE, 0, 1), "its owner does not pay for it"
    assert tried.history[-1].note == f"{cause} failure that may pass: once more, after {wait // 60} min"
    assert tried.not_before - tried.changed == 1000 * wait
    assert (await desk.status("one"))[0] is IncidentState.COMPLETE
    await desk.fail_again(tried, **ended)
    await pipeline.handle_failures([((await desk.store.get(["one"]))["one"], log)])
    failed = await desk.now("one")
    assert failed.state is State.FAILED
    assert failed.history[-1].note == "1 of 1 attempts used; 1 retry did not help"

    outside = {"last": replace(last, claim="claim-two"), "extra": {EFFECTS: "external"}}
    await pipeline.handle_failures([(await desk.put("two", **outside), log)])
    assert (await desk.now("two")).state is State.FAILED, "what it did outside is not repeated"


@pytest.mark.finding("F-B2", "F-B5")
@pytest.mark.parametrize("why", [{EFFECTS: "external"}, {PILOT_DEATHS: 3}], ids=lambda why: next(iter(why)))
async def test_what_needs_a_person_is_held_whatever_rules_say(desk: Desk, why: dict[str, object]) -> None:
    await desk.add_rule("confidence >= 0.0", {"action": "retry"})
    last = AttemptResult(Token(0, 1), "claim-one", AttemptOutcome.FAILURE, reason="signal", signal=9, host="n17")
    stored = await desk.put("one", last=last, extra=why, retry=RetryPolicy(max_attempts=5))
    plain = await desk.put("two", last=replace(last, claim="claim-two"))
    pipeline = desk.handler()
    await pipeline.handle_failures([(stored, ""), (plain, "")])
    assert (await desk.now("two")).state is State.AVAILABLE, "the rule answers"
    assert (await desk.now("one")).state is State.FAULTED
    assert (await desk.status("one"))[0] is IncidentState.HELD
    await recovery_of(pipeline).look_at_failures()
    assert (await desk.now("one")).state is State.FAULTED, "nor do rules that are added later"


@pytest.mark.finding("F-B10")
async def test_a_rule_acts_five_times_on_a_job_and_not_a_sixth_time(desk: Desk) -> None:
    """At the default limit, by real failures one after the other."""
    rule = await desk.add_rule("confidence >= 0.0", {"action": "resubmit", "how": "same"})
    await desk.put("one", retry=RetryPolicy(max_attempts=99))
    pipeline, acts = desk.handler(), 0
    for _ in range(7):
        stored = (await desk.store.get(["one"]))["one"]
        await pipeline.handle_failures([(stored, "")])
        document = await desk.now("one")
        if document.state is State.FAULTED:
            break
        acts += 1
        assert document.history[-1].event == "retry"
        await desk.fail_again(document)
    assert acts == SafeguardPolicy().max_by_rule == 5
    statuses = [stored.status for stored in (await desk.incidents.find(IncidentQuery(job="one"))).statuses]
    (held,) = [status for status in statuses if status.state is IncidentState.HELD]
    assert held.note.endswith(f"{rule} acted 5 times on this job; 5 are allowed")


async def test_a_failure_becomes_an_incident_with_its_evidence_cause_and_decision(desk: Desk) -> None:
    stored = await desk.put("one", retry=RetryPolicy(max_attempts=2))
    await desk.handler().handle_failures([(stored, "password=hunter2\n" + OOM)])
    document = await desk.now("one")
    assert (document.state, document.failures) == (State.AVAILABLE, 1)
    assert document.history[-1].note == "attempt 2 of 2"
    (found_stored,) = (await desk.incidents.find(IncidentQuery(job="one"))).statuses
    incident = (await desk.incidents.get_incidents([found_stored.status.id]))[found_stored.status.id]
    assert (incident.cause, found_stored.status.state) == ("memory", IncidentState.COMPLETE)
    evidence, finding = incident.context["evidence"], incident.context["finding"]
    assert isinstance(evidence, dict)
    assert isinstance(finding, dict)
    assert "hunter2" not in evidence["log_tail"], "secrets are not kept"
    assert finding["retry"] == "changed"
    (decision,) = await desk.incidents.decisions(incident.id)
    assert (decision.verdict, decision.by) == ("retry", "default policy")


async def test_infrastructure_is_not_charged_to_the_user(desk: Desk) -> None:
    stored = await desk.put("one")  # one attempt, and it was used
    await desk.handler().handle_failures([(stored, LOST_NODE)])
    document = await desk.now("one")
    assert (document.state, document.failures, document.releases) == (State.AVAILABLE, 0, 1)
    assert await desk.status("one") == (IncidentState.COMPLETE, "node")


@pytest.mark.finding("F-A9")
@pytest.mark.parametrize("elsewhere", [None, [], ["apptainer"]], ids=["silent", "none", "apptainer"])
async def test_a_container_is_tried_again_only_where_it_can_run(desk: Desk, elsewhere: list[str] | None) -> None:
    pilots = desk.stores.pilots
    fleet: dict[str, tuple[str, list[str] | None]] = {"p1": ("n17", []), "p2": ("n18", []), "p3": ("n19", elsewhere)}
    for name, (host, runtimes) in fleet.items():
        extra = {} if runtimes is None else {"runtimes": runtimes}
        await pilots.put_pilot(pilot(name, tenant="lab", host=host, extra=extra), None)
    # Of another tenant, and gone: neither could run it.
    await pilots.put_pilot(pilot("p4", tenant="other", extra={"runtimes": ["apptainer"]}), None)
    gone = pilot("p5", tenant="lab", state=PilotState.GONE, extra={"runtimes": ["apptainer"]})
    await pilots.put_pilot(gone, None)
    last = AttemptResult(
        Token(0, 1), "c", AttemptOutcome.FAILURE, host="n17", reason="start-failed", error="no-container"
    )
    stored = await desk.put("one", last=last)
    await desk.handler().handle_failures([(stored, "")])
    document = await desk.now("one")
    if elsewhere == []:
        assert document.state is State.FAILED
        assert await desk.status("one") == (IncidentState.FAILED, "policy")
        return
    now = SystemClock().now()
    assert (document.state, document.releases, document.not_before <= now) == (State.AVAILABLE, 1, True)
    assert [avoids(document, host, now) for host in ("n17", "n18", "n19")] == [True, True, False]
    assert not avoids(document, "n17", now + 2 * 3_600_000), "somebody may install it"


async def test_another_runtime_than_the_image_needs_is_none(desk: Desk) -> None:
    pilots = desk.stores.pilots
    for name, runtimes in (("p1", []), ("p2", ["bubblewrap"])):
        await pilots.put_pilot(pilot(name, tenant="lab", host=name, extra={"runtimes": runtimes}), None)
    last = AttemptResult(
        Token(0, 1), "c", AttemptOutcome.FAILURE, host="p1", reason="start-failed", error="no-container"
    )
    unpacked = await desk.put("unpacked", last=last, extra={"container_runtimes": ["bubblewrap", "podman"]})
    pulled = await desk.put("pulled", last=last, extra={"container_runtimes": ["apptainer", "podman"]})
    await desk.handler().handle_failures([(unpacked, ""), (pulled, "")])
    assert (await desk.now("unpacked")).state is State.AVAILABLE
    assert (await desk.now("pulled")).state is State.FAILED


async def test_what_is_exhausted_fails_or_waits_for_a_person(desk: Desk) -> None:
    fails = await desk.put("fails")
    waits = await desk.put("waits", retry=RetryPolicy(when_exhausted=WhenExhausted.HOLD))
    await desk.handler().handle_failures([(fails, ""), (waits, "")])
    assert (await desk.now("fails")).state is State.FAILED
    assert await desk.status("fails") == (IncidentState.FAILED, "unknown")
    assert ((await desk.now("waits")).state, (await desk.now("waits")).not_before) == (State.FAULTED, NEVER)
    assert await desk.status("waits") == (IncidentState.HELD, "unknown")


@pytest.mark.ledger("P2-02")
async def test_what_a_dead_server_left_behind_is_found_and_many_handlers_answer_it_once(desk: Desk) -> None:
    for number in range(30):
        stored = await desk.put(f"job-{number}", retry=RetryPolicy(max_attempts=3))
        last = stored.document.last
        assert last is not None
        body = {"ending": {"claim": last.claim}, "pilot": "p", "log_tail": OOM}
        await desk.store.add_records([Record(f"e-{number}", "lab", "evidence", stored.document.id, OLD, body)])
    handlers = [desk.handler() for _ in range(4)]
    await asyncio.gather(*(recovery_of(handler).look_at_failures() for handler in handlers))
    for number in range(30):
        document = await desk.now(f"job-{number}")
        assert (document.state, document.failures) == (State.AVAILABLE, 1)
        assert [line.event for line in document.history].count("retry") == 1
        assert await desk.status(f"job-{number}") == (IncidentState.COMPLETE, "memory")
    await recovery_of(handlers[0]).look_at_failures()
    assert sum((await desk.incidents.count(IncidentQuery(), by="cause")).values()) == 30


@pytest.mark.ledger("P2-02")
async def test_a_decision_stands_whatever_would_be_decided_later(desk: Desk) -> None:
    """The handler that decided died before it acted; by now the job's policy would say otherwise."""
    stored = await desk.put("one", retry=RetryPolicy(max_attempts=2))
    dying = desk.handler()

    class Dead(BaseException):
        """As a kill signal: it is no error that a handler could catch."""

    class NoWriter:
        async def write(self, _wishes: object) -> object:
            raise Dead

    dying.executor = replace(dying.executor, writer=NoWriter())  # type: ignore[arg-type]
    with pytest.raises(Dead):
        await dying.handle_failures([(stored, "")])
    changed = stored.document.having(retry=RetryPolicy(max_attempts=1))
    (result,) = await desk.store.write([DocumentChange(changed, stored.version)])
    assert isinstance(result, Written)
    await recovery_of(desk.handler()).look_at_failures()
    assert (await desk.now("one")).state is State.AVAILABLE, "by the recorded decision"


async def test_a_failure_that_someone_answered_meanwhile_is_left_alone(desk: Desk) -> None:
    stored = await desk.put("one")
    moved = stored.document.having(state=State.CANCELLED)
    await desk.store.write([DocumentChange(moved, stored.version)])
    await desk.handler().handle_failures([(stored, "")])
    assert (await desk.now("one")).state is State.CANCELLED


MORE_MEMORY: dict[str, object] = {
    "action": "resubmit",
    "how": "changed",
    "needs": {"memory": {"factor": 2, "at_most": 1 << 36}},
}
IS_MEMORY = 'cause == "memory" && confidence > 0.7'


@pytest.mark.ledger("P0-16", "P0-26", "P1-25")
async def test_a_rule_answers_what_the_default_policy_would_have_given_up(desk: Desk) -> None:
    """The second such failure, of a job that is there already, needs nobody; and no process was started anew."""
    needs = Resources(cpus=1, memory=1 << 30)
    handler = desk.handler()
    first = await desk.put("first", resources=needs)
    await handler.handle_failures([(first, OOM)])
    assert (await desk.now("first")).state is State.FAILED
    rule = await desk.add_rule(IS_MEMORY, MORE_MEMORY)
    await asyncio.sleep(FRESH)  # as old as a copy may be
    second = await desk.put("second", resources=needs)
    await handler.handle_failures([(second, OOM)])
    document = await desk.now("second")
    assert (document.state, document.resources.memory) == (State.AVAILABLE, 2 << 30)
    assert await desk.status("second") == (IncidentState.COMPLETE, "memory")
    (stored,) = (await desk.incidents.find(IncidentQuery(job="second"))).statuses
    (decision,) = await desk.incidents.decisions(stored.status.id)
    assert decision.by.endswith(f"#{rule}")
    assert [entry["verdict"] for entry in decision.detail["path"]] == ["true", "true"]  # type: ignore[attr-defined]


@pytest.mark.ledger("P0-26")
async def test_rules_map_the_job_flow_pattern_in_use_to_a_fault_tolerant_pattern(desk: Desk) -> None:
    """The same failure: a job that someone is notified of is resubmitted, one that nobody waits for is failed, one with inputs is staged again."""
    steps: dict[str, dict[str, object]] = {
        "notification": MORE_MEMORY,
        "fire-and-forget": {"action": "force-fail"},
        "staging": {"action": "restage"},
    }
    for pattern, step in steps.items():
        await desk.add_rule(f'{IS_MEMORY} && "{pattern}" in job.patterns', step, patterns=[pattern])
    await asyncio.sleep(FRESH)  # as old as a copy may be
    needs: dict[str, Any] = {"resources": Resources(cpus=1, memory=1 << 30)}
    jobs = {
        "told": needs | {"delivery": Delivery("https://example.org/told")},
        "forgotten": needs | {"labels": {FORGOTTEN: "true"}},
        "staged": needs | {"stages": True},
    }
    await desk.handler().handle_failures([(await desk.put(name, **fields), OOM) for name, fields in jobs.items()])
    documents = {name: await desk.now(name) for name in jobs}
    assert {name: document.state for name, document in documents.items()} == {
        "told": State.AVAILABLE,
        "forgotten": State.FAILED,
        "staged": State.AVAILABLE,
    }
    assert (documents["told"].resources.memory, documents["staged"].resources.memory) == (2 << 30, 1 << 30)
    assert (restaged(documents["told"].extra), restaged(documents["staged"].extra)) == (0, 1)


@pytest.mark.ledger("P1-35")
async def test_a_shadow_is_recorded_and_does_not_act(desk: Desk) -> None:
    rule = await desk.add_rule(IS_MEMORY, MORE_MEMORY, active=False)
    stored = await desk.put("one", resources=Resources(memory=1 << 30))
    await desk.handler().handle_failures([(stored, OOM)])
    assert (await desk.now("one")).state is State.FAILED
    (found_stored,) = (await desk.incidents.find(IncidentQuery(job="one"))).statuses
    (decision,) = await desk.incidents.decisions(found_stored.status.id)
    shadow = decision.detail["shadow"]
    assert isinstance(shadow, dict)
    assert shadow["rule"].endswith(f"#{rule}")


async def test_a_rule_that_errs_holds_the_failure_and_lets_no_general_rule_act(desk: Desk) -> None:
    await desk.add_rule(IS_MEMORY, MORE_MEMORY)
    await desk.add_rule(f"{IS_MEMORY} && 10 / (job.attempt - 2) != 0", {"action": "force-fail", "target": "job"})
    stored = await desk.put("one", attempt=2, resources=Resources(memory=1 << 30))
    await desk.handler().handle_failures([(stored, OOM)])
    assert ((await desk.now("one")).state, (await desk.now("one")).not_before) == (State.FAULTED, NEVER)
    assert await desk.status("one") == (IncidentState.HELD, "memory")


async def test_the_safeguards_hold_a_rule_back_and_nothing_is_lost(desk: Desk) -> None:
    await desk.add_rule(IS_MEMORY, MORE_MEMORY)
    desk.policy = replace(desk.policy, rule_acts=RateLimit(3, 3_600_000))
    handler = desk.handler()
    failures = [(await desk.put(f"job-{number}", resources=Resources(memory=1 << 30)), OOM) for number in range(8)]
    await handler.handle_failures(failures)
    states = [(await desk.now(f"job-{number}")).state for number in range(8)]
    assert states.count(State.AVAILABLE) == 3
    assert states.count(State.FAULTED) == 5
    kept = (await desk.incidents.find(IncidentQuery(states=frozenset({IncidentState.WAITING})))).statuses
    assert len(kept) == 5
    assert all("used up" in stored.status.note for stored in kept)
    await recovery_of(handler).look_at_failures()  # not due yet
    assert [(await desk.now(f"job-{number}")).state for number in range(8)] == states


async def test_what_waits_for_a_person_goes_on_by_a_rule_that_is_added_meanwhile(desk: Desk) -> None:
    handler = desk.handler()
    held = RetryPolicy(when_exhausted=WhenExhausted.HOLD)
    stored = await desk.put("one", resources=Resources(memory=1 << 30), retry=held)
    body = {"ending": {"claim": "claim-one"}, "pilot": "p", "log_tail": OOM}
    await desk.store.add_records([Record("e", "lab", "evidence", "one", OLD, body)])
    await handler.handle_failures([(stored, OOM)])
    await recovery_of(handler).look_at_failures()
    assert await desk.status("one") == (IncidentState.HELD, "memory")
    await desk.add_rule(IS_MEMORY, MORE_MEMORY)
    await asyncio.sleep(FRESH)
    await recovery_of(handler).look_at_failures()
    document = await desk.now("one")
    assert (document.state, document.resources.memory) == (State.AVAILABLE, 2 << 30)
    assert await desk.status("one") == (IncidentState.COMPLETE, "memory")
    (found_stored,) = (await desk.incidents.find(IncidentQuery(job="one"))).statuses
    assert [decision.verdict for decision in await desk.incidents.decisions(found_stored.status.id)] == [
        "hold",
        "playbook",
    ]


async def test_a_later_decision_that_was_put_off_is_the_one_that_is_acted_on(desk: Desk) -> None:
    desk.policy = replace(desk.policy, rule_acts=RateLimit(1, 1500), lasts=300)
    handler = desk.handler()
    held = RetryPolicy(when_exhausted=WhenExhausted.HOLD)
    for name in ("one", "two"):
        stored = await desk.put(name, resources=Resources(memory=1 << 30), retry=held)
        body = {"ending": {"claim": f"claim-{name}"}, "pilot": "p", "log_tail": OOM}
        await desk.store.add_records([Record(f"e-{name}", "lab", "evidence", name, OLD, body)])
        await handler.handle_failures([(stored, OOM)])
    await desk.add_rule(IS_MEMORY, MORE_MEMORY)
    await asyncio.sleep(FRESH)
    await handler.decider.get_ready()
    await recovery_of(handler).look_at_failures()  # one is let through, the other has to wait
    states = {name: (await desk.now(name)).state for name in ("one", "two")}
    assert sorted(states.values()) == [State.AVAILABLE, State.FAULTED]
    (late,) = [name for name, state in states.items() if state is State.FAULTED]
    assert (await desk.status(late))[0] is IncidentState.WAITING

    async def answered() -> bool:
        document = await desk.now(late)
        if document.state is State.FAULTED and document.not_before <= handler.clock.now():
            await handler.handle_failures([((await desk.store.get([late]))[late], OOM)])
        return (await desk.now(late)).state is State.AVAILABLE

    await until(answered, "the safeguards to let it through", 20)


async def test_a_rule_is_not_asked_again_because_of_another(desk: Desk) -> None:
    """It waits for approval; that some other rule was added is no reason to ask one twice."""
    await desk.add_rule(IS_MEMORY, {"action": "force-complete", "target": "job"})
    handler = desk.handler()
    stored = await desk.put("one", resources=Resources(memory=2 << 30))
    body = {"ending": {"claim": "claim-one"}, "pilot": "p", "log_tail": OOM}
    await desk.store.add_records([Record("e", "lab", "evidence", "one", OLD, body)])
    await handler.handle_failures([(stored, OOM)])
    (found_stored,) = (await desk.incidents.find(IncidentQuery(job="one"))).statuses
    assert "approval" in found_stored.status.note
    await recovery_of(handler).look_at_failures()
    await desk.add_rule(f"{IS_MEMORY} && job.memory < 2000000000", {"action": "resubmit"})
    await asyncio.sleep(FRESH)
    await recovery_of(handler).look_at_failures()
    assert [decision.verdict for decision in await desk.incidents.decisions(found_stored.status.id)] == ["playbook"]
