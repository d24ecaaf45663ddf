"""Questions to people in runs, on a real Temporal: asked, answered by who may, taken once, by default at the deadline, across a killed orchestrator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.live.run_site import TENANT, RunSite, run_site
from tests.unit.apps.server.asks import problem
from tests.unit.apps.server.processes import processes
from tests.unit.apps.server.running import until

pytestmark = pytest.mark.live

CHECKED = """
forestay: 1
name: calibration
params: {sample: s1}
tasks:
  measure: {command: [measure]}
  check:
    after: measure
    ask:
      title: Is ${params.sample} good?
      form:
        properties: {good: {type: boolean}, share: {type: number, default: 0.5}}
        required: [good]
      who: [owner, 'user:ben']
  publish: {command: [publish, '${tasks.check.outputs.share}'], when: tasks.check.outputs.good}
outputs: {good: '${tasks.check.outputs.good}', by: '${tasks.check.result.by}'}
"""
IN_TIME = """
forestay: 1
name: in-time
tasks:
  check:
    ask: {title: 'Continue?', form: {properties: {go: {type: boolean}}}, default: {go: false}}
    deadline: 1 s
outputs: {go: '${tasks.check.outputs.go}', how: '${tasks.check.result.outcome}'}
"""
PYTHON = """
from forestay.flows import ask, flow, job

@flow
async def checked():
    answer = await ask("check", "Good?", form={"properties": {"good": {"type": "boolean"}}}, who=["user:ben"])
    if answer.result["good"]:
        await job("publish", ["publish"])
    return answer.result
"""


@pytest.fixture(scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunSite]:
    async with run_site("sqlite", tmp_path_factory.mktemp("questions")) as running:
        yield running


def person(site: RunSite, name: str, role: str = "viewer") -> httpx.AsyncClient:
    return site.server.person(role, tenant=TENANT, subject=name)


async def question(site: RunSite, run: str) -> dict[str, Any]:
    """The question that a run asks."""

    async def asked() -> dict[str, Any] | None:
        await site.server.refresh()
        found = (await person(site, "ben").get("/v1/questions")).json()["questions"]
        return next((each for each in found if each["run"] == run), None)

    return await until(asked, "the question", 60)  # type: ignore[no-any-return]


async def test_the_answer_of_who_may_is_used_and_of_two_at_once_one_wins(site: RunSite) -> None:
    run = await site.start(CHECKED, owner="ada")
    asked = await question(site, run)
    assert (asked["title"], asked["flow"], asked["who"]) == ("Is s1 good?", "calibration", ["owner", "user:ben"])
    runs = person(site, "olga", "operator")

    async def asking() -> bool:
        found = (await runs.get("/v1/runs", params={"state": "asking"})).json()["runs"]
        return run in {each["id"] for each in found}

    await until(asking, "the run to be listed as asking", 30)
    (wait,) = (await runs.get(f"/v1/runs/{run}")).json()["waits"]
    assert (wait["task"], wait["who"]) == ("check", "owner, user:ben")
    assert wait["command"] == f"forestay inbox answer {asked['id']}"
    place = f"/v1/questions/{asked['id']}"
    problem(await runs.post(place, json={"answer": {"good": True}}), 403)
    answers = await asyncio.gather(
        person(site, "ada", "submitter").post(place, json={"answer": {"good": True, "share": 0.1}}),
        person(site, "ben").post(place, json={"answer": {"good": True, "share": 0.2}}),
    )
    assert sorted(answer.status_code for answer in answers) == [200, 409]
    (lost,) = [answer for answer in answers if answer.status_code == 409]
    (won,) = [answer.json()["answered_by"] for answer in answers if answer.status_code == 200]
    assert won in lost.json()["detail"]
    result = await site.result(run)
    assert result["outcome"] == "completed"
    assert result["outputs"] == {"good": True, "by": won}
    assert "publish" in site.ran
    closed = (await person(site, "ben").get(place)).json()
    assert (closed["state"], closed["answered_by"]) == ("answered", won)
    history = (await runs.get(f"/v1/runs/{run}/history")).json()["history"]
    assert any("a person is asked" in event["words"] for event in history)


async def test_the_default_is_taken_at_the_deadline_and_a_late_answer_is_told(site: RunSite) -> None:
    run = await site.start(IN_TIME)
    result = await site.result(run)
    assert result["outputs"] == {"go": False, "how": "default"}
    await site.server.refresh()
    (closed,) = [
        each
        for each in (await person(site, "ada").get("/v1/questions?state=closed")).json()["questions"]
        if each["run"] == run
    ]
    assert closed["state"] == "default"
    late = problem(await person(site, "ada").post(f"/v1/questions/{closed['id']}", json={"answer": {"go": True}}), 409)
    assert "default" in late["detail"]


async def test_a_cancelled_run_takes_its_question_back(site: RunSite) -> None:
    run = await site.start(CHECKED)
    asked = await question(site, run)
    await person(site, "olga", "operator").post(f"/v1/runs/{run}/verbs", json={"verb": "force-fail"})
    assert (await site.ended(run)).state == "failed"
    assert (await person(site, "ben").get(f"/v1/questions/{asked['id']}")).json()["state"] == "withdrawn"


async def test_a_question_outlives_the_orchestrator_that_asked_it(tmp_path: Path) -> None:
    async with run_site("sqlite", tmp_path, orchestrator=False) as site:
        known = site.domain.settings()
        settings: dict[str, Any] = {
            name: getattr(known, name) for name in ("temporal", "temporal_namespace", "task_queue", "history_limit")
        }
        async with processes(site.domain, tmp_path, **settings) as running:
            orchestrator = running._start("orchestrator")
            run = await site.start(CHECKED, owner="ada")
            asked = await question(site, run)
            orchestrator.kill()
            running._start("orchestrator")

            async def taken() -> bool:
                place = f"/v1/questions/{asked['id']}"
                answer = await person(site, "ben").post(place, json={"answer": {"good": True}})
                assert answer.status_code in (200, 503), answer.text
                return answer.status_code == 200

            await until(taken, "an orchestrator that takes the answer", 120)
            assert (await site.result(run))["outputs"] == {"good": True, "by": "ben"}


async def test_a_python_flow_awaits_an_answer(tmp_path: Path) -> None:
    (tmp_path / "checked.py").write_text(PYTHON)
    async with run_site("sqlite", tmp_path, flows=tmp_path) as site:
        run = await site.start_python(PYTHON, "checked")
        asked = await question(site, run)
        done = await person(site, "ben").post(f"/v1/questions/{asked['id']}", json={"answer": {"good": True}})
        assert done.status_code == 200, done.text
        assert (await site.result(run))["outputs"] == {"good": True}
        assert site.ran == ["publish"]
