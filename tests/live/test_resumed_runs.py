"""Runs that have ended and go on, over HTTP: real Temporal, real store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from tests.live.run_site import BAD, GOOD, TENANT, RunSite, run_site
from tests.live.test_runs import COMPENSATED, SCATTER, SUBFLOW
from tests.live.test_verbs import obeyed, under_way
from tests.unit.apps.server.asks import problem
from tests.unit.apps.server.running import until

from forestay.ports.flows.flow_engine import RunQuery

pytestmark = [pytest.mark.live, pytest.mark.finding("F-D3")]


@pytest.fixture(scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunSite]:
    async with run_site("sqlite", tmp_path_factory.mktemp("resumed")) as running:
        yield running


@pytest.fixture(autouse=True)
def _fresh(site: RunSite) -> None:
    site.ran.clear()
    site.fate = lambda _claim: GOOD
    site.hold_back = lambda _claim: False
    site.kept.clear()


async def resume(site: RunSite, run: str, who: str = "ada", **more: Any) -> httpx.Response:
    person = site.server.person("submitter", tenant=TENANT, subject=who)
    return await person.post(f"/v1/runs/{run}/resume", json=more)


async def resumed(site: RunSite, run: str, **more: Any) -> dict[str, Any]:
    site.ran.clear()
    site.fate = lambda _claim: GOOD
    answer = await resume(site, run, **more)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def failing(*names: str) -> Any:
    return lambda claim: BAD if claim["name"] in names else GOOD


async def failed_scatter(site: RunSite) -> str:
    site.fate = lambda claim: BAD if claim["name"] == "many" and claim["index"] == 3 else GOOD
    run = await site.start(SCATTER, n=8)
    assert (await site.ended(run)).state == "failed"
    return run


async def test_a_failed_run_runs_only_what_failed_and_what_comes_after(site: RunSite) -> None:
    run = await failed_scatter(site)
    before = await site.engine.describe(run)
    asked = await resumed(site, run, dry_run=True)
    expected = [
        {"task": "many", "elements": 1, "of": 8, "external": False},
        {"task": "last", "elements": None, "of": None, "external": False},
    ]
    assert asked == {"id": run, "resumed": False, "kept": [], "again": expected}
    assert (await site.engine.describe(run)).ended == before.ended, "asking starts nothing"
    assert (await resumed(site, run))["again"] == expected
    assert (await site.ended(run)).state == "completed"
    assert site.ran == ["many[3]", "last"]
    assert (await site.result(run))["outputs"] == {"well": 8}


async def test_it_is_listed_once_and_its_history_is_one(site: RunSite) -> None:
    run = await failed_scatter(site)
    started = (await site.engine.describe(run)).started
    await resumed(site, run)
    await site.ended(run)

    async def listed() -> list[str]:
        page = await site.engine.find(RunQuery(TENANT, name="scatter"), limit=1000)
        states = [found.state for found in page.runs if found.run == run]
        return states if "completed" in states else []

    assert await until(listed, "the run in the list") == ["completed"]
    assert (await site.engine.describe(run)).started == started
    viewer = site.server.person("viewer", tenant=TENANT)
    words, cursor = [], None
    while True:
        more = {"limit": 3} | ({"cursor": cursor} if cursor else {})
        page = (await viewer.get(f"/v1/runs/{run}/history", params=more)).json()
        words += [line["words"] for line in page["history"]]
        cursor = page["cursor"]
        if cursor is None:
            break
    assert words[0].startswith("ada started the run")
    ends = [place for place, text in enumerate(words) if text.startswith("The run ended")]
    assert len(ends) == 2, words
    assert ends[0] < words.index("The run was resumed") < ends[1]


async def test_a_cancelled_run_keeps_what_had_ended(site: RunSite) -> None:
    site.hold_back = lambda claim: claim["name"] == "many" and claim["index"] >= 5
    run = await site.start(SCATTER, n=8)

    async def done() -> bool:
        return len(site.ran) >= 5 and len(site.kept) == 3

    await under_way(site, "many")
    await until(done, "five elements to end")
    await obeyed(site, run, "remove")
    assert (await site.ended(run)).state == "removed"
    site.hold_back = lambda _claim: False
    await resumed(site, run)
    assert (await site.ended(run)).state == "completed"
    assert "last" in site.ran
    assert not {f"many[{n}]" for n in range(5)} & set(site.ran)


async def test_what_was_compensated_runs_again(site: RunSite) -> None:
    site.fate = failing("d")
    run = await site.start(COMPENSATED)
    assert (await site.ended(run)).state == "failed"
    assert (await resumed(site, run))["kept"] == []
    assert (await site.ended(run)).state == "completed"
    assert site.ran == ["a", "b", "c", "d"]


async def test_a_completed_run_starts_again_from_a_task_with_other_parameters(site: RunSite) -> None:
    run = await site.start(SCATTER, n=3)
    assert (await site.ended(run)).state == "completed"
    refusal = problem(await resume(site, run), 409)
    assert refusal["detail"] == "the run has completed; name the task to start from"
    await resumed(site, run, task="many", params={"n": 4})
    assert (await site.ended(run)).state == "completed"
    assert (await site.result(run))["outputs"] == {"well": 4}


async def test_sub_flows_that_completed_are_kept(site: RunSite) -> None:
    site.fate = failing("two")
    run = await site.start(SUBFLOW)
    assert (await site.ended(run)).state == "failed"
    page = await site.engine.find(RunQuery(TENANT, name="inner"), limit=1000)
    inner = next(found for found in page.runs if found.above == run)
    assert f"resume run {run}" in problem(await resume(site, inner.run), 409)["detail"]
    await resumed(site, run)
    assert (await site.ended(run)).state == "completed"
    assert (await site.result(run))["outputs"] == {"n": 7, "count": 3}


async def test_only_who_may_resumes_and_only_what_has_ended(site: RunSite) -> None:
    site.hold_back = lambda _claim: True
    run = await site.start(SCATTER, n=1)
    assert problem(await resume(site, run), 409)["detail"] == "the run has not ended"
    problem(await resume(site, run, who="eve"), 403)
    stranger = site.server.person("submitter", tenant="other", subject="ada")
    problem(await stranger.post(f"/v1/runs/{run}/resume", json={}), 404)
    await obeyed(site, run, "remove")
    await site.ended(run)
    problem(await resume(site, run, task="none"), 409)
    problem(await resume(site, run, params={"none": 1}), 409)
