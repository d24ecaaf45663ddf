"""What is said of all runs of a flow at once: real Temporal, every real store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.live.run_site import GOOD, TENANT, RunSite, run_site
from tests.live.test_runs import CHAIN, DIAMOND, named
from tests.live.test_verbs import DEEP, jobs, obeyed, under_way
from tests.unit.apps.server.asks import problem
from tests.unit.apps.server.running import until

from forestay.domain.flows.execution.run_names import job_of, run_of
from forestay.services.flows.flow_suspensions import KNOWN_AFTER

pytestmark = pytest.mark.live


@pytest.fixture(scope="module", params=["sqlite", "postgresql", "opensearch"])
async def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunSite]:
    async with run_site(request.param, tmp_path_factory.mktemp("suspensions")) as running:
        yield running


@pytest.fixture(autouse=True)
def _fresh(site: RunSite) -> None:
    site.ran.clear()
    site.fate = lambda _claim: GOOD
    site.hold_back = lambda _claim: False
    site.kept.clear()


async def stored(site: RunSite, text: str) -> str:
    person = site.server.person("submitter", tenant=TENANT)
    version: str = (await person.post("/v1/flows", json={"text": text})).json()["version"]
    return version


async def say_all(site: RunSite, version: str, verb: str, **more: Any) -> Any:
    """A verb for all runs of a flow."""
    operator = site.server.person("operator", tenant=TENANT, subject="olga")
    answer = await operator.post(f"/v1/flows/{version}/verbs", json={"verb": verb} | more)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def passed_on(site: RunSite, version: str) -> None:
    viewer = site.server.person("viewer", tenant=TENANT)

    async def there() -> bool:
        return not (await viewer.get(f"/v1/flows/{version}")).json()["verbs"]

    await until(there, "every run to be told")


async def test_all_runs_are_suspended_and_continued_with_those_that_start_later(site: RunSite) -> None:
    text = CHAIN.replace("name: chain", "name: suspended-all")
    version = await stored(site, text)
    site.hold_back = named("first")
    runs = [await site.start(text) for _ in range(3)]
    await until(_kept(site, 3), "the first jobs to run")
    suspension = await say_all(site, version, "suspend", holder="incident-3:1")
    assert suspension["holders"] == ["incident-3:1"]
    site.hold_back = lambda _claim: False
    await site.let_go()
    runs.append(await site.start(text))
    for run in runs[:3]:
        await site.task_is(run, "second", "running")
    other = await site.start(DIAMOND)  # of another flow: it runs
    await site.ended(other)
    assert sorted(site.ran) == ["bottom", "left", "right", "top"]
    viewer = site.server.person("viewer", tenant=TENANT)
    assert (await viewer.get(f"/v1/runs/{runs[0]}")).json()["flow_holders"] == ["incident-3:1"]
    operator = site.server.person("operator", tenant=TENANT)
    assert (await operator.post(f"/v1/flows/{version}/suspend")).json()["holders"] == ["ada", "incident-3:1"]
    await say_all(site, version, "continue", holder="incident-3:1")
    assert (await operator.post(f"/v1/flows/{version}/continue")).json() == {"holders": [], "verbs": []}
    for run in runs:
        assert (await site.ended(run)).state == "completed"


async def test_sub_runs_do_not_escape(site: RunSite) -> None:
    """A suspension of the outermost flow holds the jobs of the runs inside of its runs too."""
    text = DEEP.replace("name: outermost", "name: suspended-above")
    version = await stored(site, text)
    site.hold_back = named("work")
    run = await site.start(text)
    await under_way(site, "work")
    await say_all(site, version, "suspend")
    site.hold_back = lambda _claim: False
    await site.let_go()
    inner = run_of(run_of(run, "outer@1", 0), "inner@1", 0)
    await site.task_is(inner, "more", "running")
    other = await site.start(DIAMOND)
    await site.ended(other)
    assert "more" not in site.ran
    await say_all(site, version, "continue")
    assert (await site.ended(run)).state == "completed"
    assert site.ran[-2:] == ["more", "last"]


async def test_a_job_that_is_made_behind_a_closed_suspension_waits_until_every_server_knows(site: RunSite) -> None:
    """A server whose copy of the suspensions is old must not give it away: the job itself says from when on it may be had."""
    text = CHAIN.replace("name: chain", "name: made-behind")
    version = await stored(site, text)
    await say_all(site, version, "suspend")
    run = await site.start(text)
    job = job_of(run, "first@1", 0)
    store = site.server.services.components.store

    async def made() -> Any:
        return (await store.get([job])).get(job)

    document = (await until(made, "the job to be made")).document
    assert document.not_before >= document.created
    assert document.not_before - KNOWN_AFTER <= document.created
    await say_all(site, version, "continue")
    assert (await site.ended(run)).state == "completed"


async def test_all_runs_are_removed_and_later_ones_run(site: RunSite) -> None:
    text = CHAIN.replace("name: chain", "name: removed-all")
    version = await stored(site, text)
    site.hold_back = named("first")
    runs = [await site.start(text) for _ in range(4)]
    await until(_kept(site, 4), "the first jobs to run")
    value = await say_all(site, version, "remove", id="remove-1", reason="the calibration was wrong")
    assert value["verbs"] == [{"id": "remove-1", "verb": "remove", "task": ""}]
    site.hold_back = lambda _claim: False
    later = await site.start(text)
    for run in runs:
        assert (await site.ended(run)).state == "removed"
        assert await jobs(site, run) == [("first", "cancelled")]
    await passed_on(site, version)
    assert (await say_all(site, version, "remove", id="remove-1"))["verbs"] == [], "a repeat changes nothing"
    assert (await site.ended(later)).state == "completed"


async def test_every_verb_for_all_runs(site: RunSite) -> None:
    expected: list[tuple[str, str, str, list[str]]] = [
        ("force-fail", "", "failed", []),
        ("force-complete", "", "forced_complete", []),
        ("restart", "", "completed", ["first", "second"]),
        ("skip", "first", "completed", ["second"]),
        ("redo", "first", "completed", ["first", "second"]),
        ("force-complete", "first", "completed", ["second"]),
        ("force-fail", "first", "completed", ["second"]),
        ("replace", "first", "completed", ["first", "second"]),
    ]
    site.hold_back = lambda claim: claim["name"].startswith("first")
    versions: list[str] = []
    runs: list[list[str]] = []
    for number in range(len(expected)):
        text = CHAIN.replace("first", f"first-{number}").replace("second", f"second-{number}")
        versions.append(await stored(site, text))
        runs.append([await site.start(text) for _ in range(2)])
    await until(_kept(site, 2 * len(expected)), "the first jobs to run")
    site.hold_back = lambda _claim: False
    for number, (verb, task, _, _) in enumerate(expected):
        changes = {"command": ["echo", "anew"]} if verb == "replace" else {}
        await say_all(site, versions[number], verb, task=task and f"{task}-{number}", changes=changes)
    for number, (verb, task, state, ran) in enumerate(expected):
        for run in runs[number]:
            assert (await site.ended(run)).state == state, (verb, task)
        own = sorted(name for name in site.ran if name.endswith(f"-{number}"))
        assert own == sorted(f"{name}-{number}" for name in ran * 2), (verb, task)


async def test_an_exception_is_raised_in_all_runs(site: RunSite) -> None:
    text = CHAIN.replace("name: chain", "name: raised-all")
    version = await stored(site, text)
    site.hold_back = named("first")
    runs = [await site.start(text) for _ in range(2)]
    await until(_kept(site, 2), "the first jobs to run")
    await say_all(site, version, "raise", id="raise-1", reason="a storm", changes={"type": "run-external"})
    store = site.server.services.components.store
    for run in runs:

        async def told(run: str = run) -> Any:
            return await store.get_record(f"run:{run}:verb:raise-1")

        assert (await until(told, "the exception to be recorded")).body["kind"] == "run-external"
    await site.let_go()
    for run in runs:
        assert (await site.ended(run)).state == "completed"


async def test_a_removed_run_removes_its_sub_runs(site: RunSite) -> None:
    site.hold_back = named("work")
    top = await site.start(DEEP)
    await under_way(site, "work")
    await obeyed(site, top, "remove")
    assert (await site.ended(top)).state == "removed"
    inner = run_of(run_of(top, "outer@1", 0), "inner@1", 0)
    assert (await site.ended(inner)).state == "removed"
    assert await jobs(site, inner) == [("work", "cancelled")]


async def test_only_operators_steer_all_runs(site: RunSite) -> None:
    version = await stored(site, CHAIN)
    submitter = site.server.person("submitter", tenant=TENANT)
    problem(await submitter.post(f"/v1/flows/{version}/verbs", json={"verb": "remove"}), 403)
    stranger = site.server.person("operator", tenant="another")
    problem(await stranger.post(f"/v1/flows/{version}/verbs", json={"verb": "remove"}), 404)


def _kept(site: RunSite, count: int) -> Any:
    async def there() -> bool:
        return len(site.kept) >= count

    return there
