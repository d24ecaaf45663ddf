"""Tasks that wait for events, on a real Temporal: sent by a webhook, before the wait, while it waits, or not in time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.live.run_site import TENANT, RunSite, run_site
from tests.unit.apps.server.asks import problem
from tests.unit.apps.server.running import until

from forestay.services.flows.external_events import KEPT_EVENTS

pytestmark = pytest.mark.live

FLOW = """
forestay: 1
name: reduce
params: {n: 0}
tasks:
  first: {command: [first]}
  ready:
    after: first
    wait_for: {event: detector-ready, key: "${params.n}"}
  read: {command: [read, "${tasks.ready.outputs.file}"]}
outputs: {file: "${tasks.ready.outputs.file}", by: "${tasks.ready.result.by}"}
"""
LATE = """
forestay: 1
name: late
tasks:
  ready: {wait_for: {event: never, default: {file: none}}, deadline: 1 s}
outputs: {file: "${tasks.ready.outputs.file}", how: "${tasks.ready.result.outcome}"}
"""


PYTHON = """
from forestay.flows import flow, wait_for

@flow
async def waits():
    return (await wait_for("ready", "detector-ready", key="python")).result
"""


@pytest.fixture(scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunSite]:
    async with run_site("sqlite", tmp_path_factory.mktemp("events")) as running:
        yield running


def person(site: RunSite, name: str, role: str = "submitter") -> httpx.AsyncClient:
    return site.server.person(role, tenant=TENANT, subject=name)


async def send(site: RunSite, key: str, **more: Any) -> dict[str, Any]:
    body = {"event": "detector-ready", "key": key, "data": {"file": f"{key}.raw"}, **more}
    answer = await person(site, "daq").post("/v1/external-events", json=body)
    assert answer.status_code == 201, answer.text
    sent: dict[str, Any] = answer.json()
    return sent


async def waits(site: RunSite, run: str) -> None:
    """Until the store knows that the run waits: the task is awaiting a moment before, and an event of that moment is kept for it."""

    async def known() -> bool:
        boxes: list[Any] = [
            stored.document.body for stored in await site.server.services.components.documents.find(KEPT_EVENTS)
        ]
        return any(wait["run"] == run for box in boxes for wait in box["waits"])

    await until(known, f"run {run} to wait for its event")


async def test_an_event_wakes_the_run_with_its_key(site: RunSite) -> None:
    run, other = await site.start(FLOW, n=1), await site.start(FLOW, n=2)
    await waits(site, run)
    await waits(site, other)
    sent = await send(site, "1", id="e-1")
    assert (sent["runs"], sent["repeated"]) == ([run], False)
    assert (await send(site, "1", id="e-1"))["repeated"]
    assert (await site.result(run))["outputs"] == {"file": "1.raw", "by": "daq"}
    assert (await site.tasks(other))["ready"] == "awaiting"
    await send(site, "2")
    assert (await site.result(other))["outcome"] == "completed"


async def test_an_event_that_comes_before_the_wait_is_not_lost(site: RunSite) -> None:
    site.hold_back = lambda claim: claim["name"] == "first"
    run = await site.start(FLOW, n=3)
    await site.kept_some()
    assert (await send(site, "3"))["runs"] == []
    site.hold_back = lambda _claim: False
    await site.let_go()
    assert (await site.result(run))["outputs"]["file"] == "3.raw"


async def test_the_default_counts_at_the_deadline(site: RunSite) -> None:
    assert (await site.result(await site.start(LATE)))["outputs"] == {"file": "none", "how": "default"}


async def test_who_may_not_and_what_is_too_large_is_refused(site: RunSite) -> None:
    problem(await person(site, "vera", "viewer").post("/v1/external-events", json={"event": "detector-ready"}), 403)
    large = {"event": "detector-ready", "data": {"x": "y" * 5000}}
    problem(await person(site, "daq").post("/v1/external-events", json=large), 422)
    problem(await person(site, "daq").post("/v1/external-events", json={"event": "two words"}), 422)


async def test_a_python_flow_awaits_an_event(tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text(PYTHON)
    async with run_site("sqlite", tmp_path, flows=tmp_path) as site:
        run = await site.start_python(PYTHON, "waits")
        await site.task_is(run, "ready", "awaiting")
        await send(site, "python")
        assert (await site.result(run))["outputs"] == {"file": "python.raw"}
