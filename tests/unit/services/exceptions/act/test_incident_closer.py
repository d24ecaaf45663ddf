"""An incident whose fault was answered comes to its end, also when whoever answered it died at once."""

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
from forestay.domain.exceptions.incidents.ladder import Budgets, Ladder, RetryLevel
from forestay.domain.exlets.exlet import Exlet, PlaybookStep
from forestay.domain.exlets.exlet_plain import exlet_as_plain
from forestay.domain.exlets.primitive import ClimbLadder, Primitive, Resubmit
from forestay.domain.flows.events import Verb, VerbKind
from forestay.domain.jobs.claim import leave_fault
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, FlowRef, State, Token
from forestay.ports.jobs.job_store import DocumentChange
from forestay.services.exceptions.act.incident_closer import IncidentCloser
from forestay.services.exceptions.act.job_actions import JobActions
from forestay.services.exceptions.act.playbook_runner import PlaybookRunner
from forestay.services.flows.flow_store import FlowStore
from forestay.services.flows.flow_suspensions import FlowSuspensions
from forestay.services.jobs.job_control import JobControl
from forestay.services.shared.checked_writer import CheckedWriter

TIE = FlowRef("case-1", "publish@1", "flow", -1, 0, 1)


@dataclass
class Engine:
    """Takes verbs, each id once."""

    verbs: dict[str, Verb] = field(default_factory=dict)

    async def describe(self, _case: str) -> Any:
        return SimpleNamespace(tenant="lab")

    async def send_verb(self, _case: str, verb: Verb) -> Any:
        self.verbs.setdefault(verb.id, verb)
        return SimpleNamespace(accepted=True, detail="")


@dataclass
class Desk:
    store: SqlJobStore
    incidents: SqlIncidentStore
    exlets: PlaybookRunner
    engine: Engine
    closing: IncidentCloser

    async def answered(self, decision: str, do: Primitive | None = None, *, acted: bool = True, **fields: Any) -> None:
        """A fault whose answer took place, and nobody said so."""
        last = AttemptResult(Token(0, 1), "claim-1", AttemptOutcome.FAULT, exit_code=1, host="n17")
        known: dict[str, Any] = {"state": State.FAULTED, "attempt": 1, "faults": 1, "last": last} | fields
        await self.store.write([DocumentChange(job("one", tenant="lab", **known), None)])
        case = "case-1" if "tie" in fields else ""
        incident = Incident(
            "i1", "lab", "ann", ExceptionType.ABORT, 1, job="one", attempt=1, event="claim-1", cause="code", case=case
        )
        await self.incidents.add_incidents([(incident, status_of(incident, due=1))])
        exlet = None if do is None else exlet_as_plain(Exlet("mend", (PlaybookStep(do),)))
        detail = {"words": "as the job's policy says"}
        await self.incidents.add_decisions([Decision("i1", 1, "lab", 1, decision, "r", exlet, detail=detail)])
        if do is not None and acted:
            assert (await self.exlets.jobs.mend(incident, do, step="i1:1:0")).done

    async def stands(self) -> tuple[IncidentState, str]:
        found = (await self.incidents.get_standings(["i1"]))["i1"].standing
        return found.state, found.note


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    store = SqlJobStore(f"sqlite:///{tmp_path / 'close.db'}")
    await store.open()
    clock, writer, incidents = SystemClock(), CheckedWriter(store), SqlIncidentStore(store.database)
    mend = JobActions(writer, JobControl(store, writer, clock, leave_fault), clock, budgets=Budgets(user=0))
    engine = Engine()
    gates = FlowSuspensions(SqlDocumentStore(store.database))
    exlets = PlaybookRunner(incidents, store, engine, FlowStore(store, clock), gates, mend, clock)  # type: ignore[arg-type]
    yield Desk(store, incidents, exlets, engine, IncidentCloser(incidents, store, exlets, clock))
    await store.close()


async def test_a_step_that_took_place_is_said_to_be_over(desk: Desk) -> None:
    await desk.answered("exlet", Resubmit())
    before = (await desk.store.get(["one"]))["one"].document.history
    for _ in range(2):
        await desk.closing.look()
    assert (await desk.stands())[0] is IncidentState.COMPLETE
    assert desk.closing.closed == 1
    assert [one.mark.value for one in await desk.incidents.steps("i1")] == ["begun", "over"]
    assert (await desk.store.get(["one"]))["one"].document.history == before, "it is not done a second time"


@pytest.mark.ledger("P2-05")
async def test_the_end_of_a_ladder_is_told_to_its_case(desk: Desk) -> None:
    """The budget is used up, the job has failed by the ladder's word, and the handler died before it told the case."""
    desk.exlets.jobs.ladders = {"none": Ladder("none", (RetryLevel(0),))}
    await desk.answered("exlet", ClimbLadder("none"), tie=TIE)
    assert desk.engine.verbs == {}
    await desk.closing.look()
    assert [(name, one.kind, one.item) for name, one in desk.engine.verbs.items()] == [
        ("i1:1:0", VerbKind.FORCE_FAIL, "")
    ]
    assert (await desk.stands())[0] is IncidentState.COMPLETE


async def test_what_the_house_did_is_closed(desk: Desk) -> None:
    await desk.answered("retry", state=State.AVAILABLE)
    await desk.closing.look()
    assert await desk.stands() == (IncidentState.COMPLETE, "as the job's policy says")


async def test_what_one_handler_put_off_and_another_did_is_closed(desk: Desk) -> None:
    """Both worked on it at once; the one whom the brakes refused wrote last."""
    await desk.answered("retry", state=State.AVAILABLE)
    known = (await desk.incidents.get_standings(["i1"]))["i1"]
    put_off = known.standing.moved(IncidentState.WAITING, now=2, due=2, n=1, note="500 in 10 minutes are used up")
    await desk.incidents.put_standings([(put_off, known.version)])
    await desk.closing.look()
    assert await desk.stands() == (IncidentState.COMPLETE, "as the job's policy says")


async def test_a_fault_that_stands_is_left_to_the_handler_of_faults(desk: Desk) -> None:
    await desk.answered("exlet", Resubmit(), acted=False)
    await desk.closing.look()
    assert (await desk.stands())[0] is IncidentState.OPEN
