"""One exception service and three engines at once: our own flows on a real Temporal, somebody's own Temporal worker with the interceptor, and a script; one rule fixes the same failure in each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio import activity, workflow
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import RetryPolicy
from temporalio.worker import UnsandboxedWorkflowRunner, Worker
from tests import servers
from tests.live.run_site import GOOD, TENANT, RunSite, run_site
from tests.unit.apps.server.exceptions.test_engines import add_rule, failing, script
from tests.unit.apps.server.running import until

from forestay.client import AsyncForestayClient, Patience
from forestay.client.script.temporal_interceptor import ForestayInterceptor
from forestay.formats.flows.yaml_flow import read_flow_text

pytestmark = pytest.mark.live

FLOW = """
forestay: 1
name: hungry
tasks:
  load: {command: [load], when_exhausted: hold, max_attempts: 1}
  tell: {command: [tell], after: [load]}
"""
OOM = {
    "outcome": "failure",
    "reason": "exit",
    "exit_code": 1,
    "log_tail": "Traceback (most recent call last):\nMemoryError\n",
}
CHANGE_VENUE = """
forestay: 1
name: change-venue
params: {from: null}
tasks: {book: {command: [book, "${params.from}"]}}
outputs: {venue: "not ${params.from}"}
"""
AGAIN: dict[str, object] = {"action": "resubmit"}
TOLD: dict[str, object] = {"action": "notify", "text": "it is retried"}


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[RunSite]:
    async with run_site("sqlite", tmp_path) as running:
        yield running


def hungry_once() -> Any:
    """The first job called `load` has too little memory."""
    seen: list[str] = []

    def fate(claim: Mapping[str, Any]) -> dict[str, Any]:
        if claim["name"] == "load" and not seen:
            seen.append(claim["name"])
            return OOM
        return GOOD

    return fate


# -- somebody's own worker, which knows nothing of Forestay but the line that adds the interceptor ---------------


class Warehouse:
    """Activities that fail so often, and then work."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.calls = 0

    @activity.defn(name="load")
    async def load(self, value: int) -> int:
        return self._work(value)

    @activity.defn(name="load_in_a_thread")
    def load_in_a_thread(self, value: int) -> int:
        activity.heartbeat("still there")
        return self._work(value)

    def _work(self, value: int) -> int:
        self.calls += 1
        if self.left:
            self.left -= 1
            raise MemoryError
        return value + 1


@workflow.defn(name="orders")
class Orders:
    @workflow.run
    async def run(self, name: str) -> int:
        value: int = await workflow.execute_activity(
            name,
            7,
            result_type=int,
            retry_policy=RetryPolicy(maximum_attempts=1),
            start_to_close_timeout=timedelta(seconds=60),
            heartbeat_timeout=timedelta(seconds=10),
        )
        return value


@asynccontextmanager
async def somebodys_worker(site: RunSite, warehouse: Warehouse, **how: Any) -> AsyncIterator[Client]:
    client = await Client.connect(servers.temporal(), namespace=site.namespace)
    token = site.domain.token("engine", tenant=TENANT, subject="warehouse")
    async with AsyncForestayClient(site.server.url, token, patience=Patience(seconds=10)) as forestay:
        with ThreadPoolExecutor(2) as threads:
            async with Worker(
                client,
                task_queue="warehouse",
                workflows=[Orders],
                activities=[warehouse.load, warehouse.load_in_a_thread],
                activity_executor=threads,
                workflow_runner=UnsandboxedWorkflowRunner(),
                interceptors=[ForestayInterceptor(client=forestay, **how)],
            ):
                yield client


async def ordered(client: Client, name: str) -> int:
    result: int = await client.execute_workflow(
        "orders", name, id=f"orders-{uuid4()}", task_queue="warehouse", result_type=int
    )
    return result


async def stories(site: RunSite, engine: str) -> list[str]:
    """The words of the stories of all incidents of an engine's runs."""
    person = site.server.person("viewer", tenant=TENANT)
    incidents = (await person.get("/v1/incidents")).json()["incidents"]
    words = []
    for incident in incidents:
        whole = (await person.get(f"/v1/incidents/{incident['id']}")).json()
        if whole["engine"] == engine:
            story = (await person.get(f"/v1/runs/{whole['run']}/story")).json()["story"]
            words.append("\n".join(line["words"] for line in story))
    return words


@pytest.mark.ledger("P1-29", "P1-30")
async def test_one_rule_recovers_the_same_failure_in_three_engines_at_once(site: RunSite) -> None:
    site.fate = hungry_once()
    await add_rule(site.server, TENANT, TOLD, AGAIN)
    warehouse = Warehouse(1)

    def work() -> int:
        with script(site.server, TENANT) as run:
            return run.task("load", failing(1), 7)

    async with somebodys_worker(site, warehouse) as client:
        run = await site.start(FLOW)
        ours, theirs, scripts = await asyncio.gather(site.result(run), ordered(client, "load"), asyncio.to_thread(work))
    assert (ours["outcome"], theirs, scripts) == ("completed", 8, 8)
    assert site.ran == ["load", "load", "tell"]
    assert warehouse.calls == 2
    for engine in ("forestay", "temporal", "script"):

        async def told(engine: str = engine) -> list[str]:
            found_stories = await stories(site, engine)
            return [story for story in found_stories if "is complete" in story]

        (words,) = await until(told, f"the story of a run of {engine}")
        for word in ("cause memory", "by domain/site#", "Step notify is done", "Step resubmit is done"):
            assert word in words, words
    (theirs_told,) = await stories(site, "temporal")
    assert "failed: MemoryError" in theirs_told
    assert "Command to the engine temporal: resubmit load" in theirs_told


@pytest.mark.ledger("P1-16", "P1-17", "P1-18", "P1-29")
async def test_a_worklet_of_ours_recovers_a_run_of_another_engine(site: RunSite) -> None:
    read = read_flow_text(CHANGE_VENUE)
    assert read.flow is not None, read.problems
    version = await site.server.services.components.flows.put(read.flow, tenant=TENANT)
    worklet = {"flow": version, "give": {"from": "${params.venue}"}, "take": {"venue": "venue"}}
    await add_rule(
        site.server,
        TENANT,
        {"action": "suspend", "target": "run"},
        {"action": "compensate", "worklets": [worklet]},
        {"action": "continue", "target": "run"},
        AGAIN,
    )

    def work() -> str:
        with script(site.server, TENANT, data={"venue": "arena"}) as run:

            def show() -> str:
                if run.data["venue"] == "arena":
                    raise MemoryError
                return str(run.data["venue"])

            return run.task("show", show)

    assert await asyncio.to_thread(work) == "not arena"
    assert site.ran == ["book"], "the worklet is a run of ours"
    (words,) = await until(lambda: stories(site, "script"), "the story")
    verbs = ["suspend the run", "set-data the run", "continue the run", "resubmit show"]
    places = [words.index(f"Command to the engine script: {verb}") for verb in verbs]
    assert places == sorted(places), words


async def test_an_orchestrator_that_runs_functions_in_threads_is_recovered_too(site: RunSite) -> None:
    await add_rule(site.server, TENANT, AGAIN)
    warehouse = Warehouse(2)
    async with somebodys_worker(site, warehouse) as client:
        assert await ordered(client, "load_in_a_thread") == 8
    assert warehouse.calls == 3


async def test_an_orchestrator_without_a_rule_fails_as_it_would(site: RunSite) -> None:
    warehouse = Warehouse(1)
    async with somebodys_worker(site, warehouse) as client:
        with pytest.raises(WorkflowFailureError):
            await ordered(client, "load")
    assert warehouse.calls == 1
