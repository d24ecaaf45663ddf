"""Scatters that follow one another element by element: real Temporal, real store, looked after by the run itself and by shards."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any
from unittest.mock import patch

import pytest
from tests.live.run_site import BAD, TENANT, RunSite, run_site
from tests.unit.apps.server.running import until
from tests.unit.apps.server.scripted_pilot import own_manifest

from forestay.domain.flows.events import VerbKind
from forestay.domain.flows.execution import rounds
from forestay.domain.flows.scatter import fan_out

pytestmark = [pytest.mark.live, pytest.mark.finding("F-D3")]

LINE = """
forestay: 1
name: line
params: {n: 7}
tasks:
  a: {command: [make], scatter: {n: {range: [0, "${params.n}"]}}, outputs: {out: out.txt}}
  b: {command: [make, "${x}"], scatter: {x: "${tasks.a.outputs.out}"}, outputs: {out: out.txt}}
  c: {command: [make, "${x}"], scatter: {x: "${tasks.b.outputs.out}"}, outputs: {out: out.txt}}
  all: {command: [gather, "${tasks.c.outputs.out}"]}
outputs: {well: "${tasks.c.well}"}
"""
OTHERS = [f"{name}[{index}]" for name in "abc" for index in range(7) if index != 3]


@pytest.fixture(scope="module", params=["by the run", "by shards"])
async def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunSite]:
    direct, shard = (2, 3) if request.param == "by shards" else (500, 5000)
    with patch.multiple(rounds, DIRECT_JOBS=direct, SHARD_JOBS=shard), patch.object(fan_out, "SHARD_JOBS", shard):
        async with run_site("sqlite", tmp_path_factory.mktemp("lines"), relay_patience=0.2) as running:
            yield running


@pytest.fixture(autouse=True)
def _fresh(site: RunSite) -> None:
    site.ran.clear()
    site.fate = good
    site.hold_back = lambda _claim: False
    site.kept.clear()


def good(claim: Mapping[str, Any]) -> dict[str, Any]:
    return {"manifest": own_manifest(dict(claim))}


async def other_lines(site: RunSite) -> None:
    async def through() -> bool:
        return set(OTHERS) <= set(site.ran)

    await until(through, "the other lines to come to their end", 60)


async def test_a_slow_element_holds_up_no_other_line(site: RunSite) -> None:
    site.hold_back = lambda claim: claim["name"] == "a" and claim["index"] == 3
    run = await site.start(LINE)
    await other_lines(site)
    assert sorted(site.ran) == sorted(OTHERS)
    site.hold_back = lambda _claim: False
    await site.let_go()
    assert (await site.result(run))["outputs"] == {"well": 7}
    assert sorted(site.ran) == sorted([*OTHERS, "b[3]", "c[3]", "all"])
    person = site.server.person("viewer", tenant=TENANT)
    jobs = {
        (job["name"], job["index"]): job for job in (await person.get("/v1/jobs", params={"run": run})).json()["jobs"]
    }
    for before, name in (("a", "b"), ("b", "c")):
        for index in range(7):
            assert f"/{jobs[before, index]['id']}/" in jobs[name, index]["parameters"]["x"], "its own input"


async def test_a_failed_element_holds_only_its_own_line_and_is_resumed(site: RunSite) -> None:
    site.fate = lambda claim: BAD if claim["name"] == "a" and claim["index"] == 3 else good(claim)
    run = await site.start(LINE)
    assert (await site.ended(run)).state == "failed"
    assert sorted(site.ran) == sorted([*OTHERS, "a[3]"])
    site.ran.clear()
    site.fate = good
    person = site.server.person("submitter", tenant=TENANT, subject="ada")
    answer = (await person.post(f"/v1/runs/{run}/resume", json={})).json()
    assert [(again["task"], again["elements"], again["of"]) for again in answer["again"]] == [
        ("a", 1, 7),
        ("b", 1, 7),
        ("c", 1, 7),
        ("all", None, None),
    ]
    assert (await site.result(run))["outputs"] == {"well": 7}
    assert sorted(site.ran) == ["a[3]", "all", "b[3]", "c[3]"]


async def test_a_held_task_goes_on_with_the_line_that_failed(site: RunSite) -> None:
    site.fate = lambda claim: BAD if claim["name"] == "a" and claim["index"] == 3 else good(claim)
    run = await site.start(LINE.replace("{command: [make], ", "{command: [make], when_failed: hold, "))
    await site.task_is(run, "a", "faulted")
    await other_lines(site)
    site.ran.clear()
    site.fate = good
    assert (await site.verb(run, VerbKind.REDO, "a", only_failed=True)).accepted
    assert (await site.result(run))["outputs"] == {"well": 7}
    assert sorted(site.ran) == ["a[3]", "all", "b[3]", "c[3]"]
