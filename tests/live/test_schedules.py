"""Schedules on a real Temporal: kept per tenant, started once for each time, by who owns them, and not two runs at once unless that is wanted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from tests.live.run_site import TENANT, RunSite, run_site
from tests.unit.apps.server.asks import problem
from tests.unit.apps.server.running import until

from forestay.formats.flows.yaml_flow import read_flow_text
from forestay.services.flows.run_schedules import RunSchedules

pytestmark = pytest.mark.live

FLOW = """
forestay: 1
name: nightly
params: {day: null}
tasks: {work: {command: [work, "${params.day}"]}}
outputs: {day: "${params.day}"}
"""
EVERY_SECOND = "* * * * * * *"
"""With seconds and years, as Temporal reads seven fields."""
NEVER = "0 0 1 1 *"
BODY: dict[str, Any] = {"cron": [NEVER], "params": {"day": "${scheduled.date}"}, "time_zone": "Europe/Berlin"}


@pytest.fixture(scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunSite]:
    async with run_site("sqlite", tmp_path_factory.mktemp("schedules"), look_after=1.0) as running:
        yield running


@pytest.fixture
async def flow(site: RunSite) -> str:
    read = read_flow_text(FLOW)
    assert read.flow is not None, read.problems
    return await site.server.services.components.flows.put(read.flow, tenant=TENANT)


def person(site: RunSite, name: str, role: str = "submitter", tenant: str = TENANT) -> httpx.AsyncClient:
    return site.server.person(role, tenant=tenant, subject=name)


async def runs_of(site: RunSite, name: str, least: int) -> list[dict[str, Any]]:
    """The runs that a schedule started, once there are so many."""

    async def found() -> list[dict[str, Any]] | None:
        runs = (await person(site, "ada").get("/v1/runs")).json()["runs"]
        mine = [run for run in runs if run["schedule"] == name]
        return mine if len(mine) >= least else None

    return await until(found, f"{least} runs of {name}", 30)  # type: ignore[no-any-return]


async def test_a_schedule_is_put_steered_and_deleted_by_who_may(site: RunSite, flow: str) -> None:
    ada, bob, olga = person(site, "ada"), person(site, "bob"), person(site, "olga", "operator")
    made = await ada.put("/v1/schedules/steered", json=BODY | {"flow": flow, "overlap": "allow", "catch_up": 3600})
    assert made.status_code == 200, made.text
    schedule = made.json()
    assert (schedule["owner"], schedule["flow_name"], schedule["overlap"]) == ("ada", "nightly", "allow")
    assert (schedule["cron"], schedule["time_zone"], schedule["catch_up"]) == ([NEVER], "Europe/Berlin", 3600)
    assert schedule["next"][0].endswith("-12-31T23:00:00.000Z"), "midnight in Berlin"
    again = await ada.put("/v1/schedules/steered", json=BODY | {"flow": flow, "cron": ["0 2 * * *"]})
    assert again.json()["cron"] == ["0 2 * * *"]
    problem(await bob.put("/v1/schedules/steered", json=BODY | {"flow": flow}), 403)
    for act in ("pause", "resume", "run"):
        problem(await bob.post(f"/v1/schedules/steered/{act}", json={}), 403)
    taken = await olga.put("/v1/schedules/steered", json=BODY | {"flow": flow})
    assert taken.json()["owner"] == "ada", "its owner stays"
    paused = (await olga.post("/v1/schedules/steered/pause", json={"reason": "the detector is off"})).json()
    assert (paused["paused"], paused["note"], paused["next"]) == (True, "the detector is off", [])
    assert (await ada.post("/v1/schedules/steered/resume", json={})).json()["paused"] is False
    stranger = person(site, "ada", "administrator", tenant="elsewhere")
    assert (await stranger.get("/v1/schedules")).json()["schedules"] == []
    problem(await stranger.get("/v1/schedules/steered"), 404)
    problem(await stranger.delete("/v1/schedules/steered"), 404)

    async def listed() -> bool:
        names = [schedule["name"] for schedule in (await bob.get("/v1/schedules")).json()["schedules"]]
        return "steered" in names

    await until(listed, "the schedule in the list", 20)
    problem(await bob.delete("/v1/schedules/steered"), 403)
    assert (await ada.delete("/v1/schedules/steered")).status_code == 200
    problem(await ada.get("/v1/schedules/steered"), 404)


async def test_what_is_wrong_with_a_schedule_is_said(site: RunSite, flow: str) -> None:
    ada = person(site, "ada")
    for change, words in (
        ({"cron": ["often"]}, "cron[0]: expected minute"),
        ({"cron": ["99 * * * *"]}, ""),
        ({"time_zone": "Mars/Olympus"}, "there is no such time zone"),
        ({"catch_up": 1}, "catch_up"),
        ({"params": {}}, "missing: day"),
        ({"params": {"day": "${run}"}}, "only ${scheduled.time}"),
    ):
        refused = problem(await ada.put("/v1/schedules/wrong", json=BODY | {"flow": flow} | change), 422)
        assert words in refused["detail"]
    problem(await ada.put("/v1/schedules/wrong", json=BODY | {"flow": "f" * 64}), 404)
    problem(await ada.put("/v1/schedules/9wrong", json=BODY | {"flow": flow}), 422)


async def test_each_time_starts_one_run_of_its_owner_with_its_date_and_says_so(site: RunSite, flow: str) -> None:
    ada = person(site, "ada")
    body = BODY | {"flow": flow, "cron": [EVERY_SECOND]}
    assert (await ada.put("/v1/schedules/often", json=body)).status_code == 200
    runs = await runs_of(site, "often", 2)
    await ada.post("/v1/schedules/often/pause", json={})
    assert {run["owner"] for run in runs} == {"ada"}
    shown = (await ada.get("/v1/schedules/often")).json()
    assert {run["id"] for run in runs} <= {started["run"] for started in shown["recent"]}
    result = await site.result(runs[0]["id"])
    planned = next(started["at"] for started in shown["recent"] if started["run"] == runs[0]["id"])
    assert result["outcome"] == "completed"
    assert result["outputs"]["day"][:8] == planned[:8]
    details = (await ada.get(f"/v1/runs/{runs[0]['id']}")).json()
    assert details["schedule"] == "often"
    # The same start asked for twice, as after a killed orchestrator, is one run.
    schedules: RunSchedules = site.server.services.components.schedules()
    stored = await schedules.kept.get_schedule(TENANT, "often")
    again = await schedules.start(TENANT, "ada", stored.schedule, at=stored.recent[0], starter="nobody")
    assert again == shown["recent"][0]["run"]
    await ada.delete("/v1/schedules/often")


async def test_a_start_is_left_out_while_the_last_run_has_not_ended(site: RunSite, flow: str) -> None:
    ada = person(site, "ada")
    site.hold_back = lambda _claim: True
    body = BODY | {"flow": flow, "cron": [EVERY_SECOND]}
    await ada.put("/v1/schedules/slow", json=body)

    async def skipped() -> bool:
        return int((await ada.get("/v1/schedules/slow")).json()["skipped"]) >= 2

    await until(skipped, "starts to be left out", 30)
    (first,) = await runs_of(site, "slow", 1)
    # A run that is ended from outside tells nobody, and must not keep the schedule for ever.
    client = await site.engine.client()
    await client.get_workflow_handle(first["id"]).terminate()
    assert len(await runs_of(site, "slow", 2)) >= 2
    await ada.delete("/v1/schedules/slow")
    site.hold_back = lambda _claim: False
    await site.let_go()
