"""Late-bound tasks: the flow in a worklet's place is chosen when the task begins."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from tests.live.run_site import GOOD, TENANT, RunSite, run_site

from forestay.domain.flows.events import VerbKind

pytestmark = pytest.mark.live

PLACE = """
forestay: 1
name: late
params: {n: 1}
tasks:
  before: {command: [echo]}
  inspect: {worklet: PLACE, params: {n: "${params.n}"}, after: [before], when_failed: hold}
  after: {command: [echo, "${tasks.inspect.outputs.seen}"], after: [inspect]}
outputs: {seen: "${tasks.inspect.outputs.seen}"}
"""
BOUND = """
forestay: 1
name: NAME
params: {n: 0, factor: 1}
tasks: {NAME: {command: [look, "${params.n}", "${params.factor}"]}}
outputs: {seen: "NAME ${params.n} ${params.factor}"}
"""


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
async def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunSite]:
    async with run_site(request.param, tmp_path_factory.mktemp("worklets")) as running:
        yield running


@pytest.fixture
def place(site: RunSite) -> str:
    site.ran.clear()
    site.fate = lambda _claim: GOOD
    return f"place-{uuid4().hex[:8]}"


async def stored(site: RunSite, name: str) -> str:
    person = site.server.person("submitter", tenant=TENANT)
    answer = await person.post("/v1/flows", json={"text": BOUND.replace("NAME", name)})
    assert answer.status_code == 201, answer.text
    version: str = answer.json()["version"]
    return version


async def test_the_flow_that_is_bound_when_the_task_begins_is_run(site: RunSite, place: str) -> None:
    operator = site.server.person("operator", tenant=TENANT)
    quick, thorough = await stored(site, "quick"), await stored(site, "thorough")
    assert (await operator.put(f"/v1/late-bound-tasks/{place}", json={"flow": quick})).status_code == 200
    site.hold_back = lambda claim: claim["name"] == "before"
    run = await site.start(PLACE.replace("PLACE", place), n=5)
    await site.task_is(run, "before", "running")
    # Bound anew while the run runs, before its task has begun: that is what it runs.
    bound = await operator.put(f"/v1/late-bound-tasks/{place}", json={"flow": thorough, "params": {"factor": 3}})
    assert (bound.json()["flow"], bound.json()["by"]) == (thorough, "ada")
    await site.kept_some()
    site.hold_back = lambda _claim: False
    await site.let_go()
    assert (await site.result(run))["outputs"] == {"seen": "thorough 5 3"}
    assert site.ran == ["thorough", "after"]
    listed = (await operator.get("/v1/late-bound-tasks")).json()["late_bound_tasks"]
    assert [entry["flow"] for entry in listed if entry["task"] == place] == [thorough]


async def test_a_place_without_a_flow_waits_for_someone_to_name_one(site: RunSite, place: str) -> None:
    run = await site.start(PLACE.replace("PLACE", place), n=2)
    await site.task_is(run, "inspect", "faulted")
    operator = site.server.person("operator", tenant=TENANT)
    quick, thorough = await stored(site, "quick"), await stored(site, "thorough")
    assert (await operator.put(f"/v1/late-bound-tasks/{place}", json={"flow": quick})).status_code == 200
    assert (await site.verb(run, VerbKind.REDO, "inspect")).accepted
    assert (await site.result(run))["outputs"] == {"seen": "quick 2 1"}
    assert (await operator.delete(f"/v1/late-bound-tasks/{place}")).json()["flow"] == quick
    assert (await operator.delete(f"/v1/late-bound-tasks/{place}")).status_code == 404
    run = await site.start(PLACE.replace("PLACE", place), n=3)
    await site.task_is(run, "inspect", "faulted")
    assert (await site.verb(run, VerbKind.REPLACE, "inspect", changes={"flow": thorough})).accepted
    assert (await site.result(run))["outputs"] == {"seen": "thorough 3 1"}, "for this run alone"


async def test_a_flow_names_what_is_run_where_nobody_answers(site: RunSite, place: str) -> None:
    inner = "\n".join(
        f"    {line}" for line in BOUND.replace("NAME", "usual").replace("forestay: 1\n", "").splitlines()
    )
    text = PLACE.replace("worklet: PLACE", f"worklet: {place}, default: usual") + f"flows:\n  usual:\n{inner}\n"
    assert (await site.result(await site.start(text, n=4)))["outputs"] == {"seen": "usual 4 1"}
    operator = site.server.person("operator", tenant=TENANT)
    assert (
        await operator.put(f"/v1/late-bound-tasks/{place}", json={"flow": await stored(site, "quick")})
    ).status_code == 200
    assert (await site.result(await site.start(text, n=4)))["outputs"] == {"seen": "quick 4 1"}


async def test_who_may_bind_and_what(site: RunSite, place: str) -> None:
    quick = await stored(site, "quick")
    submitter = site.server.person("submitter", tenant=TENANT)
    assert (await submitter.put(f"/v1/late-bound-tasks/{place}", json={"flow": quick})).status_code == 403
    operator = site.server.person("operator", tenant=TENANT)
    assert (await operator.put(f"/v1/late-bound-tasks/{place}", json={"flow": "0" * 64})).status_code == 404
    wrong = await operator.put(f"/v1/late-bound-tasks/{place}", json={"flow": quick, "params": {"m": 1}})
    assert (wrong.status_code, "no parameter m" in wrong.json()["detail"]) == (400, True)
    assert (await operator.put("/v1/late-bound-tasks/a b", json={"flow": quick})).status_code == 422
    stranger = site.server.person("operator", tenant="another")
    assert (await stranger.put(f"/v1/late-bound-tasks/{place}", json={"flow": quick})).status_code == 404, (
        "not its flow"
    )
    assert (await stranger.get("/v1/late-bound-tasks")).json()["late_bound_tasks"] == []
