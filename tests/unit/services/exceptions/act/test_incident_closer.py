"""An incident whose failure was answered comes to its end, also when whoever answered it died at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.contract.examples import job

from forestay.adapters.sql.document_store import SqlDocumentStore
from forestay.adapters.sql.incident_store import SqlIncidentStore
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.adapters.system.clock import SystemClock
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import Decision, Incident, IncidentState, status_of
from forestay.domain.exceptions.incidents.retry_policy import Budgets, LevelledRetryPolicy, RetryLevel
from forestay.domain.flows.events import Verb, VerbKind
from forestay.domain.jobs.claim import leave_failure
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, FlowRef, State, Token
from forestay.domain.playbooks.action import Action, Resubmit, RetryByPolicy
from forestay.domain.playbooks.playbook import Playbook, PlaybookStep, playbook_as_plain
from forestay.ports.jobs.job_store import DocumentChange
from forestay.services.exceptions.act.incident_closer import IncidentCloser
from forestay.services.exceptions.act.job_actions import JobActions
from forestay.services.exceptions.act.playbook_runner import PlaybookRunner
from forestay.services.flows.flow_store import FlowStore
from forestay.services.flows.flow_suspensions import FlowSuspensions
from forestay.services.jobs.job_control import JobControl
from forestay.services.shared.checked_writer import CheckedWriter

FLOW_REF = FlowRef("run-1", "publish@1", "flow", -1, 0, 1)


@dataclass
class Engine:
    """Takes verbs, each id once."""

    verbs: dict[str, Verb] = field(default_factory=dict)

    async def describe(self, _run: str) -> Any:
        return SimpleNamespace(tenant="lab")

    async def send_verb(self, _run: str, verb: Verb) -> Any:
        self.verbs.setdefault(verb.id, verb)
        return SimpleNamespace(accepted=True, detail="")


@dataclass
class Desk:
    store: SqlJobStore
    incidents: SqlIncidentStore
    playbooks: PlaybookRunner
    engine: Engine
    closing: IncidentCloser

    async def answered(self, decision: str, do: Action | None = None, *, acted: bool = True, **fields: Any) -> None:
        """A failure whose answer took place, and nobody said so."""
        last = AttemptResult(Token(0, 1), "claim-1", AttemptOutcome.FAILURE, exit_code=1, host="n17")
        known: dict[str, Any] = {"state": State.FAULTED, "attempt": 1, "failures": 1, "last": last} | fields
        await self.store.write([DocumentChange(job("one", tenant="lab", **known), None)])
        run = "run-1" if "flow_ref" in fields else ""
        incident = Incident(
            "i1", "lab", "ann", ExceptionType.ABORT, 1, job="one", attempt=1, event="claim-1", cause="code", run=run
        )
        await self.incidents.add_incidents([(incident, status_of(incident, due=1))])
        playbook = None if do is None else playbook_as_plain(Playbook("recover", (PlaybookStep(do),)))
        detail = {"words": "as the job's policy says"}
        await self.incidents.add_decisions([Decision("i1", 1, "lab", 1, decision, "r", playbook, detail=detail)])
        if do is not None and acted:
            assert (await self.playbooks.jobs.recover(incident, do, step="i1:1:0")).done

    async def stands(self) -> tuple[IncidentState, str]:
        status = (await self.incidents.get_statuses(["i1"]))["i1"].status
        return status.state, status.note


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    store = SqlJobStore(f"sqlite:///{tmp_path / 'close.db'}")
    await store.open()
    clock, writer, incidents = SystemClock(), CheckedWriter(store), SqlIncidentStore(store.database)
    recover = JobActions(writer, JobControl(store, writer, clock, leave_failure), clock, budgets=Budgets(user=0))
    engine = Engine()
    suspensions = FlowSuspensions(SqlDocumentStore(store.database))
    playbooks = PlaybookRunner(incidents, store, engine, FlowStore(store, clock), suspensions, recover, clock)  # type: ignore[arg-type]
    yield Desk(store, incidents, playbooks, engine, IncidentCloser(incidents, store, playbooks, clock))
    await store.close()


async def test_a_step_that_took_place_is_said_to_be_over(desk: Desk) -> None:
    await desk.answered("playbook", Resubmit())
    before = (await desk.store.get(["one"]))["one"].document.history
    for _ in range(2):
        await desk.closing.look()
    assert (await desk.stands())[0] is IncidentState.COMPLETE
    assert desk.closing.closed == 1
    assert [step.mark.value for step in await desk.incidents.steps("i1")] == ["begun", "over"]
    assert (await desk.store.get(["one"]))["one"].document.history == before, "it is not done a second time"


@pytest.mark.ledger("P2-05")
async def test_the_end_of_a_retry_policy_is_told_to_its_run(desk: Desk) -> None:
    """The budget is used up, the job has failed by the retry policy's word, and the handler died before it told the run."""
    desk.playbooks.jobs.retry_policies = {"none": LevelledRetryPolicy("none", (RetryLevel(0),))}
    await desk.answered("playbook", RetryByPolicy("none"), flow_ref=FLOW_REF)
    assert desk.engine.verbs == {}
    await desk.closing.look()
    assert [(name, verb.kind, verb.instance) for name, verb in desk.engine.verbs.items()] == [
        ("i1:1:0", VerbKind.FORCE_FAIL, "")
    ]
    assert (await desk.stands())[0] is IncidentState.COMPLETE


async def test_what_the_default_policy_did_is_closed(desk: Desk) -> None:
    await desk.answered("retry", state=State.AVAILABLE)
    await desk.closing.look()
    assert await desk.stands() == (IncidentState.COMPLETE, "as the job's policy says")


async def test_what_one_handler_put_off_and_another_did_is_closed(desk: Desk) -> None:
    """Both worked on it at once; the one whom the safeguards refused wrote last."""
    await desk.answered("retry", state=State.AVAILABLE)
    known = (await desk.incidents.get_statuses(["i1"]))["i1"]
    put_off = known.status.moved(IncidentState.WAITING, now=2, due=2, n=1, note="500 in 10 minutes are used up")
    await desk.incidents.put_statuses([(put_off, known.version)])
    await desk.closing.look()
    assert await desk.stands() == (IncidentState.COMPLETE, "as the job's policy says")


async def test_a_failure_that_stands_is_left_to_the_pipeline(desk: Desk) -> None:
    await desk.answered("playbook", Resubmit(), acted=False)
    await desk.closing.look()
    assert (await desk.stands())[0] is IncidentState.OPEN
