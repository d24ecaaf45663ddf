"""Every action of paper P1 on real runs: an incident, a recorded decision, its playbook as a workflow; real Temporal, real stores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from tests.live.run_site import BAD, GOOD, TENANT, RunSite, run_site
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
from forestay.domain.exceptions.incidents.retry_policy import AfterLastLevel, Budgets, LevelledRetryPolicy, RetryLevel
from forestay.domain.flows.definition.flow_version import version_of
from forestay.domain.flows.events import VerbKind
from forestay.domain.flows.execution.run_names import job_of, run_of
from forestay.domain.jobs.job_document import JobDocument, State
from forestay.domain.playbooks.action import (
    Action,
    ActionKind,
    ActionTarget,
    Amount,
    AvoidHost,
    CompensateAction,
    Hold,
    NeedChange,
    Notify,
    Restage,
    Resubmission,
    Resubmit,
    RetryByPolicy,
    Rollback,
    Steer,
    Worklet,
)
from forestay.domain.playbooks.playbook import Playbook, PlaybookStep, playbook_as_plain
from forestay.domain.playbooks.playbook_check import check_playbook
from forestay.domain.playbooks.playbook_run import PlaybookRunState, StepState, Stopped, run_name, worklet_run
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
TELL_FAN_OUTS = """
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
async def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunSite]:
    async with run_site(request.param, tmp_path_factory.mktemp("playbooks")) as running:
        yield running


@pytest.fixture(autouse=True)
def _fresh(site: RunSite) -> None:
    site.ran.clear()
    site.fate = lambda _claim: GOOD
    site.hold_back = lambda claim: claim["name"] == "show"
    site.kept.clear()


def show(name: str = "") -> str:
    """A flow of its own, so that what is done to all its runs touches nobody else's."""
    return SHOW.replace("NAME", name or f"concert-{uuid4().hex[:8]}")


async def stored(site: RunSite, text: str) -> str:
    read = read_flow_text(text)
    assert read.flow is not None, read.problems
    return await site.server.services.components.flows.put(read.flow, tenant=TENANT)


async def begun(site: RunSite, text: str = "", task: str = "show", **params: Any) -> str:
    """A run whose task is under way and waits."""
    run = await site.start(text or show(), **params)
    await site.task_is(run, task, "running")
    await under_way(site, run, task)
    return run


async def under_way(site: RunSite, run: str, task: str, many: int = 1) -> None:
    async def there() -> bool:
        job = await job_at(site, run, task)
        return job is not None and job.state is State.RUNNING and len(site.kept) >= many

    await until(there, f"the job of {task} to run")


async def job_at(site: RunSite, run: str, task: str, round_: int = 1) -> JobDocument | None:
    name = job_of(run, f"{task}@{round_}", 0)
    stored = (await site.server.services.components.store.get([name])).get(name)
    return stored.document if stored is not None else None


async def incident_of(
    site: RunSite, run: str, task: str = "show", kind: ExceptionType = ExceptionType.TASK_EXTERNAL, **more: Any
) -> Incident:
    event = uuid4().hex
    job = job_of(run, f"{task}@1", 0) if task else ""
    summary = await site.engine.describe(run)
    return Incident(
        incident_id(kind, run=run, instance=task, job=job, event=event), TENANT, "ada", kind,
        site.server.services.components.clock.now(), run=run, instance=task, job=job, event=event, flow=summary.version, **more,
    )  # fmt: skip


async def decided(site: RunSite, incident: Incident, *actions: Action, name: str = "recover") -> None:
    """Record the incident and the decision on it."""
    parts = site.server.services.components
    playbook = Playbook(name, tuple(PlaybookStep(action) for action in actions))
    assert check_playbook(playbook, incident.kind) == []
    # Not due: the test carries it out itself.
    await parts.incidents.add_incidents([(incident, replace(status_of(incident), due=None))])
    made = Decision(incident.id, 1, TENANT, parts.clock.now(), "matched", "test", playbook_as_plain(playbook))
    await parts.incidents.add_decisions([made])


async def launch(site: RunSite, incident: Incident, *actions: Action) -> None:
    await decided(site, incident, *actions)
    assert await site.engine.start_playbook(incident.id, 1, tenant=TENANT, owner="ada")
    assert not await site.engine.start_playbook(incident.id, 1, tenant=TENANT, owner="ada")


async def stands(site: RunSite, incident: Incident, *states: IncidentState) -> str:
    """Wait until the incident stands there; why."""

    async def there() -> str | None:
        status = (await site.server.services.components.incidents.get_statuses([incident.id]))[incident.id].status
        return status.note or "-" if status.state in states else None

    note: str = await until(there, f"the incident to be {states}")
    return note


async def done(site: RunSite, incident: Incident, *actions: Action) -> None:
    """Carry a playbook out to its good end; each step is begun once and over once."""
    await launch(site, incident, *actions)
    await stands(site, incident, IncidentState.COMPLETE)
    await site.server.refresh()
    records = await site.server.services.components.incidents.steps(incident.id)
    marks = [(record.step, record.mark) for record in records if record.action != "compensate"]
    plain = [place for place, action in enumerate(actions) if not isinstance(action, CompensateAction)]
    assert marks == [(place, mark) for place in plain for mark in (StepMark.BEGUN, StepMark.OVER)]
    assert all(record.detail["state"] == "done" for record in records if record.mark is StepMark.OVER)


async def go_on(site: RunSite) -> None:
    site.hold_back = lambda _claim: False
    await site.let_go()


def steer(action: str, target: ActionTarget = ActionTarget.TASK) -> Steer:
    return Steer(ActionKind(action), target)


# P1-10: remove


@pytest.mark.ledger("P1-10")
async def test_remove_task_ends_its_path(site: RunSite) -> None:
    run = await begun(site)
    await done(site, await incident_of(site, run), steer("remove"))
    await site.ended(run)
    assert await site.tasks(run) == {"sell": "completed", "show": "cancelled", "settle": "cancelled"}
    job = await job_at(site, run, "show")
    assert job is not None
    assert job.state is State.CANCELLED


@pytest.mark.ledger("P1-10", "P1-20")
async def test_remove_run_ends_the_run(site: RunSite) -> None:
    run = await begun(site)
    await done(site, await incident_of(site, run), steer("remove", ActionTarget.RUN))
    assert (await site.ended(run)).state == "removed"


@pytest.mark.ledger("P1-10", "P1-20")
async def test_remove_all_runs_ends_every_run_of_the_flow(site: RunSite) -> None:
    text = show()
    runs = [await begun(site, text) for _ in range(3)]
    other = await begun(site)
    await done(site, await incident_of(site, runs[0]), steer("remove", ActionTarget.ALL_RUNS))
    for run in runs:
        assert (await site.ended(run)).state == "removed"
    await go_on(site)
    assert (await site.ended(other)).state == "completed"


# P1-11 and P1-12: suspend and continue


@pytest.mark.ledger("P1-11", "P1-12")
@pytest.mark.parametrize("target", [ActionTarget.TASK, ActionTarget.RUN, ActionTarget.JOB])
async def test_suspend_holds_and_continue_takes_away_only_its_own_hold(site: RunSite, target: ActionTarget) -> None:
    run = await begun(site)
    other = await site.verb(run, VerbKind.SUSPEND, "settle", holder="bob")
    assert other.accepted
    incident = await incident_of(site, run)
    change = await stored(site, CHANGE_VENUE)
    site.hold_back = lambda claim: claim["name"] in ("show", "book")
    await launch(
        site,
        incident,
        steer("suspend", target),
        CompensateAction((Worklet(change, {"from": "x"}),)),
        steer("continue", target),
    )
    worklet = worklet_run(incident.id, 1, 1, 0)
    await site_knows(site, worklet)
    await under_way(site, worklet, "book", 2)
    state = await site.engine.state(run)
    holder = f"{incident.id}:1:0"
    tasks = {task["id"]: task for task in state["instances"]}
    if target is ActionTarget.RUN:
        assert state["holders"] == [holder]
    elif target is ActionTarget.TASK:
        assert tasks["show"]["holders"] == [holder]
    job = await job_at(site, run, "show")
    assert job is not None
    assert job.holders
    assert tasks["settle"]["holders"] == ["bob"]
    await go_on(site)
    await stands(site, incident, IncidentState.COMPLETE)
    state = await site.engine.state(run)
    tasks = {task["id"]: task for task in state["instances"]}
    assert state["holders"] == []
    assert "holders" not in tasks["show"]
    assert tasks["settle"]["holders"] == ["bob"]
    await site.task_is(run, "show", "completed")
    assert "settle" not in site.ran


async def site_knows(site: RunSite, run: str) -> None:
    async def there() -> bool:
        try:
            return bool(await site.engine.describe(run))
        except Exception:
            return False

    await until(there, f"run {run}")


@pytest.mark.ledger("P1-11", "P1-12")
async def test_suspend_all_runs_stops_those_that_start_later_until_continue(site: RunSite) -> None:
    text = show()
    first = await begun(site, text)
    incident = await incident_of(site, first)
    change = await stored(site, CHANGE_VENUE)
    site.hold_back = lambda claim: claim["name"] in ("show", "book")
    all_runs = ActionTarget.ALL_RUNS
    await launch(
        site, incident, steer("suspend", all_runs), CompensateAction((Worklet(change, {"from": "x"}),)), steer("continue", all_runs)
    )  # fmt: skip
    worklet = worklet_run(incident.id, 1, 1, 0)
    await site_knows(site, worklet)
    # The worklet runs while all runs of the flow are suspended, and a new run does not escape.
    await under_way(site, worklet, "book", 2)
    site.ran.clear()
    later = await site.start(text)
    await site.task_is(later, "sell", "running")
    read = read_flow_text(text)
    assert read.flow is not None
    suspension = await site.server.services.suspensions.suspension(TENANT, version_of(read.flow))
    assert suspension.holders == (f"{incident.id}:1:0",)
    assert "sell" not in site.ran
    await go_on(site)
    await stands(site, incident, IncidentState.COMPLETE)
    assert (await site.ended(first)).state == (await site.ended(later)).state == "completed"
    assert (await site.server.services.suspensions.suspension(TENANT, version_of(read.flow))).holders == ()


# P1-13 to P1-15: restart and force


@pytest.mark.finding("F-D8")
@pytest.mark.ledger("P1-13")
async def test_restart_runs_the_task_again_with_the_data_of_its_start(site: RunSite) -> None:
    run = await begun(site, venue="hall")
    assert (await site.verb(run, VerbKind.SET_DATA, changes={"venue": "park"})).accepted
    await done(site, await incident_of(site, run), steer("restart"))

    async def again() -> bool:
        job = await job_at(site, run, "show", 2)
        return job is not None and job.state is State.RUNNING

    await until(again, "the second round")
    first, second = await job_at(site, run, "show"), await job_at(site, run, "show", 2)
    assert first is not None
    assert second is not None
    assert first.state is State.CANCELLED
    assert (second.specification, second.parameters) == (first.specification, first.parameters)
    site.kept[:] = [pair for pair in site.kept if pair[1]["job"] == second.id]
    await go_on(site)
    assert (await site.ended(run)).state == "completed"


@pytest.mark.ledger("P1-14", "P0-19", "P1-20")
async def test_force_complete_counts_as_success_and_the_path_goes_on(site: RunSite) -> None:
    run = await begun(site)
    await done(site, await incident_of(site, run), steer("force-complete"))
    assert (await site.ended(run)).state == "completed"
    assert await site.tasks(run) == {"sell": "completed", "show": "forced_complete", "settle": "completed"}


@pytest.mark.ledger("P1-15", "P0-19")
async def test_force_fail_is_a_failure_and_the_path_goes_on(site: RunSite) -> None:
    run = await begun(site)
    await done(site, await incident_of(site, run), steer("force-fail"))
    await site.ended(run)
    assert await site.tasks(run) == {"sell": "completed", "show": "failed", "settle": "completed"}


# P1-16 to P1-18: worklets


@pytest.mark.ledger("P1-16", "P1-17")
async def test_worklets_run_together_and_what_they_give_back_is_the_runs(site: RunSite) -> None:
    run = await begun(site, show(), "show", venue="arena", seats=7)
    change, tell = await stored(site, CHANGE_VENUE), await stored(site, TELL_FAN_OUTS)
    incident = await incident_of(site, run)
    site.hold_back = lambda claim: claim["name"] in ("show", "book", "mail")
    worklets = (
        Worklet(change, {"from": "${params.venue}", "seats": "${params.seats}"}, {"venue": "venue"}),
        Worklet(tell, {"of": "${incident.task} in ${params.venue}"}),
    )
    await launch(
        site,
        incident,
        steer("suspend", ActionTarget.RUN),
        CompensateAction(worklets),
        steer("continue", ActionTarget.RUN),
    )
    runs = [worklet_run(incident.id, 1, 1, place) for place in range(2)]
    for other_run, task in zip(runs, ("book", "mail"), strict=True):
        await site_knows(site, other_run)
        await under_way(site, other_run, task)
    assert (await site.engine.state(runs[0]))["params"] == {"from": "arena", "seats": 7}
    assert (await site.engine.state(runs[1]))["params"] == {"of": "show in arena"}
    # One of two has ended: the playbook waits for the other.
    mail = [pair for pair in site.kept if pair[1]["name"] == "mail"]
    await mail[0][0].end(mail[0][1])
    site.kept.remove(mail[0])
    assert (await site.ended(runs[1])).state == "completed"
    assert (await site.engine.state(run))["holders"] == [f"{incident.id}:1:0"]
    await go_on(site)
    await stands(site, incident, IncidentState.COMPLETE)
    assert (await site.result(run))["outputs"] == {"venue": "not arena"}
    assert (await site.engine.state(run))["params"] == {"venue": "not arena", "seats": 7}


@pytest.mark.ledger("P1-16")
async def test_the_parent_may_run_meanwhile(site: RunSite) -> None:
    run = await begun(site)
    tell = await stored(site, TELL_FAN_OUTS)
    incident = await incident_of(site, run)
    site.hold_back = lambda claim: claim["name"] in ("show", "mail")
    await launch(site, incident, CompensateAction((Worklet(tell, {"of": 1}),)))
    worklet = worklet_run(incident.id, 1, 0, 0)
    await site_knows(site, worklet)
    await under_way(site, worklet, "mail", 2)
    shows = [pair for pair in site.kept if pair[1]["name"] == "show"]
    await shows[0][0].end(shows[0][1])
    site.kept.remove(shows[0])
    assert (await site.ended(run)).state == "completed"
    await go_on(site)
    await stands(site, incident, IncidentState.COMPLETE)


async def test_a_worklet_that_fails_leaves_the_run_suspended_for_a_person(site: RunSite) -> None:
    run = await begun(site)
    bad = await stored(site, BAD_LUCK)
    site.fate = lambda claim: BAD if claim["name"] == "trip" else GOOD
    incident = await incident_of(site, run)
    playbook = (
        steer("suspend", ActionTarget.RUN),
        CompensateAction((Worklet(bad),)),
        steer("continue", ActionTarget.RUN),
    )
    await launch(site, incident, *playbook)
    note = await stands(site, incident, IncidentState.HELD)
    assert "worklet 0" in note
    assert "suspended: run" in note
    assert (await site.engine.state(run))["holders"] == [f"{incident.id}:1:0"]


async def test_a_worklet_that_is_not_there_fails_the_playbook(site: RunSite) -> None:
    run = await begun(site)
    incident = await incident_of(site, run)
    await launch(site, incident, CompensateAction((Worklet("0" * 64),)))
    assert "there is no flow" in await stands(site, incident, IncidentState.HELD)


@pytest.mark.ledger("P1-18", "P1-19")
async def test_worklets_have_exceptions_of_their_own_to_any_depth_and_ancestors_are_reached(site: RunSite) -> None:
    """A run, a worklet for it, and a worklet for that; from the lowest, all ancestors are suspended, continued and removed."""
    run = await begun(site)
    bad, tell = await stored(site, BAD_LUCK), await stored(site, TELL_FAN_OUTS)
    site.hold_back = lambda claim: claim["name"] in ("show", "trip", "mail")
    first = await incident_of(site, run)
    await launch(site, first, CompensateAction((Worklet(bad),)))
    middle = worklet_run(first.id, 1, 0, 0)
    await site_knows(site, middle)
    await under_way(site, middle, "trip", 2)
    second = replace(await incident_of(site, middle, "trip"), parent=first.id)
    await launch(site, second, CompensateAction((Worklet(tell, {"of": 1}),)))
    lowest = worklet_run(second.id, 1, 0, 0)
    await site_knows(site, lowest)
    await under_way(site, lowest, "mail", 3)
    third = replace(await incident_of(site, lowest, "mail"), parent=second.id)
    await done(
        site, third, steer("suspend", ActionTarget.ANCESTORS), Notify("look"), steer("continue", ActionTarget.ANCESTORS)
    )
    fourth = replace(await incident_of(site, lowest, "mail"), parent=second.id)
    await decided(site, fourth, steer("suspend", ActionTarget.ANCESTORS), Hold(ActionTarget.RUN))
    assert await site.engine.start_playbook(fourth.id, 1, tenant=TENANT, owner="ada")
    await stands(site, fourth, IncidentState.HELD)

    async def all_held() -> bool:
        states = [await site.engine.state(name) for name in (lowest, middle, run)]
        return all(f"{fourth.id}:1:0" in state["holders"] for state in states)

    await until(all_held, "the ancestors to be suspended")
    fifth = replace(await incident_of(site, lowest, "mail"), parent=second.id)
    await done(site, fifth, steer("remove", ActionTarget.ANCESTORS))
    for other_run in (lowest, middle, run):
        assert (await site.ended(other_run)).state == "removed"


@pytest.mark.ledger("P1-19")
async def test_the_ancestors_of_a_sub_flow_are_the_runs_that_started_it(site: RunSite) -> None:
    outer = await site.start(OUTER)
    inner = run_of(outer, "part@1", 0)
    site.hold_back = lambda claim: claim["name"] == "work"
    await site_knows(site, inner)
    await under_way(site, inner, "work")
    await done(site, await incident_of(site, inner, "work"), steer("remove", ActionTarget.ANCESTORS))
    assert (await site.ended(inner)).state == (await site.ended(outer)).state == "removed"


@pytest.mark.ledger("P1-20")
async def test_one_playbook_answers_exceptions_of_two_flows(site: RunSite) -> None:
    shared = (steer("force-complete"), Notify("forced"))
    for _ in range(2):
        run = await begun(site, show())
        await done(site, await incident_of(site, run), *shared)
        await site.task_is(run, "show", "forced_complete")


# Steps that cannot be done


async def test_what_is_gone_cannot_be_suspended_and_the_incident_says_so(site: RunSite) -> None:
    run = await begun(site)
    incident = await incident_of(site, run)
    await go_on(site)
    await site.ended(run)
    await launch(site, incident, steer("suspend"), steer("continue"))
    assert "the run has ended" in await stands(site, incident, IncidentState.HELD)


async def test_an_answer_to_one_round_is_not_given_to_the_next(site: RunSite) -> None:
    run = await begun(site)
    incident = replace(await incident_of(site, run), round=1)
    assert (await site.verb(run, VerbKind.REDO, "show")).accepted

    async def second_round() -> bool:
        tasks = {task["id"]: task for task in (await site.engine.state(run))["instances"]}
        return bool(tasks["show"]["round"] == 2)

    await until(second_round, "the second round")
    await launch(site, incident, steer("force-complete"))
    assert "the task is in round 2" in await stands(site, incident, IncidentState.HELD)


async def test_the_run_of_another_tenant_is_nobodys(site: RunSite) -> None:
    run = await begun(site)
    incident = replace(await incident_of(site, run), tenant="strangers", id=str(uuid4()))
    for place, do in enumerate(
        (steer("remove", ActionTarget.RUN), steer("force-fail"), steer("remove", ActionTarget.JOB))
    ):
        other = replace(incident, id=f"{incident.id}-{place}")
        await launch(site, other, do)
        assert "there is no" in await stands(site, other, IncidentState.HELD)
    await go_on(site)
    assert (await site.ended(run)).state == "completed"


async def test_a_run_of_another_engine_that_never_reported_it_is_none(site: RunSite) -> None:
    run = await begun(site)
    incident = replace(await incident_of(site, run), engine="elsewhere", id=str(uuid4()))
    await launch(site, incident, steer("suspend"), steer("continue"))
    assert f"there is no run {run}" in await stands(site, incident, IncidentState.HELD)


async def test_a_person_stops_a_playbook(site: RunSite) -> None:
    run = await begun(site)
    tell = await stored(site, TELL_FAN_OUTS)
    site.hold_back = lambda claim: claim["name"] in ("show", "mail")
    incident = await incident_of(site, run)
    await launch(site, incident, steer("suspend"), CompensateAction((Worklet(tell, {"of": 1}),)), steer("continue"))
    await site_knows(site, worklet_run(incident.id, 1, 1, 0))
    await site.engine.tell_playbook(incident.id, 1, [Stopped("olga")])
    note = await stands(site, incident, IncidentState.HELD)
    assert "stopped by olga" in note
    assert "suspended: task" in note


# Jobs


async def faulted(site: RunSite, task: str = "show", text: str = "") -> tuple[str, JobDocument]:
    """A run whose job has failed and waits."""
    site.hold_back = lambda _claim: False
    site.fate = lambda claim: BAD if claim["name"] == task else GOOD
    run = await site.start(text or show())

    async def there() -> JobDocument | None:
        job = await job_at(site, run, task)
        return job if job is not None and job.state is State.FAULTED else None

    job: JobDocument = await until(there, "the failure")
    return run, job


@pytest.mark.ledger("P0-14", "P0-16")
async def test_resubmit_with_more_memory_is_one_write(site: RunSite) -> None:
    run, job = await faulted(site)
    site.fate = lambda _claim: GOOD
    incident = replace(await incident_of(site, run, kind=ExceptionType.ABORT), attempt=1, cause="memory")
    more = Resubmit(Resubmission.CHANGED, {Amount.MEMORY: NeedChange(to=1 << 20), Amount.DISK: NeedChange(to=1 << 10)})
    await decided(site, incident, more)
    parts = site.server.services.components
    service = build_playbook_runner(parts, site.server.services.steer)
    before = job.rev
    end = await service.do_step(incident.id, 1, 0)
    again = await service.do_step(incident.id, 1, 0)
    assert end == again
    assert (await site.ended(run)).state == "completed"
    after = await job_at(site, run, "show")
    assert after is not None
    assert (after.resources.memory, after.resources.disk) == (1 << 20, 1 << 10)
    assert [line.event for line in after.history if line.rev > before].count("retry") == 1
    # Late, after the job has changed, another answer to the same attempt is refused.
    late = replace(incident, id=str(uuid4()))
    await decided(site, late, more)
    refused = await service.do_step(late.id, 1, 0)
    assert (refused.state.value, refused.detail) == ("refused", "the job has changed: it is at attempt 2, not 1")


@pytest.mark.ledger("P0-10")
async def test_restage_brings_the_files_of_the_job_again(site: RunSite) -> None:
    """A job whose input could not be brought is tried again with the same source, target and parameters."""
    site.hold_back = lambda _claim: False
    site.fate = lambda claim: BAD | {"reason": "staging-in"} if site.ran.count("show") == 1 else GOOD
    run = await site.start(show())

    async def there() -> bool:
        job = await job_at(site, run, "show")
        return job is not None and job.state is State.FAULTED

    await until(there, "the failure")
    before = await job_at(site, run, "show")
    await done(site, replace(await incident_of(site, run, kind=ExceptionType.ABORT), attempt=1), Restage())
    assert (await site.ended(run)).state == "completed"
    after = await job_at(site, run, "show")
    assert before is not None
    assert after is not None
    assert (after.attempt, after.specification, after.parameters) == (2, before.specification, before.parameters)


@pytest.mark.ledger("P2-05")
async def test_a_retry_policy_waits_longer_each_time_and_then_the_run_is_compensated(site: RunSite) -> None:
    run, _ = await faulted(site, text=UNDONE)
    parts = site.server.services.components
    service = build_playbook_runner(parts, site.server.services.steer)
    service.jobs.retry_policies = {"short": LevelledRetryPolicy("short", (RetryLevel(0), RetryLevel(0)))}
    for attempt in (1, 2, 3):
        incident = replace(
            await incident_of(site, run, kind=ExceptionType.ABORT), attempt=attempt, cause="code", event=str(attempt)
        )
        await decided(site, incident, RetryByPolicy("short"))
        end = await service.do_step(incident.id, 1, 0)
        if attempt < 3:
            assert end.detail.startswith(f"level {attempt - 1} of retry policy short")

            async def failed_again(attempt: int = attempt) -> bool:
                document = await job_at(site, run, "show")
                return document is not None and document.attempt == attempt + 1 and document.state is State.FAULTED

            await until(failed_again, "the next failure")
        else:
            assert end.detail.startswith("rollback: all 2 retries of the retry policy short")
    assert (await site.ended(run)).state == "failed"
    # The last one is the compensation of the hall that was booked.
    assert site.ran == ["book", "show", "show", "show", "book"]


async def test_what_is_kept_for_a_person_does_not_count_as_complete(site: RunSite) -> None:
    """A hold that is one write, and a retry policy that ends with one, leave the incident in the inbox, whoever says that all was done."""
    run, _ = await faulted(site)
    service = build_playbook_runner(site.server.services.components, site.server.services.steer)
    service.jobs.retry_policies = {"none": LevelledRetryPolicy("none", (RetryLevel(0),), AfterLastLevel.HOLD)}
    service.jobs.budgets = Budgets(user=0)
    for do, words in (
        (Hold(ActionTarget.JOB), "held for a person"),
        (RetryByPolicy("none"), "hold: 0 tries; 0 are allowed"),
    ):
        incident = replace(await incident_of(site, run, kind=ExceptionType.ABORT), attempt=1, cause="code")
        await decided(site, incident, do)
        end = await service.do_step(incident.id, 1, 0)
        assert end.state is StepState.DONE
        reason = end.detail if isinstance(do, RetryByPolicy) else ""
        await service.finish(incident.id, 1, PlaybookRunState.COMPLETE, reason=reason)
        assert await stands(site, incident, IncidentState.HELD) == words
        job = await job_at(site, run, "show")
        assert job is not None
        assert f"{incident.id}:1:0" in job.holders


async def test_a_job_is_kept_away_from_the_host_where_it_failed(site: RunSite) -> None:
    run, job = await faulted(site)
    assert job.last is not None
    host = job.last.host
    site.fate = lambda _claim: GOOD
    incident = replace(await incident_of(site, run, kind=ExceptionType.ABORT), attempt=1)
    await done(site, incident, AvoidHost(seconds=3600), Resubmit())
    document = await job_at(site, run, "show")
    assert document is not None
    assert document.state is State.AVAILABLE
    assert host in document.extra["avoided"]  # type: ignore[operator]
    assert document.holders == ()


@pytest.mark.ledger("P2-04")
async def test_rollback_compensates_the_run(site: RunSite) -> None:
    run, _ = await faulted(site, text=UNDONE)
    await done(site, await incident_of(site, run, kind=ExceptionType.ABORT), Rollback())
    assert (await site.ended(run)).state == "failed"
    # The last one is the compensation of the hall that was booked.
    assert site.ran == ["book", "show", "book"]


async def test_what_a_domain_without_others_cannot_do_is_refused_in_words(site: RunSite) -> None:
    run, _ = await faulted(site)
    incident = await incident_of(site, run, kind=ExceptionType.ABORT)
    await launch(site, incident, Resubmit(Resubmission.OTHER_DOMAIN))
    assert "there is no other domain" in await stands(site, incident, IncidentState.HELD)
    client = await site.engine.client()
    assert (await client.get_workflow_handle(run_name(incident.id, 1)).result())["state"] == "failed"
