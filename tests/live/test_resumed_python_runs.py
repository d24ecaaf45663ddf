"""Runs of Python flows that have ended and go on, over HTTP: real Temporal, real store, and results in real files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.live.run_site import BAD, RunSite, run_site
from tests.live.test_resumed_runs import failing, resume, resumed
from tests.live.test_verbs import obeyed
from tests.unit.apps.server.asks import problem
from tests.unit.apps.server.scripted_pilot import own_manifest

pytestmark = [pytest.mark.live, pytest.mark.finding("F-D3")]

SOURCE = '''
from forestay.flows import checkpoint, flow, gather, job, restored, scatter

@flow
async def fit(samples: int = 3):
    """Prepare, fit every sample in its own branch, then put the results together."""
    grid = await job("grid", ["grid"], result="r.json", outputs={"file": "grid.bin"})

    async def one(number):
        raw = await job("raw", ["raw", str(number), grid.outputs["file"]], result="r.json")
        return await job("fit", ["fit", str(number), str(raw.result["value"])], result="r.json")

    fits = await gather(one(number) for number in range(samples))
    many = await scatter("many", ["many", "${n}"], {"n": range(4)}, result="r.json")
    last = await job("last", ["last"], result="r.json")
    return {
        "grid": grid.result["value"],
        "fits": [each.result["value"] for each in fits],
        "many": [each["value"] for each in many.results],
        "last": last.result["value"],
    }

@flow
async def long(rounds: int):
    at = restored({"round": 0})
    while at["round"] < rounds:
        await job("step", ["x"])
        at = {"round": at["round"] + 1}
        await checkpoint(at)
    return at

@flow
async def wrong():
    await job("step", ["x"])
    raise ValueError("a wrong line")
'''


@dataclass
class Files:
    """A site whose jobs leave results: each its name, and how often a job of that name has run."""

    site: RunSite
    folder: Path

    def well(self, claim: Mapping[str, Any]) -> dict[str, Any]:
        names = own_manifest(dict(claim))
        place = self.folder / Path(names["path"]).relative_to("/out")
        place.parent.mkdir(parents=True)
        name = claim["name"] if claim["index"] is None else f"{claim['name']}[{claim['index']}]"
        result = json.dumps({"value": f"{name}:{self.site.ran.count(name)}"})
        (place.parent / "r.json").write_text(result)
        (place.parent / "grid.bin").touch()
        digests = {"r.json": hashlib.sha256(result.encode()).hexdigest(), "grid.bin": hashlib.sha256().hexdigest()}
        files = [{"path": path, "sha256": digest, "bytes": 2} for path, digest in digests.items()]
        place.write_text(json.dumps({"files": files}))
        return {"manifest": names | {"path": str(place), "sha256": hashlib.sha256(place.read_bytes()).hexdigest()}}

    def failing(self, *names: str) -> None:
        self.site.fate = lambda claim: BAD if claim["name"] in names else self.well(claim)

    async def resumed(self, run: str, **more: Any) -> dict[str, Any]:
        body = await resumed(self.site, run, dry_run=True, **more)
        self.site.fate = self.well
        answer = await resume(self.site, run, **more)
        assert answer.status_code == 200, answer.text
        assert answer.json() == body | {"resumed": True}
        return body


@asynccontextmanager
async def files(folder: Path, **settings: Any) -> AsyncIterator[Files]:
    outputs = folder / "outputs"
    outputs.mkdir()
    async with run_site("sqlite", folder, flows=folder, outputs=(outputs,), **settings) as site:
        yield Files(site, outputs)


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Files]:
    async with files(tmp_path_factory.mktemp("resumed")) as running:
        yield running


@pytest.fixture
def there(shared: Files) -> Files:
    shared.site.ran.clear()
    shared.site.hold_back = lambda _claim: False
    shared.site.kept.clear()
    shared.site.fate = shared.well
    return shared


async def test_results_are_kept_and_only_what_failed_runs(there: Files) -> None:
    there.site.fate = lambda claim: BAD if claim["name"] == "many" and claim["index"] == 2 else there.well(claim)
    run = await there.site.start_python(SOURCE, "fit")
    assert (await there.site.ended(run)).state == "failed"
    body = await there.resumed(run)
    assert body["again"] == [{"task": "many", "elements": 1, "of": 4, "external": False}]
    result = await there.site.result(run)
    assert there.site.ran == ["many[2]", "last"]
    assert result["outcome"] == "completed"
    assert result["outputs"]["grid"] == "grid:1"
    assert sorted(result["outputs"]["fits"]) == ["fit-2:1", "fit-3:1", "fit:1"]
    assert [value.partition(":")[0] for value in result["outputs"]["many"]] == [f"many[{n}]" for n in range(4)]


async def test_a_branch_that_failed_does_not_undo_the_others(there: Files) -> None:
    there.failing("raw-2")
    run = await there.site.start_python(SOURCE, "fit")
    assert (await there.site.ended(run)).state == "failed"
    body = await there.resumed(run)
    assert [again["task"] for again in body["again"]] == ["raw-2"]
    assert (await there.site.result(run))["outcome"] == "completed"
    assert there.site.ran[:2] == ["raw-2", "fit-3"]
    assert len(there.site.ran) == 7


async def test_a_cancelled_run_keeps_what_had_ended(there: Files) -> None:
    there.site.hold_back = lambda claim: claim["name"] == "last"
    run = await there.site.start_python(SOURCE, "fit")
    await there.site.task_is(run, "last", "running")
    await there.site.kept_some()
    await obeyed(there.site, run, "remove")
    assert (await there.site.ended(run)).state == "removed"
    there.site.hold_back = lambda _claim: False
    await there.resumed(run)
    assert (await there.site.result(run))["outcome"] == "completed"
    assert there.site.ran == ["last"]


async def test_a_result_that_is_gone_is_said_and_its_job_runs_next_time(there: Files) -> None:
    there.failing("last")
    run = await there.site.start_python(SOURCE, "fit", samples=1)
    await there.site.ended(run)
    for place in there.folder.rglob("r.json"):
        if "grid:" in place.read_text():
            place.unlink()
    await there.resumed(run)
    end = await there.site.result(run)
    assert end["outcome"] == "failed"
    assert end["reason"].endswith("grid: its result can no longer be read")
    assert there.site.ran == []
    await there.resumed(run)
    assert (await there.site.result(run))["outcome"] == "completed"
    assert "grid" in there.site.ran


async def test_it_is_refused_when_nothing_would_be_different(there: Files) -> None:
    run = await there.site.start_python(SOURCE, "wrong")
    await there.site.ended(run)
    refused = problem(await resume(there.site, run), 409)
    assert "would fail again in the same way" in refused["detail"]
    stranger = there.site.server.person("submitter", tenant="other", subject="ada")
    problem(await stranger.post(f"/v1/runs/{run}/resume", json={}), 404)


async def test_a_long_loop_goes_on_where_it_was_last_restarted(tmp_path: Path) -> None:
    async with files(tmp_path, history_limit=30) as short:
        short.site.fate = failing("step-9")
        run = await short.site.start_python(SOURCE, "long", rounds=12)
        assert (await short.site.ended(run)).state == "failed"
        executions = await short.site.runs(run)
        assert executions > 1
        body = await short.resumed(run)
        assert "step" not in body["kept"]
        assert [again["task"] for again in body["again"]] == ["step-9"]
        assert (await short.site.result(run))["outputs"] == {"round": 12}
        assert short.site.ran == ["step-9", "step-10", "step-11", "step-12"]
        assert await short.site.runs(run) > executions
