"""What people raise for real runs (paper P1, section 5), and what happens when a deadline passes: real Temporal, real stores, the HTTP interface."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any
from uuid import uuid4

import pytest
from tests.live.rule_desk import add_rule, incident, incidents, stored
from tests.live.run_site import GOOD, TENANT, RunSite, run_site
from tests.unit.apps.server.running import until

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.flows.events import VerbKind

pytestmark = pytest.mark.live

CONCERT = """
forestay: 1
name: NAME
params: {venue: arena}
tasks:
  sell: {command: [sell]}
  show: {command: [show], after: [sell]}
"""
PARALLEL = """
forestay: 1
name: NAME
tasks:
  slow: {command: [slow], deadline: {seconds: 1, then: report}}
  other: {command: [other]}
  third: {command: [third]}
  last: {command: [last], after: [slow, other, third]}
"""
LATE_RUN = """
forestay: 1
name: NAME
deadline: {seconds: 1, then: report}
tasks:
  slow: {command: [slow]}
  last: {command: [last], after: [slow]}
"""
TELL = """
forestay: 1
name: tell-fans
tasks: {mail: {command: [mail]}}
"""
RUN, TASK = ExceptionType.RUN_EXTERNAL, ExceptionType.TASK_EXTERNAL
BROKEN_UP = 'exception.trigger == "band broken up"'


def named(text: str) -> tuple[str, str]:
    name = f"f{uuid4().hex[:10]}"
    return text.replace("NAME", name), name


def true(trigger: str) -> dict[str, Any]:
    return {"exception": {"trigger": trigger}}


def compensate(flow: str) -> dict[str, object]:
    return {"action": "compensate", "worklets": [{"flow": flow}]}


def steer(action: str, target: str) -> dict[str, object]:
    return {"action": action, "target": target}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
async def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunSite]:
    async with run_site(request.param, tmp_path_factory.mktemp("triggers")) as running:
        yield running


@pytest.fixture(autouse=True)
def ran(site: RunSite) -> list[str]:
    site.ran.clear()
    site.fate = lambda _claim: GOOD
    site.hold_back = lambda claim: claim["name"] in ("show", "slow", "other", "third")
    site.kept.clear()
    return site.ran


async def under_way(site: RunSite, *names: str) -> None:
    async def there() -> bool:
        return {claim["name"] for _, claim in site.kept} >= set(names)

    await until(there, f"{names} to run")


async def raise_(site: RunSite, run: str, **body: Any) -> dict[str, Any]:
    person = site.server.person("operator", tenant=TENANT, subject="olga")
    answer = await person.post(f"/v1/runs/{run}/triggers", json=body)
    assert answer.status_code == 200, answer.text
    returned_body: dict[str, Any] = answer.json()
    return returned_body


@pytest.mark.ledger("P1-06")
async def test_triggers_are_listed_from_the_rules_and_answered_by_them(site: RunSite, ran: list[str]) -> None:
    text, name = named(CONCERT)
    worklet = await stored(site, TELL)
    steps = (steer("suspend", "run"), compensate(worklet), steer("continue", "run"))
    await add_rule(site, name, RUN, BROKEN_UP, *steps, true=true("band broken up"), words="The band is no more.")
    await add_rule(
        site, name, TASK, 'exception.trigger in ["encore", "rain"]', compensate(worklet), task="show", true=true("rain")
    )
    run = await site.start(text)
    await under_way(site, "show")
    viewer = site.server.person("viewer", tenant=TENANT)
    offered = (await viewer.get(f"/v1/runs/{run}/triggers")).json()["triggers"]
    assert [(entry["name"], entry["words"], entry["acts"]) for entry in offered] == [
        ("band broken up", "The band is no more.", True)
    ]
    of_task = (await viewer.get(f"/v1/runs/{run}/triggers", params={"task": "show"})).json()["triggers"]
    assert [entry["name"] for entry in of_task] == ["encore", "rain"]
    fields = await raise_(site, run, trigger="band broken up", id="one", reason="they said so")
    again = await raise_(site, run, trigger="band broken up", id="one")
    assert fields["incident"] == again["incident"]
    assert fields["verdict"] == "playbook"
    found_incident = await incident(site, run, "complete")
    assert found_incident["context"]["external"]["raised"] == {"by": "olga", "reason": "they said so"}
    assert [(step["action"], step["state"]) for step in found_incident["steps"]] == [
        ("suspend", "done"),
        ("continue", "done"),
    ]
    assert ran == ["sell", "mail"]
    fields = await raise_(site, run, trigger="rain", task="show")
    assert (await incident(site, run, "complete", kind="task-external"))["task"] == "show"
    person = site.server.person("operator", tenant=TENANT)
    refused = await person.post(f"/v1/runs/{run}/triggers", json={"trigger": "earthquake"})
    assert refused.status_code == 409
    stranger = site.server.person("submitter", tenant=TENANT, subject="stranger")
    assert (await stranger.post(f"/v1/runs/{run}/triggers", json={"trigger": "rain"})).status_code == 403
    await site.let_go()
    assert (await site.result(run))["outcome"] == "completed"


PLAYBOOK = """
forestay: 1
name: refund
steps:
  - suspend run
  - {action: compensate, worklets: [{flow: FLOW}]}
  - continue run
"""


@pytest.mark.ledger("P1-27")
async def test_a_new_exception_suspends_the_run_and_a_playbook_written_for_it_lets_it_go_on(
    site: RunSite, ran: list[str]
) -> None:
    text, _ = named(CONCERT)
    worklet = await stored(site, TELL)
    run = await site.start(text)
    await under_way(site, "show")
    fields = await raise_(site, run, new="the roof leaks", reason="tell the fans, then go on")
    assert fields["verdict"] == "hold"
    assert (await site.engine.state(run))["holders"] == [f"incident:{fields['incident']}"], "at once, not soon"
    found_incident = await incident(site, run, "held")
    assert (found_incident["type"], found_incident["context"]["exception"]["trigger"]) == (
        "run-external",
        "the roof leaks",
    )
    assert found_incident["context"]["tasks"] == {"sell": "completed", "show": "running"}
    records = await site.server.services.components.store.find_records(kind="alert", job=run)
    (alert,) = [record.body for record in records]
    assert (alert["to"], alert["proposal"]) == (["administrators"], "tell the fans, then go on")
    person = site.server.person("operator", tenant=TENANT, subject="adam")
    wrong = await person.post(
        f"/v1/incidents/{found_incident['id']}/playbook", json={"text": "name: x\nsteps: [restart task]"}
    )
    assert wrong.status_code == 422
    body = {"text": PLAYBOOK.replace("FLOW", worklet)}
    launched = await person.post(f"/v1/incidents/{found_incident['id']}/playbook", json=body)
    assert (launched.status_code, launched.json()["outcome"]) == (200, "begun"), launched.text
    done = await incident(site, run, "complete")
    assert [(decision["verdict"], decision["by"]) for decision in done["decisions"]] == [("playbook", "adam")]
    assert (await site.engine.state(run))["holders"] == [], "its own continue lifts the safeguard"
    second = await person.post(f"/v1/incidents/{found_incident['id']}/playbook", json=body)
    assert second.status_code == 409
    await site.let_go()
    assert (await site.result(run))["outcome"] == "completed"
    assert ran == ["sell", "mail"]


@pytest.mark.ledger("P1-27", "P1-25")
async def test_a_rule_written_from_a_new_exception_answers_it_and_is_offered_from_then_on(
    site: RunSite, ran: list[str]
) -> None:
    text, name = named(CONCERT)
    worklet = await stored(site, TELL)
    run = await site.start(text)
    await under_way(site, "show")
    fields = await raise_(site, run, new="no power")
    steps = (steer("suspend", "run"), compensate(worklet), steer("continue", "run"))
    await add_rule(site, name, RUN, 'exception.trigger == "no power"', *steps, true=true("no power"))
    done = await incident(site, run, "complete")
    assert done["id"] == fields["incident"]
    assert (await site.engine.state(run))["holders"] == []
    next_run = await site.start(text)
    fields = await raise_(site, next_run, trigger="no power")
    assert fields["verdict"] == "playbook"
    await incident(site, next_run, "complete")
    for other_run in (run, next_run):
        assert (await site.verb(other_run, VerbKind.REMOVE)).accepted


@pytest.mark.ledger("P1-27")
async def test_what_a_new_exception_suspended_a_person_continues_by_hand(site: RunSite, ran: list[str]) -> None:
    text, _ = named(CONCERT)
    run = await site.start(text)
    await under_way(site, "show")
    fields = await raise_(site, run, new="someone fainted")
    assert (await site.verb(run, VerbKind.CONTINUE, holder=f"incident:{fields['incident']}")).accepted
    await site.let_go()
    assert (await site.result(run))["outcome"] == "completed"


@pytest.mark.ledger("P1-05")
async def test_at_a_timeout_rules_see_the_late_task_and_those_that_run_beside_it(site: RunSite, ran: list[str]) -> None:
    text, name = named(PARALLEL)
    kind = ExceptionType.TIMEOUT
    late = {
        "exception": {"task": "slow", "task_id": "slow"},
        "task": {"name": "slow"},
        "tasks": {"slow": "running", "other": "running"},
    }
    seen = 'exception.task_id == "slow" && tasks["slow"] == "running" && tasks["other"] == "running"'
    await add_rule(site, name, kind, seen, steer("force-fail", "task"), task="slow", true=late)
    beside = 'exception.task_id == "slow" && task.name == "other"'
    true_beside = late | {"task": {"name": "other"}}
    await add_rule(site, name, kind, beside, steer("suspend", "task"), {"action": "hold", "target": "task"}, task="other", true=true_beside)  # fmt: skip
    await add_rule(site, name, kind, 'task.name == "third"', steer("remove", "task"), true={"task": {"name": "third"}})
    run = await site.start(text)
    await site.task_is(run, "slow", "failed")
    found_incident = await incident(site, run, "complete")
    assert (found_incident["type"], found_incident["task"], found_incident["cause"]) == ("timeout", "slow", "time")
    assert found_incident["context"]["tasks"] == {
        "slow": "running",
        "other": "running",
        "third": "running",
        "last": "waiting",
    }
    held = await incident(site, run, "held")
    assert held["task"] == "other"
    assert (await site.tasks(run))["third"] == "running", "a rule for any task speaks of the late task alone"
    assert len(await incidents(site, run)) == 2
    assert (await site.verb(run, VerbKind.REMOVE)).accepted


@pytest.mark.ledger("P1-05")
async def test_the_deadline_of_a_run_is_told_to_its_running_tasks(site: RunSite, ran: list[str]) -> None:
    text, name = named(LATE_RUN)
    worklet = await stored(site, TELL)
    context: Mapping[str, Any] = {"task": {"name": "slow", "status": "running"}}
    await add_rule(site, name, ExceptionType.TIMEOUT, 'exception.task_id == "" && task.status == "running"', compensate(worklet), task="slow", true=context)  # fmt: skip
    run = await site.start(text)
    found_incident = await incident(site, run, "complete")
    assert (found_incident["type"], found_incident["task"]) == ("timeout", "slow")
    assert ran == ["mail"]
    await site.let_go()
    assert (await site.result(run))["outcome"] == "completed"


async def test_without_a_rule_a_deadline_is_what_the_flow_says(site: RunSite, ran: list[str]) -> None:
    text, _ = named(PARALLEL.replace("then: report", "then: fail"))
    run = await site.start(text)
    await site.task_is(run, "slow", "failed")
    assert await incidents(site, run) == []
    assert (await site.verb(run, VerbKind.REMOVE)).accepted
