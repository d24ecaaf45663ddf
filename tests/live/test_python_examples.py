"""The Python flows among the examples, from the operator's folder, with a real pilot that runs their commands."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.live.case_site import TENANT, CaseSite, case_site
from tests.unit.apps.server.processes import Started, processes

pytestmark = pytest.mark.live
EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclass
class Site:
    site: CaseSite
    person: httpx.AsyncClient

    async def run(self, flow: str, **params: object) -> dict[str, Any]:
        """Start a flow by its name and give the whole case when it has ended."""
        started = await self.person.post("/v1/cases", json={"flow": flow, "params": params})
        assert started.status_code == 201, started.text
        case = started.json()["id"]
        await self.site.ended(case, patience=120)
        whole: dict[str, Any] = (await self.person.get(f"/v1/cases/{case}")).json()
        return whole


@pytest.fixture(scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("examples")
    outputs = (folder / "outputs",)
    async with (
        case_site("sqlite", folder, pilots=0, flows=EXAMPLES, outputs=outputs, history_limit=40) as running,
        processes(running.domain, folder) as started,
    ):
        here = Started(process=None, url=running.server.url)  # type: ignore[arg-type]  # it runs in this process
        started.pilot(TENANT, here, slots=2)
        yield Site(running, running.server.person("submitter", tenant=TENANT))


async def test_the_examples_are_offered_by_name(site: Site) -> None:
    listed = (await site.person.get("/v1/flows")).json()
    assert listed["problems"] == []
    known = {one["name"]: one for one in listed["flows"]}
    assert known["until_converged"]["params"] == {"tolerance": 0.0001, "width": 5, "at_most": 50}
    assert known["training"]["description"].startswith("Train, some epochs a job")


async def test_until_converged(site: Site) -> None:
    case = await site.run("until_converged")
    assert case["state"] == "completed", case
    assert abs(case["outputs"]["x"] - 0.73) <= 0.01
    assert case["outputs"]["rounds"] > 3
    assert await site.site.runs(case["id"]) > 1, "it went on in a new run at a checkpoint"


async def test_until_converged_says_when_it_has_not(site: Site) -> None:
    case = await site.run("until_converged", at_most=1)
    assert case["state"] == "failed"
    assert "RuntimeError: not converged after 1 rounds" in case["reason"]
    assert case["reason"].startswith("until_converged.py, line ")


async def test_training_goes_on_from_the_last_model(site: Site) -> None:
    case = await site.run("training", epochs=40, per_job=5)
    assert case["state"] == "completed", case
    assert 5 < case["outputs"]["epochs"] < 40, "it stopped early"
    assert case["outputs"]["loss"] < 0.05
    source = (await site.person.get(f"/v1/flows/{case['version']}")).json()["text"]
    assert source == (EXAMPLES / "training.py").read_text(encoding="utf-8")


async def test_what_cannot_be_started_is_said(site: Site) -> None:
    unknown = await site.person.post("/v1/cases", json={"flow": "nobody"})
    assert (unknown.status_code, unknown.json()["detail"][:27]) == (404, "there is no Python flow nob")
    wrong = await site.person.post("/v1/cases", json={"flow": "training", "params": {"colour": 1}})
    assert wrong.status_code == 400, wrong.text
    assert "unknown: colour" in wrong.text
