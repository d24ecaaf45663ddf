"""To which other domain a job is resubmitted, who is registered again for its end, and what is refused in words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.contract.examples import job, pilot, specification

from forestay.adapters.sql.job_store import SqlJobStore
from forestay.adapters.sql.pilot_store import SqlPilotStore
from forestay.adapters.system.clock import SystemClock
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import Incident
from forestay.domain.jobs.claim import AVOIDED, at_site, leave_failure
from forestay.domain.jobs.conversation import AWAITED, SILENT
from forestay.domain.jobs.job_document import (
    ANY_DOWNSTREAM,
    DOWNSTREAM,
    EFFECTS,
    AttemptOutcome,
    AttemptResult,
    Delivery,
    FlowRef,
    JobDocument,
    State,
    Token,
    downstream_of,
)
from forestay.domain.pilots.pilot import CALLS_BACK, RELAY
from forestay.domain.playbooks.action import Action, ActionKind, Repoll, Reregister, Resubmission, Resubmit
from forestay.ports.jobs.job_store import DocumentChange
from forestay.services.exceptions.act.domain_actions import DomainActions
from forestay.services.exceptions.act.job_actions import ActionOutcome, JobActions
from forestay.services.exceptions.record.decision_log import StepRequest
from forestay.services.jobs.job_control import JobControl
from forestay.services.shared.checked_writer import CheckedWriter

ELSEWHERE = Resubmit(Resubmission.OTHER_DOMAIN)
CALLBACK = Delivery("https://example.org/told", tries=2, done=True)


class Desk:
    def __init__(self, store: SqlJobStore) -> None:
        clock, writer = SystemClock(), CheckedWriter(store)
        self.store, self.pilots = store, SqlPilotStore(store.database)
        self.jobs = JobActions(writer, JobControl(store, writer, clock, leave_failure), clock)
        self.actions = DomainActions(self.jobs, store, self.pilots, clock)
        self.steps = 0

    async def relay(self, name: str, *, calls_back: bool = False) -> None:
        enrolled = pilot(name, tenant="lab", site=f"{RELAY}{name}", extra={CALLS_BACK: calls_back})
        await self.pilots.put_pilot(enrolled, None)

    async def put(self, **changes: Any) -> None:
        reason = changes.pop("reason", SILENT)
        last = AttemptResult(Token(0, 1), "claim", AttemptOutcome.FAILURE, reason=reason, host="first")
        known: dict[str, Any] = {
            "state": State.FAULTED,
            "attempt": 1,
            "failures": 1,
            "last": last,
            "extra": {DOWNSTREAM: "first"},
        }
        await self.store.write([DocumentChange(job("one", tenant="lab", **known | changes), None)])

    async def do(self, action: Action, *later: ActionKind) -> ActionOutcome:
        incident = Incident("i1", "lab", "ann", ExceptionType.ABORT, at=1, job="one", attempt=1)
        ask = StepRequest(incident, 1, self.steps, action, 1, later=later)
        self.steps += 1
        if self.jobs.can(action):
            return await self.jobs.recover(incident, action, step=ask.id)
        return await self.actions(ask)

    async def now(self) -> JobDocument:
        return (await self.store.get(["one"]))["one"].document


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    store = SqlJobStore(f"sqlite:///{tmp_path / 'domains.db'}")
    await store.open()
    yield Desk(store)
    await store.close()


async def test_any_other_domain_may_take_the_job_and_the_first_is_avoided(desk: Desk) -> None:
    await desk.relay("first")
    await desk.relay("second")
    await desk.put()
    outcome = await desk.do(ELSEWHERE, ActionKind.REPOLL)
    assert outcome.done, outcome.detail
    document = await desk.now()
    assert (document.state, downstream_of(document)) == (State.AVAILABLE, ANY_DOWNSTREAM)
    assert list(document.extra[AVOIDED]) == [at_site(f"{RELAY}first")]  # type: ignore[call-overload]
    assert document.extra[AWAITED] == "polling", "a relay may claim it before the next step begins"


async def test_the_domain_that_is_named_is_where_it_goes(desk: Desk) -> None:
    for name in ("first", "second", "third"):
        await desk.relay(name)
    await desk.put()
    outcome = await desk.do(Resubmit(Resubmission.OTHER_DOMAIN, domain="third", wait=60))
    assert outcome.done, outcome.detail
    document = await desk.now()
    assert (downstream_of(document), AVOIDED in document.extra) == ("third", False)
    assert document.not_before - document.changed == 60_000
    assert "in domain third" in outcome.detail


@pytest.mark.parametrize(
    ("relays", "domain", "words"),
    [
        ((), "", "there is no other domain"),
        (("first",), "", "there is no other domain"),
        (("first", "second"), "first", "there is no other domain first; there is second"),
        (("first", "second"), "nowhere", "there is no other domain nowhere; there is second"),
    ],
)
async def test_a_domain_that_is_not_there_is_refused(
    desk: Desk, relays: tuple[str, ...], domain: str, words: str
) -> None:
    for name in relays:
        await desk.relay(name)
    await desk.put()
    assert await desk.do(Resubmit(Resubmission.OTHER_DOMAIN, domain=domain)) == (False, words)
    assert (await desk.now()).state is State.FAULTED


async def test_external_effects_that_may_still_take_place_there_are_not_repeated_elsewhere(desk: Desk) -> None:
    await desk.relay("second")
    await desk.put(extra={DOWNSTREAM: "first", EFFECTS: "external"})
    done, words = await desk.do(ELSEWHERE)
    assert not done
    assert "a person must check" in words


@pytest.mark.parametrize(("outputs", "done"), [((), True), (("result.txt",), False)])
async def test_only_a_command_without_files_can_leave_its_own_domain(
    desk: Desk, outputs: tuple[str, ...], done: bool
) -> None:
    await desk.relay("second")
    spec = replace(specification(), outputs=outputs)
    await desk.store.put_specifications([spec])
    await desk.put(extra={}, specification=spec.id, reason="exit")
    outcome = await desk.do(ELSEWHERE)
    assert (outcome.done, downstream_of(await desk.now())) == (done, ANY_DOWNSTREAM if done else "")
    assert done or outcome.detail == "a job with files or a function call cannot leave this domain"


@pytest.mark.parametrize("action", [Repoll(), Reregister()])
async def test_what_was_not_resubmitted_is_not_awaited_anew(desk: Desk, action: Action) -> None:
    await desk.put(delivery=CALLBACK)
    assert await desk.do(action) == (False, "the job is faulted; it was not resubmitted")


@pytest.mark.parametrize(
    ("calls_back", "changes", "words"),
    [
        (False, {"delivery": CALLBACK}, "registered again for attempt 2: callback"),
        (True, {"delivery": CALLBACK}, "registered again for attempt 2: callback, relay"),
        (True, {}, "registered again for attempt 2: relay"),
        (False, {"flow_ref": FlowRef("run", "a@1", "flow", -1, 0, 1)}, "registered again for attempt 2: run"),
    ],
)
async def test_whoever_waits_is_registered_for_the_next_attempt(
    desk: Desk, calls_back: bool, changes: dict[str, Any], words: str
) -> None:
    await desk.relay("first", calls_back=calls_back)
    await desk.put(**changes)
    assert (await desk.do(Resubmit())).done
    assert await desk.do(Reregister()) == (True, words)
    document = await desk.now()
    assert (document.state, document.holders, document.extra[AWAITED]) == (State.AVAILABLE, (), "notification")
    assert document.delivery == (Delivery(CALLBACK.url) if "delivery" in changes else None), (
        "its end is still to be told"
    )


async def test_nobody_to_register_is_said(desk: Desk) -> None:
    await desk.relay("first")
    await desk.put()
    assert (await desk.do(Resubmit())).done
    assert await desk.do(Reregister()) == (False, "nobody is registered for the end of the job; use repoll")
    assert await desk.do(Repoll()) == (True, "polls are answered for attempt 2")
