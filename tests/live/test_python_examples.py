"""The Python flows among the examples, from the operator's folder, with a real pilot that runs their commands."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.live.run_site import TENANT, RunSite, run_site
from tests.unit.apps.server.processes import Started, processes

pytestmark = pytest.mark.live
EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclass
class Site:
    site: RunSite
    person: httpx.AsyncClient

    async def run(self, flow: str, **params: object) -> dict[str, Any]:
        """Start a flow by its name and give the whole run when it has ended."""
        started = await self.person.post("/v1/runs", json={"flow": flow, "params": params})
        assert started.status_code == 201, started.text
        run = started.json()["id"]
        await self.site.ended(run, patience=120)
        whole: dict[str, Any] = (await self.person.get(f"/v1/runs/{run}")).json()
        return whole


@pytest.fixture(scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("examples")
    outputs = (folder / "outputs",)
    async with (
        run_site("sqlite", folder, pilots=0, flows=EXAMPLES, outputs=outputs, history_limit=40) as running,
        processes(running.domain, folder) as started,
    ):
        here = Started(process=None, url=running.server.url)  # type: ignore[arg-type]  # it runs in this process
        started.pilot(TENANT, here, slots=2)
        yield Site(running, running.server.person("submitter", tenant=TENANT))


async def test_the_examples_are_offered_by_name(site: Site) -> None:
    listed = (await site.person.get("/v1/flows")).json()
    assert listed["problems"] == []
    known = {flow["name"]: flow for flow in listed["flows"]}
    assert known["until_converged"]["params"] == {"tolerance": 0.0001, "width": 5, "at_most": 50}
    assert known["training"]["description"].startswith("Train, some epochs a job")


async def test_until_converged(site: Site) -> None:
    run = await site.run("until_converged")
    assert run["state"] == "completed", run
    assert abs(run["outputs"]["x"] - 0.73) <= 0.01
    assert run["outputs"]["rounds"] > 3
    assert await site.site.runs(run["id"]) > 1, "it went on in a new run at a checkpoint"


async def test_until_converged_says_when_it_has_not(site: Site) -> None:
    run = await site.run("until_converged", at_most=1)
    assert run["state"] == "failed"
    assert "RuntimeError: not converged after 1 rounds" in run["reason"]
    assert run["reason"].startswith("until_converged.py, line ")


async def test_training_goes_on_from_the_last_model(site: Site) -> None:
    run = await site.run("training", epochs=40, per_job=5)
    assert run["state"] == "completed", run
    assert 5 < run["outputs"]["epochs"] < 40, "it stopped early"
    assert run["outputs"]["loss"] < 0.05
    source = (await site.person.get(f"/v1/flows/{run['version']}")).json()["text"]
    assert source == (EXAMPLES / "training.py").read_text(encoding="utf-8")


async def test_what_cannot_be_started_is_said(site: Site) -> None:
    unknown = await site.person.post("/v1/runs", json={"flow": "nobody"})
    assert (unknown.status_code, unknown.json()["detail"][:27]) == (404, "there is no Python flow nob")
    wrong = await site.person.post("/v1/runs", json={"flow": "training", "params": {"colour": 1}})
    assert wrong.status_code == 400, wrong.text
    assert "unknown: colour" in wrong.text
