"""Every primitive of paper P1 on real cases: an incident, a recorded decision, its exlet as a workflow; real Temporal, real stores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from tests.live.case_site import BAD, GOOD, TENANT, CaseSite, case_site
from tests.unit.apps.server.running import until

from forestay.apps.compose.components import build_playbook_runner
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import (
    Decision,
    Incident,
    IncidentState,
    StepMark,
    incident_id,
    status_of,
)
from forestay.domain.exceptions.incidents.ladder import AfterLastLevel, Budgets, Ladder, RetryLevel
from forestay.domain.exlets.exlet import Exlet, PlaybookStep
from forestay.domain.exlets.exlet_check import check_exlet
from forestay.domain.exlets.exlet_plain import exlet_as_plain
from forestay.domain.exlets.exlet_run import PlaybookRunState, StepState, Stopped, run_name, worklet_case
from forestay.domain.exlets.primitive import (
    Action,
    ActionTarget,
    Amount,
    AvoidHost,
    ClimbLadder,
    CompensateAction,
    Hold,
    NeedChange,
    Notify,
    Primitive,
    Restage,
    Resubmission,
    Resubmit,
    Rollback,
    Steer,
    Worklet,
)
from forestay.domain.flows.definition.flow_version import version_of
from forestay.domain.flows.events import VerbKind
from forestay.domain.flows.execution.case_names import case_of, job_of
from forestay.domain.jobs.job_document import JobDocument, State
from forestay.formats.flows.yaml_flow import read_flow_text

pytestmark = pytest.mark.live

SHOW = """
forestay: 1
name: NAME
params: {venue: arena, seats: 1000}
tasks:
  sell: {command: [sell]}
  show: {command: [show, "${params.venue}"], after: [sell], max_attempts: 1, when_exhausted: hold}
  settle: {command: [settle, "${params.venue}"], after: [show]}
outputs: {venue: "${params.venue}"}
"""
"""Organise Concert in three tasks; a job of the show that fails waits."""
CHANGE_VENUE = """
forestay: 1
name: change-venue
params: {from: null, seats: 0}
tasks: {book: {command: [book, "${params.from}"]}}
outputs: {venue: "not ${params.from}", seats: "${params.seats}"}
"""
TELL_FANS = """
forestay: 1
name: tell-fans
params: {of: null}
tasks: {mail: {command: [mail]}}
"""
BAD_LUCK = """
forestay: 1
name: bad-luck
tasks: {trip: {command: [trip]}}
"""
UNDONE = """
forestay: 1
name: undone
tasks:
  book: {command: [book-hall], compensate: {command: [cancel-hall]}}
  show: {command: [show], after: [book], max_attempts: 1, when_exhausted: hold}
"""
OUTER = """
forestay: 1
name: outer
flows:
  inner:
    name: inner
    tasks: {work: {command: [work], max_attempts: 1, when_exhausted: hold}}
tasks:
  part: {flow: inner}
  last: {command: [last], after: [part]}
"""


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
async def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CaseSite]:
    async with case_site(request.param, tmp_path_factory.mktemp("exlets")) as running:
        yield running


@pytest.fixture(autouse=True)
def _fresh(site: CaseSite) -> None:
    site.ran.clear()
    site.fate = lambda _claim: GOOD
    site.hold_back = lambda claim: claim["name"] == "show"
    site.kept.clear()


def show(name: str = "") -> str:
    """A flow of its own, so that what is done to all its cases touches nobody else's."""
    return SHOW.replace("NAME", name or f"concert-{uuid4().hex[:8]}")


async def stored(site: CaseSite, text: str) -> str:
    read = read_flow_text(text)
    assert read.flow is not None, read.problems
    return await site.server.services.components.flows.put(read.flow, tenant=TENANT)


async def begun(site: CaseSite, text: str = "", item: str = "show", **params: Any) -> str:
    """A case whose item is under way and waits."""
    case = await site.start(text or show(), **params)
    await site.item_is(case, item, "running")
    await under_way(site, case, item)
    return case


async def under_way(site: CaseSite, case: str, item: str, many: int = 1) -> None:
    async def there() -> bool:
        job = await job_at(site, case, item)
        return job is not None and job.state is State.RUNNING and len(site.kept) >= many

    await until(there, f"the job of {item} to run")


async def job_at(site: CaseSite, case: str, item: str, round_: int = 1) -> JobDocument | None:
    name = job_of(case, f"{item}@{round_}", 0)
    found = (await site.server.services.components.store.get([name])).get(name)
    return found.document if found is not None else None


async def incident_of(
    site: CaseSite, case: str, item: str = "show", kind: ExceptionType = ExceptionType.ITEM_EXTERNAL, **more: Any
) -> Incident:
    event = uuid4().hex
    job = job_of(case, f"{item}@1", 0) if item else ""
    summary = await site.engine.describe(case)
    return Incident(
        incident_id(kind, case=case, item=item, job=job, event=event), TENANT, "ada", kind,
        site.server.services.components.clock.now(), case=case, item=item, job=job, event=event, flow=summary.version, **more,
    )  # fmt: skip


async def decided(site: CaseSite, incident: Incident, *primitives: Primitive, name: str = "mend") -> None:
    """Record the incident and the decision on it."""
    parts = site.server.services.components
    exlet = Exlet(name, tuple(PlaybookStep(one) for one in primitives))
    assert check_exlet(exlet, incident.kind) == []
    # Not due: the test carries it out itself.
    await parts.incidents.add_incidents([(incident, replace(status_of(incident), due=None))])
    made = Decision(incident.id, 1, TENANT, parts.clock.now(), "matched", "test", exlet_as_plain(exlet))
    await parts.incidents.add_decisions([made])


async def launch(site: CaseSite, incident: Incident, *primitives: Primitive) -> None:
    await decided(site, incident, *primitives)
    assert await site.engine.start_exlet(incident.id, 1, tenant=TENANT, owner="ada")
    assert not await site.engine.start_exlet(incident.id, 1, tenant=TENANT, owner="ada")


async def stands(site: CaseSite, incident: Incident, *states: IncidentState) -> str:
    """Wait until the incident stands there; why."""

    async def there() -> str | None:
        found = (await site.server.services.components.incidents.get_standings([incident.id]))[incident.id].standing
        return found.note or "-" if found.state in states else None

    note: str = await until(there, f"the incident to be {states}")
    return note


async def done(site: CaseSite, incident: Incident, *primitives: Primitive) -> None:
    """Carry an exlet out to its good end; each step is begun once and over once."""
    await launch(site, incident, *primitives)
    await stands(site, incident, IncidentState.COMPLETE)
    await site.server.refresh()
    records = await site.server.services.components.incidents.steps(incident.id)
    marks = [(one.step, one.mark) for one in records if one.action != "compensate"]
    plain = [place for place, one in enumerate(primitives) if not isinstance(one, CompensateAction)]
    assert marks == [(place, mark) for place in plain for mark in (StepMark.BEGUN, StepMark.OVER)]
    assert all(one.detail["state"] == "done" for one in records if one.mark is StepMark.OVER)


async def go_on(site: CaseSite) -> None:
    site.hold_back = lambda _claim: False
    await site.let_go()


def steer(action: str, target: ActionTarget = ActionTarget.ITEM) -> Steer:
    return Steer(Action(action), target)


# P1-10: remove


@pytest.mark.ledger("P1-10")
async def test_remove_item_ends_its_path(site: CaseSite) -> None:
    case = await begun(site)
    await done(site, await incident_of(site, case), steer("remove"))
    await site.ended(case)
    assert await site.items(case) == {"sell": "completed", "show": "cancelled", "settle": "cancelled"}
    job = await job_at(site, case, "show")
    assert job is not None
    assert job.state is State.CANCELLED


@pytest.mark.ledger("P1-10")
async def test_remove_case_ends_the_case(site: CaseSite) -> None:
    case = await begun(site)
    await done(site, await incident_of(site, case), steer("remove", ActionTarget.CASE))
    assert (await site.ended(case)).state == "removed"


@pytest.mark.ledger("P1-10")
async def test_remove_all_cases_ends_every_case_of_the_flow(site: CaseSite) -> None:
    text = show()
    cases = [await begun(site, text) for _ in range(3)]
    other = await begun(site)
    await done(site, await incident_of(site, cases[0]), steer("remove", ActionTarget.ALL_CASES))
    for case in cases:
        assert (await site.ended(case)).state == "removed"
    await go_on(site)
    assert (await site.ended(other)).state == "completed"


# P1-11 and P1-12: suspend and continue


@pytest.mark.ledger("P1-11", "P1-12")
@pytest.mark.parametrize("target", [ActionTarget.ITEM, ActionTarget.CASE, ActionTarget.JOB])
async def test_suspend_holds_and_continue_takes_away_only_its_own_hold(site: CaseSite, target: ActionTarget) -> None:
    case = await begun(site)
    other = await site.verb(case, VerbKind.SUSPEND, "settle", holder="bob")
    assert other.accepted
    incident = await incident_of(site, case)
    change = await stored(site, CHANGE_VENUE)
    site.hold_back = lambda claim: claim["name"] in ("show", "book")
    await launch(
        site,
        incident,
        steer("suspend", target),
        CompensateAction((Worklet(change, {"from": "x"}),)),
        steer("continue", target),
    )
    worklet = worklet_case(incident.id, 1, 1, 0)
    await site_knows(site, worklet)
    await under_way(site, worklet, "book", 2)
    state = await site.engine.state(case)
    holder = f"{incident.id}:1:0"
    items = {item["id"]: item for item in state["items"]}
    if target is ActionTarget.CASE:
        assert state["holders"] == [holder]
    elif target is ActionTarget.ITEM:
        assert items["show"]["holders"] == [holder]
    job = await job_at(site, case, "show")
    assert job is not None
    assert job.holders
    assert items["settle"]["holders"] == ["bob"]
    await go_on(site)
    await stands(site, incident, IncidentState.COMPLETE)
    state = await site.engine.state(case)
    items = {item["id"]: item for item in state["items"]}
    assert state["holders"] == []
    assert "holders" not in items["show"]
    assert items["settle"]["holders"] == ["bob"]
    await site.item_is(case, "show", "completed")
    assert "settle" not in site.ran


async def site_knows(site: CaseSite, case: str) -> None:
    async def there() -> bool:
        try:
            return bool(await site.engine.describe(case))
        except Exception:
            return False

    await until(there, f"case {case}")


@pytest.mark.ledger("P1-11", "P1-12")
async def test_suspend_all_cases_stops_those_that_start_later_until_continue(site: CaseSite) -> None:
    text = show()
    first = await begun(site, text)
    incident = await incident_of(site, first)
    change = await stored(site, CHANGE_VENUE)
    site.hold_back = lambda claim: claim["name"] in ("show", "book")
    all_cases = ActionTarget.ALL_CASES
    await launch(
        site, incident, steer("suspend", all_cases), CompensateAction((Worklet(change, {"from": "x"}),)), steer("continue", all_cases)
    )  # fmt: skip
    worklet = worklet_case(incident.id, 1, 1, 0)
    await site_knows(site, worklet)
    # The worklet runs while all cases of the flow are suspended, and a new case does not escape.
    await under_way(site, worklet, "book", 2)
    site.ran.clear()
    later = await site.start(text)
    await site.item_is(later, "sell", "running")
    read = read_flow_text(text)
    assert read.flow is not None
    gate = await site.server.services.gates.gate(TENANT, version_of(read.flow))
    assert gate.holders == (f"{incident.id}:1:0",)
    assert "sell" not in site.ran
    await go_on(site)
    await stands(site, incident, IncidentState.COMPLETE)
    assert (await site.ended(first)).state == (await site.ended(later)).state == "completed"
    assert (await site.server.services.gates.gate(TENANT, version_of(read.flow))).holders == ()


# P1-13 to P1-15: restart and force


@pytest.mark.ledger("P1-13")
async def test_restart_runs_the_item_again_with_the_data_of_its_start(site: CaseSite) -> None:
    case = await begun(site, venue="hall")
    await done(site, await incident_of(site, case), steer("restart"))

    async def again() -> bool:
        job = await job_at(site, case, "show", 2)
        return job is not None and job.state is State.RUNNING

    await until(again, "the second round")
    first, second = await job_at(site, case, "show"), await job_at(site, case, "show", 2)
    assert first is not None
    assert second is not None
    assert first.state is State.CANCELLED
    assert (second.specification, second.parameters) == (first.specification, first.parameters)
    site.kept[:] = [one for one in site.kept if one[1]["job"] == second.id]
    await go_on(site)
    assert (await site.ended(case)).state == "completed"


@pytest.mark.ledger("P1-14", "P0-19")
async def test_force_complete_counts_as_success_and_the_path_goes_on(site: CaseSite) -> None:
    case = await begun(site)
    await done(site, await incident_of(site, case), steer("force-complete"))
    assert (await site.ended(case)).state == "completed"
    assert await site.items(case) == {"sell": "completed", "show": "forced_complete", "settle": "completed"}


@pytest.mark.ledger("P1-15", "P0-19")
async def test_force_fail_is_a_failure_and_the_path_goes_on(site: CaseSite) -> None:
    case = await begun(site)
    await done(site, await incident_of(site, case), steer("force-fail"))
    await site.ended(case)
    assert await site.items(case) == {"sell": "completed", "show": "failed", "settle": "completed"}


# P1-16 to P1-18: worklets


@pytest.mark.ledger("P1-16", "P1-17")
async def test_worklets_run_together_and_what_they_give_back_is_the_cases(site: CaseSite) -> None:
    case = await begun(site, show(), "show", venue="arena", seats=7)
    change, tell = await stored(site, CHANGE_VENUE), await stored(site, TELL_FANS)
    incident = await incident_of(site, case)
    site.hold_back = lambda claim: claim["name"] in ("show", "book", "mail")
    worklets = (
        Worklet(change, {"from": "${params.venue}", "seats": "${params.seats}"}, {"venue": "venue"}),
        Worklet(tell, {"of": "${incident.item} in ${params.venue}"}),
    )
    await launch(
        site,
        incident,
        steer("suspend", ActionTarget.CASE),
        CompensateAction(worklets),
        steer("continue", ActionTarget.CASE),
    )
    cases = [worklet_case(incident.id, 1, 1, place) for place in range(2)]
    for one, item in zip(cases, ("book", "mail"), strict=True):
        await site_knows(site, one)
        await under_way(site, one, item)
    assert (await site.engine.state(cases[0]))["params"] == {"from": "arena", "seats": 7}
    assert (await site.engine.state(cases[1]))["params"] == {"of": "show in arena"}
    # One of two has ended: the exlet waits for the other.
    mail = [one for one in site.kept if one[1]["name"] == "mail"]
    await mail[0][0].end(mail[0][1])
    site.kept.remove(mail[0])
    assert (await site.ended(cases[1])).state == "completed"
    assert (await site.engine.state(case))["holders"] == [f"{incident.id}:1:0"]
    await go_on(site)
    await stands(site, incident, IncidentState.COMPLETE)
    assert (await site.result(case))["outputs"] == {"venue": "not arena"}
    assert (await site.engine.state(case))["params"] == {"venue": "not arena", "seats": 7}


@pytest.mark.ledger("P1-16")
async def test_the_parent_may_run_meanwhile(site: CaseSite) -> None:
    case = await begun(site)
    tell = await stored(site, TELL_FANS)
    incident = await incident_of(site, case)
    site.hold_back = lambda claim: claim["name"] in ("show", "mail")
    await launch(site, incident, CompensateAction((Worklet(tell, {"of": 1}),)))
    worklet = worklet_case(incident.id, 1, 0, 0)
    await site_knows(site, worklet)
    await under_way(site, worklet, "mail", 2)
    shows = [one for one in site.kept if one[1]["name"] == "show"]
    await shows[0][0].end(shows[0][1])
    site.kept.remove(shows[0])
    assert (await site.ended(case)).state == "completed"
    await go_on(site)
    await stands(site, incident, IncidentState.COMPLETE)


async def test_a_worklet_that_fails_leaves_the_case_suspended_for_a_person(site: CaseSite) -> None:
    case = await begun(site)
    bad = await stored(site, BAD_LUCK)
    site.fate = lambda claim: BAD if claim["name"] == "trip" else GOOD
    incident = await incident_of(site, case)
    exlet = (
        steer("suspend", ActionTarget.CASE),
        CompensateAction((Worklet(bad),)),
        steer("continue", ActionTarget.CASE),
    )
    await launch(site, incident, *exlet)
    note = await stands(site, incident, IncidentState.HELD)
    assert "worklet 0" in note
    assert "suspended: case" in note
    assert (await site.engine.state(case))["holders"] == [f"{incident.id}:1:0"]


async def test_a_worklet_that_is_not_there_fails_the_exlet(site: CaseSite) -> None:
    case = await begun(site)
    incident = await incident_of(site, case)
    await launch(site, incident, CompensateAction((Worklet("0" * 64),)))
    assert "there is no flow" in await stands(site, incident, IncidentState.HELD)


@pytest.mark.ledger("P1-18", "P1-19")
async def test_worklets_have_exceptions_of_their_own_to_any_depth_and_ancestors_are_reached(site: CaseSite) -> None:
    """A case, a worklet for it, and a worklet for that; from the lowest, all ancestors are suspended, continued and removed."""
    case = await begun(site)
    bad, tell = await stored(site, BAD_LUCK), await stored(site, TELL_FANS)
    site.hold_back = lambda claim: claim["name"] in ("show", "trip", "mail")
    first = await incident_of(site, case)
    await launch(site, first, CompensateAction((Worklet(bad),)))
    middle = worklet_case(first.id, 1, 0, 0)
    await site_knows(site, middle)
    await under_way(site, middle, "trip", 2)
    second = replace(await incident_of(site, middle, "trip"), parent=first.id)
    await launch(site, second, CompensateAction((Worklet(tell, {"of": 1}),)))
    lowest = worklet_case(second.id, 1, 0, 0)
    await site_knows(site, lowest)
    await under_way(site, lowest, "mail", 3)
    third = replace(await incident_of(site, lowest, "mail"), parent=second.id)
    await done(
        site, third, steer("suspend", ActionTarget.ANCESTORS), Notify("look"), steer("continue", ActionTarget.ANCESTORS)
    )
    fourth = replace(await incident_of(site, lowest, "mail"), parent=second.id)
    await decided(site, fourth, steer("suspend", ActionTarget.ANCESTORS), Hold(ActionTarget.CASE))
    assert await site.engine.start_exlet(fourth.id, 1, tenant=TENANT, owner="ada")
    await stands(site, fourth, IncidentState.HELD)

    async def all_held() -> bool:
        states = [await site.engine.state(one) for one in (lowest, middle, case)]
        return all(f"{fourth.id}:1:0" in state["holders"] for state in states)

    await until(all_held, "the ancestors to be suspended")
    fifth = replace(await incident_of(site, lowest, "mail"), parent=second.id)
    await done(site, fifth, steer("remove", ActionTarget.ANCESTORS))
    for one in (lowest, middle, case):
        assert (await site.ended(one)).state == "removed"


@pytest.mark.ledger("P1-19")
async def test_the_ancestors_of_a_sub_flow_are_the_cases_that_started_it(site: CaseSite) -> None:
    outer = await site.start(OUTER)
    inner = case_of(outer, "part@1", 0)
    site.hold_back = lambda claim: claim["name"] == "work"
    await site_knows(site, inner)
    await under_way(site, inner, "work")
    await done(site, await incident_of(site, inner, "work"), steer("remove", ActionTarget.ANCESTORS))
    assert (await site.ended(inner)).state == (await site.ended(outer)).state == "removed"


@pytest.mark.ledger("P1-20")
async def test_one_exlet_answers_exceptions_of_two_flows(site: CaseSite) -> None:
    shared = (steer("force-complete"), Notify("forced"))
    for _ in range(2):
        case = await begun(site, show())
        await done(site, await incident_of(site, case), *shared)
        await site.item_is(case, "show", "forced_complete")


# Steps that cannot be done


async def test_what_is_gone_cannot_be_suspended_and_the_incident_says_so(site: CaseSite) -> None:
    case = await begun(site)
    incident = await incident_of(site, case)
    await go_on(site)
    await site.ended(case)
    await launch(site, incident, steer("suspend"), steer("continue"))
    assert "the run has ended" in await stands(site, incident, IncidentState.HELD)


async def test_an_answer_to_one_round_is_not_given_to_the_next(site: CaseSite) -> None:
    case = await begun(site)
    incident = replace(await incident_of(site, case), round=1)
    assert (await site.verb(case, VerbKind.REDO, "show")).accepted

    async def second_round() -> bool:
        items = {one["id"]: one for one in (await site.engine.state(case))["items"]}
        return bool(items["show"]["round"] == 2)

    await until(second_round, "the second round")
    await launch(site, incident, steer("force-complete"))
    assert "the item is in round 2" in await stands(site, incident, IncidentState.HELD)


async def test_the_case_of_another_tenant_is_nobodys(site: CaseSite) -> None:
    case = await begun(site)
    incident = replace(await incident_of(site, case), tenant="strangers", id=str(uuid4()))
    for place, do in enumerate(
        (steer("remove", ActionTarget.CASE), steer("force-fail"), steer("remove", ActionTarget.JOB))
    ):
        other = replace(incident, id=f"{incident.id}-{place}")
        await launch(site, other, do)
        assert "there is no" in await stands(site, other, IncidentState.HELD)
    await go_on(site)
    assert (await site.ended(case)).state == "completed"


async def test_a_case_of_another_engine_that_never_reported_it_is_none(site: CaseSite) -> None:
    case = await begun(site)
    incident = replace(await incident_of(site, case), engine="elsewhere", id=str(uuid4()))
    await launch(site, incident, steer("suspend"), steer("continue"))
    assert f"there is no run {case}" in await stands(site, incident, IncidentState.HELD)


async def test_a_person_stops_an_exlet(site: CaseSite) -> None:
    case = await begun(site)
    tell = await stored(site, TELL_FANS)
    site.hold_back = lambda claim: claim["name"] in ("show", "mail")
    incident = await incident_of(site, case)
    await launch(site, incident, steer("suspend"), CompensateAction((Worklet(tell, {"of": 1}),)), steer("continue"))
    await site_knows(site, worklet_case(incident.id, 1, 1, 0))
    await site.engine.tell_exlet(incident.id, 1, [Stopped("olga")])
    note = await stands(site, incident, IncidentState.HELD)
    assert "stopped by olga" in note
    assert "suspended: item" in note


# Jobs


async def faulted(site: CaseSite, item: str = "show", text: str = "") -> tuple[str, JobDocument]:
    """A case whose job has failed and waits."""
    site.hold_back = lambda _claim: False
    site.fate = lambda claim: BAD if claim["name"] == item else GOOD
    case = await site.start(text or show())

    async def there() -> JobDocument | None:
        job = await job_at(site, case, item)
        return job if job is not None and job.state is State.FAULTED else None

    job: JobDocument = await until(there, "the fault")
    return case, job


@pytest.mark.ledger("P0-14", "P0-16")
async def test_resubmit_with_more_memory_is_one_write(site: CaseSite) -> None:
    case, job = await faulted(site)
    site.fate = lambda _claim: GOOD
    incident = replace(await incident_of(site, case, kind=ExceptionType.ABORT), attempt=1, cause="memory")
    more = Resubmit(Resubmission.CHANGED, {Amount.MEMORY: NeedChange(to=1 << 20), Amount.DISK: NeedChange(to=1 << 10)})
    await decided(site, incident, more)
    parts = site.server.services.components
    service = build_playbook_runner(parts, site.server.services.steer)
    before = job.rev
    end = await service.do_step(incident.id, 1, 0)
    again = await service.do_step(incident.id, 1, 0)
    assert end == again
    assert (await site.ended(case)).state == "completed"
    after = await job_at(site, case, "show")
    assert after is not None
    assert (after.resources.memory, after.resources.disk) == (1 << 20, 1 << 10)
    assert [line.event for line in after.history if line.rev > before].count("retry") == 1
    # Late, after the job has changed, another answer to the same attempt is refused.
    late = replace(incident, id=str(uuid4()))
    await decided(site, late, more)
    refused = await service.do_step(late.id, 1, 0)
    assert (refused.state.value, refused.detail) == ("refused", "the job has changed: it is at attempt 2, not 1")


@pytest.mark.ledger("P0-10")
async def test_restage_brings_the_files_of_the_job_again(site: CaseSite) -> None:
    """A job whose input could not be brought is tried again with the same source, target and parameters."""
    site.hold_back = lambda _claim: False
    site.fate = lambda claim: BAD | {"reason": "staging-in"} if site.ran.count("show") == 1 else GOOD
    case = await site.start(show())

    async def there() -> bool:
        job = await job_at(site, case, "show")
        return job is not None and job.state is State.FAULTED

    await until(there, "the fault")
    before = await job_at(site, case, "show")
    await done(site, replace(await incident_of(site, case, kind=ExceptionType.ABORT), attempt=1), Restage())
    assert (await site.ended(case)).state == "completed"
    after = await job_at(site, case, "show")
    assert before is not None
    assert after is not None
    assert (after.attempt, after.specification, after.parameters) == (2, before.specification, before.parameters)


@pytest.mark.ledger("P2-05")
async def test_a_ladder_waits_longer_each_time_and_then_the_case_is_compensated(site: CaseSite) -> None:
    case, _ = await faulted(site, text=UNDONE)
    parts = site.server.services.components
    service = build_playbook_runner(parts, site.server.services.steer)
    service.jobs.ladders = {"short": Ladder("short", (RetryLevel(0), RetryLevel(0)))}
    for attempt in (1, 2, 3):
        incident = replace(
            await incident_of(site, case, kind=ExceptionType.ABORT), attempt=attempt, cause="code", event=str(attempt)
        )
        await decided(site, incident, ClimbLadder("short"))
        end = await service.do_step(incident.id, 1, 0)
        if attempt < 3:
            assert end.detail.startswith(f"level {attempt - 1} of ladder short")

            async def failed_again(attempt: int = attempt) -> bool:
                found = await job_at(site, case, "show")
                return found is not None and found.attempt == attempt + 1 and found.state is State.FAULTED

            await until(failed_again, "the next fault")
        else:
            assert end.detail.startswith("rollback: the ladder short has 2 tries")
    assert (await site.ended(case)).state == "failed"
    # The last one is the compensation of the hall that was booked.
    assert site.ran == ["book", "show", "show", "show", "book"]


async def test_what_is_kept_for_a_person_does_not_count_as_complete(site: CaseSite) -> None:
    """A hold that is one write, and a ladder that ends with one, leave the incident in the inbox, whoever says that all was done."""
    case, _ = await faulted(site)
    service = build_playbook_runner(site.server.services.components, site.server.services.steer)
    service.jobs.ladders = {"none": Ladder("none", (RetryLevel(0),), AfterLastLevel.HOLD)}
    service.jobs.budgets = Budgets(user=0)
    for do, words in (
        (Hold(ActionTarget.JOB), "held for a person"),
        (ClimbLadder("none"), "hold: 0 tries; 0 are allowed"),
    ):
        incident = replace(await incident_of(site, case, kind=ExceptionType.ABORT), attempt=1, cause="code")
        await decided(site, incident, do)
        end = await service.do_step(incident.id, 1, 0)
        assert end.state is StepState.DONE
        reason = end.detail if isinstance(do, ClimbLadder) else ""
        await service.finish(incident.id, 1, PlaybookRunState.COMPLETE, reason=reason)
        assert await stands(site, incident, IncidentState.HELD) == words
        job = await job_at(site, case, "show")
        assert job is not None
        assert f"{incident.id}:1:0" in job.holders


async def test_a_job_is_kept_away_from_the_host_where_it_failed(site: CaseSite) -> None:
    case, job = await faulted(site)
    assert job.last is not None
    host = job.last.host
    site.fate = lambda _claim: GOOD
    incident = replace(await incident_of(site, case, kind=ExceptionType.ABORT), attempt=1)
    await done(site, incident, AvoidHost(seconds=3600), Resubmit())
    found = await job_at(site, case, "show")
    assert found is not None
    assert found.state is State.AVAILABLE
    assert host in found.extra["avoided"]  # type: ignore[operator]
    assert found.holders == ()


@pytest.mark.ledger("P2-04")
async def test_rollback_compensates_the_case(site: CaseSite) -> None:
    case, _ = await faulted(site, text=UNDONE)
    await done(site, await incident_of(site, case, kind=ExceptionType.ABORT), Rollback())
    assert (await site.ended(case)).state == "failed"
    # The last one is the compensation of the hall that was booked.
    assert site.ran == ["book", "show", "book"]


async def test_what_an_installation_cannot_do_is_refused_in_words(site: CaseSite) -> None:
    case, _ = await faulted(site)
    incident = await incident_of(site, case, kind=ExceptionType.ABORT)
    await launch(site, incident, Resubmit(Resubmission.OTHER_DOMAIN))
    assert "cannot resubmit other-domain" in await stands(site, incident, IncidentState.HELD)
    client = await site.engine.client()
    assert (await client.get_workflow_handle(run_name(incident.id, 1)).result())["state"] == "failed"
