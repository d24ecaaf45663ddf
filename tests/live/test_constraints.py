"""Constraints on real runs (paper P1, section 4.1): checked when a run or a task begins and ends, answered before it goes on; real Temporal, real stores."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.enums.v1 import EventType
from tests.live.rule_desk import add_rule, incident, incidents, stored
from tests.live.run_site import GOOD, TENANT, RunSite, run_site
from tests.unit.apps.server.running import until

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.flows.events import VerbKind
from forestay.domain.flows.execution.run_names import job_of, run_of

pytestmark = pytest.mark.live

CONCERT = """
forestay: 1
name: NAME
params: {venue: arena, seats: 1000, sold: 1000}
tasks:
  sell: {command: [sell]}
  show: {command: [show, "${params.venue}"], after: [sell]}
  settle: {command: [settle], after: [show]}
outputs: {venue: "${params.venue}"}
"""
MID_VENUE = """
forestay: 1
name: change-to-mid-venue
params: {sold: null}
tasks: {book: {command: [book]}}
outputs: {venue: club, seats: "${params.sold}"}
"""
TELL = """
forestay: 1
name: tell-fans
tasks: {mail: {command: [mail]}}
"""
MANY = """
forestay: 1
name: NAME
params: {go: false}
tasks:
  part: {command: [part], scatter: {n: {range: [0, 600]}}}
  last: {command: [last], after: [part]}
"""
OUTER = """
forestay: 1
name: NAME
flows:
  inner:
    name: INNER
    params: {x: 1}
    tasks: {work: {command: [work]}}
    outputs: {y: "${params.x}"}
tasks:
  part: {flow: inner}
  last: {command: [last], after: [part]}
"""
FEW_SOLD = "run.data.sold * 4 < run.data.seats * 3"
FEW = {"run": {"data": {"sold": 1, "seats": 1000}}}
PRE, POST = ExceptionType.TASK_PRE, ExceptionType.TASK_POST


def named(text: str) -> tuple[str, str]:
    """A flow of its own, so that its rules touch nobody else's runs; and its name."""
    name = f"f{uuid4().hex[:10]}"
    return text.replace("NAME", name).replace("INNER", f"{name}i"), name


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
async def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunSite]:
    async with run_site(request.param, tmp_path_factory.mktemp("constraints")) as running:
        yield running


@pytest.fixture(autouse=True)
def ran(site: RunSite) -> list[str]:
    """Every job that ran, with what it was told."""
    commands: list[str] = []

    def fate(claim: Mapping[str, Any]) -> dict[str, Any]:
        commands.append(" ".join(claim["specification"]["command"]))
        return GOOD

    site.ran.clear()
    site.fate = fate
    site.hold_back = lambda _claim: False
    site.kept.clear()
    return commands


def compensate(flow: str, **more: object) -> dict[str, object]:
    return {"action": "compensate", "worklets": [{"flow": flow, **more}]}


def steer(action: str, target: str) -> dict[str, object]:
    return {"action": action, "target": target}


@pytest.mark.ledger("P1-02", "P1-16", "P1-17")
async def test_a_task_waits_while_its_venue_is_changed_and_begins_with_the_new_one(
    site: RunSite, ran: list[str]
) -> None:
    text, name = named(CONCERT)
    worklet = await stored(site, MID_VENUE)
    change = compensate(worklet, give={"sold": "${params.sold}"}, take={"venue": "venue", "seats": "seats"})
    steps = (steer("suspend", "task"), change, steer("continue", "task"))
    await add_rule(site, name, PRE, FEW_SOLD, *steps, task="show", true=FEW)
    site.hold_back = lambda claim: claim["name"] == "book"
    run = await site.start(text, sold=500)
    await site.kept_some()
    assert ran == ["sell"], "nothing of the show is begun"
    assert (await site.tasks(run))["show"] == "waiting"
    await site.let_go()
    assert (await site.result(run)) == {"outcome": "completed", "outputs": {"venue": "club"}, "reason": ""}
    assert ran == ["sell", "book", "show club", "settle"]
    found_incident = await incident(site, run, "complete")
    assert (found_incident["type"], found_incident["task"]) == ("task-pre", "show")
    assert [step["state"] for step in found_incident["steps"]] == ["done", "done", "done"]
    store = site.server.services.components.store
    assert not await store.get([job_of(run, "show@1", 0)]), "of the round that had to wait there was never a job"


@pytest.mark.ledger("P1-02", "P1-23")
async def test_a_constraint_that_is_met_leaves_nothing_behind(site: RunSite, ran: list[str]) -> None:
    text, name = named(CONCERT)
    await add_rule(
        site, name, PRE, FEW_SOLD, steer("suspend", "task"), {"action": "hold", "target": "task"}, task="show", true=FEW
    )
    run = await site.start(text, sold=900)
    assert (await site.result(run))["outcome"] == "completed"
    assert ran == ["sell", "show arena", "settle"]
    assert await incidents(site, run) == []


@pytest.mark.ledger("P1-02")
async def test_a_task_whose_rule_errs_waits_for_a_person(site: RunSite, ran: list[str]) -> None:
    text, name = named(CONCERT)
    await add_rule(
        site,
        name,
        PRE,
        "run.data.sold / run.data.none > 1",
        {"action": "notify", "text": "hm"},
        task="show",
        true={"run": {"data": {"sold": 9, "none": 1}}},
    )
    run = await site.start(text)
    found_incident = await incident(site, run, "held")
    assert "evaluation error" in found_incident["note"]
    assert ran == ["sell"]
    holder = f"incident:{found_incident['id']}"

    async def waits() -> bool:
        tasks = (await site.engine.state(run))["instances"]
        return any(task["id"] == "show" and holder in task.get("holders", ()) for task in tasks)

    await until(waits, "the task to wait")
    answer = await site.verb(run, VerbKind.CONTINUE, "show", holder=holder)
    assert answer.accepted
    assert (await site.result(run))["outcome"] == "completed"
    assert ran == ["sell", "show arena", "settle"]


@pytest.mark.ledger("P1-03")
async def test_a_task_does_not_end_before_its_post_constraint_is_seen_to(site: RunSite, ran: list[str]) -> None:
    text, name = named(CONCERT)
    worklet = await stored(site, TELL)
    await add_rule(
        site,
        name,
        POST,
        "task.data.exit_code == 0 && run.data.sold < 10",
        compensate(worklet),
        task="show",
        true={"task": {"data": {"exit_code": 0}}, "run": {"data": {"sold": 1}}},
    )
    site.hold_back = lambda claim: claim["name"] == "mail"
    run = await site.start(text, sold=5)
    await site.kept_some()
    assert ran == ["sell", "show arena"]
    assert (await site.tasks(run))["show"] == "running"
    await site.let_go()
    assert (await site.result(run))["outcome"] == "completed"
    assert ran == ["sell", "show arena", "mail", "settle"]
    assert (await incident(site, run, "complete"))["type"] == "task-post"
    again = await site.start(text, sold=500)
    assert (await site.result(again))["outcome"] == "completed"
    assert await incidents(site, again) == []


@pytest.mark.ledger("P1-01")
async def test_a_run_does_not_begin_before_its_pre_constraint_is_seen_to(site: RunSite, ran: list[str]) -> None:
    text, name = named(CONCERT)
    worklet = await stored(site, MID_VENUE)
    change = compensate(worklet, give={"sold": "${params.sold}"}, take={"venue": "venue"})
    await add_rule(site, name, ExceptionType.RUN_PRE, FEW_SOLD, change, true=FEW)
    site.hold_back = lambda claim: claim["name"] == "book"
    person = site.server.person("submitter", tenant=TENANT)
    version = await stored(site, text)
    asked = {"flow": version, "params": {"sold": 10}}
    answer = await person.post("/v1/runs", json=asked, headers={"idempotency-key": name})
    assert answer.status_code == 201, answer.text
    run = answer.json()["id"]
    await site.kept_some()
    assert ran == []
    assert (await site.engine.describe(run)).state == "suspended"
    again = await person.post("/v1/runs", json=asked, headers={"idempotency-key": name})
    assert again.json() == {"id": run, "created": False}
    await site.let_go()
    assert (await site.result(run))["outputs"] == {"venue": "club"}
    assert ran == ["book", "sell", "show club", "settle"]
    (fields,) = await incidents(site, run)
    assert (fields["type"], fields["state"]) == ("run-pre", "complete")


@pytest.mark.ledger("P1-04")
async def test_a_run_does_not_end_before_its_post_constraint_is_seen_to(site: RunSite, ran: list[str]) -> None:
    text, name = named(CONCERT)
    worklet = await stored(site, TELL)
    await add_rule(
        site,
        name,
        ExceptionType.RUN_POST,
        'run.data.outputs.venue == "arena"',
        compensate(worklet),
        true={"run": {"data": {"outputs": {"venue": "arena"}}}},
    )
    site.hold_back = lambda claim: claim["name"] == "mail"
    run = await site.start(text)
    await site.kept_some()
    assert ran == ["sell", "show arena", "settle"]
    assert (await site.engine.describe(run)).state == "suspended"
    await site.let_go()
    assert (await site.result(run)) == {"outcome": "completed", "outputs": {"venue": "arena"}, "reason": ""}
    assert ran[-1] == "mail"
    assert (await incident(site, run, "complete"))["type"] == "run-post"


@pytest.mark.ledger("P1-02", "P1-03")
async def test_scatters_in_shards_and_sub_flows_have_constraints_too(site: RunSite, ran: list[str]) -> None:
    worklet = await stored(site, TELL)
    for text, work in ((MANY, "part"), (OUTER, "work")):
        ran.clear()
        text, name = named(text)
        for kind in (PRE, POST):
            await add_rule(site, name, kind, "run.age >= 0.0", compensate(worklet), task="part")
        run = await site.start(text)
        assert (await site.result(run))["outcome"] == "completed"
        assert ran[0] == ran[-2] == "mail"
        assert ran[-1] == "last"
        assert set(ran[1:-2]) == {work}
        assert sorted(other_incident["type"] for other_incident in await incidents(site, run)) == [
            "task-post",
            "task-pre",
        ]


@pytest.mark.ledger("P1-01", "P1-18")
async def test_sub_runs_and_worklets_are_watched_themselves(site: RunSite, ran: list[str]) -> None:
    text, name = named(OUTER)
    worklet = await stored(site, TELL)
    await add_rule(
        site,
        f"{name}i",
        ExceptionType.RUN_PRE,
        "run.data.x == 1",
        compensate(worklet),
        true={"run": {"data": {"x": 1}}},
    )
    run = await site.start(text)
    assert (await site.result(run))["outcome"] == "completed"
    assert ran == ["mail", "work", "last"]
    (fields,) = await incidents(site, run_of(run, "part@1", 0))
    assert (fields["type"], fields["state"]) == ("run-pre", "complete")


async def test_without_such_rules_a_run_costs_one_event_more_and_one_for_each_task(
    site: RunSite, ran: list[str]
) -> None:
    text, _ = named(CONCERT)
    run = await site.start(text)
    assert (await site.result(run))["outcome"] == "completed"
    client = await site.engine.client()
    kinds = [event.event_type async for event in client.get_workflow_handle(run).fetch_history_events()]
    markers = [kind for kind in kinds if "MARKER" in str(kind) or kind == 25]
    assert len(markers) == 4, "each task is looked up in the compensation library"
    # How often the engine wakes the run is a matter of its speed; what the run does is not.
    done = [name for name in map(EventType.Name, kinds) if "WORKFLOW_TASK" not in name]
    assert len(done) <= 25, "three activities, three signals, three looks at the library and one at the end"


async def test_a_run_that_is_removed_while_its_task_waits_ends(site: RunSite, ran: list[str]) -> None:
    text, name = named(CONCERT)
    await add_rule(site, name, PRE, FEW_SOLD, {"action": "hold", "target": "task"}, task="show", true=FEW)
    run = await site.start(text, sold=1)
    await incident(site, run, "held")
    assert (await site.verb(run, VerbKind.REMOVE)).accepted
    assert (await site.ended(run)).state == "removed"
    assert ran == ["sell"]
