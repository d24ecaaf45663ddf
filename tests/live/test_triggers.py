"""What people raise for real cases (paper P1, section 5), and what happens when a deadline passes: real Temporal, real stores, the HTTP interface."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any
from uuid import uuid4

import pytest
from tests.live.case_site import GOOD, TENANT, CaseSite, case_site
from tests.live.rule_desk import add_rule, incident, incidents, stored
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
LATE_CASE = """
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
CASE, ITEM = ExceptionType.CASE_EXTERNAL, ExceptionType.ITEM_EXTERNAL
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
async def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CaseSite]:
    async with case_site(request.param, tmp_path_factory.mktemp("triggers")) as running:
        yield running


@pytest.fixture(autouse=True)
def ran(site: CaseSite) -> list[str]:
    site.ran.clear()
    site.fate = lambda _claim: GOOD
    site.hold_back = lambda claim: claim["name"] in ("show", "slow", "other", "third")
    site.kept.clear()
    return site.ran


async def under_way(site: CaseSite, *names: str) -> None:
    async def there() -> bool:
        return {claim["name"] for _, claim in site.kept} >= set(names)

    await until(there, f"{names} to run")


async def raise_(site: CaseSite, case: str, **body: Any) -> dict[str, Any]:
    person = site.server.person("operator", tenant=TENANT, subject="olga")
    answer = await person.post(f"/v1/cases/{case}/triggers", json=body)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


@pytest.mark.ledger("P1-06")
async def test_triggers_are_listed_from_the_rules_and_answered_by_them(site: CaseSite, ran: list[str]) -> None:
    text, name = named(CONCERT)
    worklet = await stored(site, TELL)
    steps = (steer("suspend", "case"), compensate(worklet), steer("continue", "case"))
    await add_rule(site, name, CASE, BROKEN_UP, *steps, true=true("band broken up"), words="The band is no more.")
    await add_rule(
        site, name, ITEM, 'exception.trigger in ["encore", "rain"]', compensate(worklet), task="show", true=true("rain")
    )
    case = await site.start(text)
    await under_way(site, "show")
    viewer = site.server.person("viewer", tenant=TENANT)
    offered = (await viewer.get(f"/v1/cases/{case}/triggers")).json()["triggers"]
    assert [(one["name"], one["words"], one["acts"]) for one in offered] == [
        ("band broken up", "The band is no more.", True)
    ]
    of_item = (await viewer.get(f"/v1/cases/{case}/triggers", params={"item": "show"})).json()["triggers"]
    assert [one["name"] for one in of_item] == ["encore", "rain"]
    told = await raise_(site, case, trigger="band broken up", id="one", reason="they said so")
    again = await raise_(site, case, trigger="band broken up", id="one")
    assert told["incident"] == again["incident"]
    assert told["verdict"] == "exlet"
    found = await incident(site, case, "complete")
    assert found["context"]["external"]["raised"] == {"by": "olga", "reason": "they said so"}
    assert [(one["action"], one["state"]) for one in found["steps"]] == [("suspend", "done"), ("continue", "done")]
    assert ran == ["sell", "mail"]
    told = await raise_(site, case, trigger="rain", item="show")
    assert (await incident(site, case, "complete", kind="item-external"))["item"] == "show"
    person = site.server.person("operator", tenant=TENANT)
    refused = await person.post(f"/v1/cases/{case}/triggers", json={"trigger": "earthquake"})
    assert refused.status_code == 409
    stranger = site.server.person("submitter", tenant=TENANT, subject="stranger")
    assert (await stranger.post(f"/v1/cases/{case}/triggers", json={"trigger": "rain"})).status_code == 403
    await site.let_go()
    assert (await site.result(case))["outcome"] == "completed"


EXLET = """
forestay: 1
name: refund
steps:
  - suspend case
  - {action: compensate, worklets: [{flow: FLOW}]}
  - continue case
"""


@pytest.mark.ledger("P1-27")
async def test_a_new_exception_suspends_the_case_and_an_exlet_written_for_it_lets_it_go_on(
    site: CaseSite, ran: list[str]
) -> None:
    text, _ = named(CONCERT)
    worklet = await stored(site, TELL)
    case = await site.start(text)
    await under_way(site, "show")
    told = await raise_(site, case, new="the roof leaks", reason="tell the fans, then go on")
    assert told["verdict"] == "hold"
    assert (await site.engine.state(case))["holders"] == [f"incident:{told['incident']}"], "at once, not soon"
    found = await incident(site, case, "held")
    assert (found["type"], found["context"]["exception"]["trigger"]) == ("case-external", "the roof leaks")
    assert found["context"]["items"] == {"sell": "completed", "show": "running"}
    records = await site.server.services.components.store.find_records(kind="alert", job=case)
    (alert,) = [one.body for one in records]
    assert (alert["to"], alert["proposal"]) == (["administrators"], "tell the fans, then go on")
    person = site.server.person("operator", tenant=TENANT, subject="adam")
    wrong = await person.post(f"/v1/incidents/{found['id']}/exlet", json={"text": "name: x\nsteps: [restart item]"})
    assert wrong.status_code == 422
    body = {"text": EXLET.replace("FLOW", worklet)}
    launched = await person.post(f"/v1/incidents/{found['id']}/exlet", json=body)
    assert (launched.status_code, launched.json()["outcome"]) == (200, "begun"), launched.text
    done = await incident(site, case, "complete")
    assert [(one["verdict"], one["by"]) for one in done["decisions"]] == [("exlet", "adam")]
    assert (await site.engine.state(case))["holders"] == [], "its own continue lifts the safeguard"
    second = await person.post(f"/v1/incidents/{found['id']}/exlet", json=body)
    assert second.status_code == 409
    await site.let_go()
    assert (await site.result(case))["outcome"] == "completed"
    assert ran == ["sell", "mail"]


@pytest.mark.ledger("P1-27", "P1-25")
async def test_a_rule_written_from_a_new_exception_answers_it_and_is_offered_from_then_on(
    site: CaseSite, ran: list[str]
) -> None:
    text, name = named(CONCERT)
    worklet = await stored(site, TELL)
    case = await site.start(text)
    await under_way(site, "show")
    told = await raise_(site, case, new="no power")
    steps = (steer("suspend", "case"), compensate(worklet), steer("continue", "case"))
    await add_rule(site, name, CASE, 'exception.trigger == "no power"', *steps, true=true("no power"))
    done = await incident(site, case, "complete")
    assert done["id"] == told["incident"]
    assert (await site.engine.state(case))["holders"] == []
    next_case = await site.start(text)
    told = await raise_(site, next_case, trigger="no power")
    assert told["verdict"] == "exlet"
    await incident(site, next_case, "complete")
    for one in (case, next_case):
        assert (await site.verb(one, VerbKind.REMOVE)).accepted


@pytest.mark.ledger("P1-27")
async def test_what_a_new_exception_suspended_a_person_continues_by_hand(site: CaseSite, ran: list[str]) -> None:
    text, _ = named(CONCERT)
    case = await site.start(text)
    await under_way(site, "show")
    told = await raise_(site, case, new="someone fainted")
    assert (await site.verb(case, VerbKind.CONTINUE, holder=f"incident:{told['incident']}")).accepted
    await site.let_go()
    assert (await site.result(case))["outcome"] == "completed"


@pytest.mark.ledger("P1-05")
async def test_at_a_timeout_rules_see_the_late_item_and_those_that_run_beside_it(
    site: CaseSite, ran: list[str]
) -> None:
    text, name = named(PARALLEL)
    kind = ExceptionType.TIMEOUT
    late = {"exception": {"item": "slow"}, "item": {"name": "slow"}, "items": {"slow": "running", "other": "running"}}
    seen = 'exception.item == "slow" && items["slow"] == "running" && items["other"] == "running"'
    await add_rule(site, name, kind, seen, steer("force-fail", "item"), task="slow", true=late)
    beside = 'exception.item == "slow" && item.name == "other"'
    true_beside = late | {"item": {"name": "other"}}
    await add_rule(site, name, kind, beside, steer("suspend", "item"), {"action": "hold", "target": "item"}, task="other", true=true_beside)  # fmt: skip
    await add_rule(site, name, kind, 'item.name == "third"', steer("remove", "item"), true={"item": {"name": "third"}})
    case = await site.start(text)
    await site.item_is(case, "slow", "failed")
    found = await incident(site, case, "complete")
    assert (found["type"], found["item"], found["cause"]) == ("timeout", "slow", "time")
    assert found["context"]["items"] == {"slow": "running", "other": "running", "third": "running", "last": "waiting"}
    held = await incident(site, case, "held")
    assert held["item"] == "other"
    assert (await site.items(case))["third"] == "running", "a rule for any task speaks of the late item alone"
    assert len(await incidents(site, case)) == 2
    assert (await site.verb(case, VerbKind.REMOVE)).accepted


@pytest.mark.ledger("P1-05")
async def test_the_deadline_of_a_case_is_told_to_its_running_items(site: CaseSite, ran: list[str]) -> None:
    text, name = named(LATE_CASE)
    worklet = await stored(site, TELL)
    context: Mapping[str, Any] = {"item": {"name": "slow", "status": "running"}}
    await add_rule(site, name, ExceptionType.TIMEOUT, 'exception.item == "" && item.status == "running"', compensate(worklet), task="slow", true=context)  # fmt: skip
    case = await site.start(text)
    found = await incident(site, case, "complete")
    assert (found["type"], found["item"]) == ("timeout", "slow")
    assert ran == ["mail"]
    await site.let_go()
    assert (await site.result(case))["outcome"] == "completed"


async def test_without_a_rule_a_deadline_is_what_the_flow_says(site: CaseSite, ran: list[str]) -> None:
    text, _ = named(PARALLEL.replace("then: report", "then: fail"))
    case = await site.start(text)
    await site.item_is(case, "slow", "failed")
    assert await incidents(site, case) == []
    assert (await site.verb(case, VerbKind.REMOVE)).accepted
