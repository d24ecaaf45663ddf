"""A domain that runs runs: a real Temporal, a real store, a server, a relay and an orchestrator in the test's process, and a pilot that does what it is told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from google.protobuf.duration_pb2 import Duration
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError
from tests import servers
from tests.unit.apps.server.running import Domain, RunningServer, until
from tests.unit.apps.server.scripted_pilot import ScriptedPilot, end_of
from tests.unit.apps.server.store_room import store_room

from forestay.apps.compose.components import make_components
from forestay.apps.compose.loops import run_loops, stop
from forestay.apps.compose.orchestrator import OrchestratorComponents
from forestay.apps.compose.reconciler import ReconcilerComponents
from forestay.domain.flows.definition.flow_version import flow_as_plain, version_of
from forestay.domain.flows.events import Verb, VerbKind
from forestay.formats.flows.python_flow import read_python_flows
from forestay.formats.flows.yaml_flow import read_flow_text
from forestay.ports.errors import NotFound, Transient
from forestay.ports.flows.flow_engine import RunStart, RunSummary

TENANT = "flows"
SLOWEST = 3
"""Times as slow as the machine for which patience is written."""
RENEW = 300.0
"""Seconds, of the fifteen minutes for which a pilot's token is good: the tests of one site may take longer."""
Fate = Callable[[Mapping[str, Any]], dict[str, Any]]
"""What a claimed job comes to: the facts of its end, such as an exit code."""
GOOD: dict[str, Any] = {}
BAD: dict[str, Any] = {"outcome": "failure", "exit_code": 1}


async def new_namespace() -> str:
    """A namespace that nobody else uses."""
    name = f"test-{uuid4().hex[:12]}"
    client = await Client.connect(servers.temporal())
    keep = Duration()
    keep.FromTimedelta(timedelta(days=1))
    request = RegisterNamespaceRequest(namespace=name, workflow_execution_retention_period=keep)
    await client.workflow_service.register_namespace(request)

    async def known() -> bool:
        try:
            own = await Client.connect(servers.temporal(), namespace=name)
            await own.count_workflows()
        except RPCError:
            return False
        return True

    await until(known, "the namespace")
    return name


@dataclass(eq=False)
class RunSite:
    """What runs, and how to ask after it."""

    domain: Domain
    server: RunningServer
    namespace: str
    orchestrator: OrchestratorComponents | None = None
    reconciler: ReconcilerComponents | None = None
    pilots: list[ScriptedPilot] = field(default_factory=list)
    fate: Fate = lambda _claim: GOOD
    ran: list[str] = field(default_factory=list)
    """The names of the jobs that were run, in order, with their index if they have one."""
    hold_back: Callable[[Mapping[str, Any]], bool] = lambda _claim: False
    """Jobs that are claimed and not ended."""
    kept: list[tuple[ScriptedPilot, dict[str, Any]]] = field(default_factory=list)

    @property
    def engine(self) -> Any:
        return self.server.services.components.engine

    async def start(self, text: str, run: str | None = None, *, owner: str = "ada", **params: object) -> str:
        """Store a flow and start a run of it."""
        read = read_flow_text(text)
        assert read.flow is not None, read.problems
        version = await self.server.services.components.flows.put(read.flow, tenant=TENANT)
        run = run or str(uuid4())
        plain = flow_as_plain(read.flow)
        assert await self.engine.start(RunStart(run, TENANT, owner, version, read.flow.name, plain, params))
        assert version == version_of(read.flow)
        return run

    async def start_python(self, source: str, name: str, run: str | None = None, **params: object) -> str:
        """Start a run of a Python flow as if its file were in the operator's folder."""
        read = read_python_flows(source, "flows.py")
        assert not read.problems
        (flow,) = [python_flow for python_flow in read.flows if python_flow.name == name]
        version = await self.server.services.components.flows.put_python(flow, tenant=TENANT)
        run = run or str(uuid4())
        assert await self.engine.start(RunStart(run, TENANT, "ada", version, name, flow.as_plain(), params))
        return run

    async def verb(self, run: str, kind: VerbKind, task: str = "", **more: Any) -> Any:
        now = self.server.services.components.clock.now()
        verb = Verb(now, more.pop("id", str(uuid4())), kind, instance=task, by="ada", **more)
        return await self.engine.send_verb(run, verb)

    async def ended(self, run: str, patience: float = 60) -> RunSummary:
        """The run when it has ended."""

        async def over() -> RunSummary | None:
            summary: RunSummary = await _answered(self.engine.describe, run)
            return summary if summary.ended is not None else None

        run_summary: RunSummary = await until(over, f"the end of run {run}", SLOWEST * patience)
        assert run_summary.state != "broken"
        return run_summary

    async def result(self, run: str) -> dict[str, Any]:
        await self.ended(run)
        client = await self.engine.client()
        result: dict[str, Any] = await client.get_workflow_handle(run).result()
        return result

    async def tasks(self, run: str) -> dict[str, str]:
        """The state of each task."""
        state = await _answered(self.engine.state, run)
        return {task["id"]: task.get("state", "waiting") for task in state["instances"]}

    async def task_is(self, run: str, task: str, *states: str) -> None:
        async def there() -> bool:
            return (await self.tasks(run)).get(task) in states

        await until(there, f"task {task} to be {states}", SLOWEST * 60)

    async def runs(self, run: str) -> int:
        """How many runs the workflow of a run or shard has had."""
        client = await self.engine.client()
        count = 0
        async for _ in client.list_workflows(f"WorkflowId = '{run}'"):
            count += 1
        return count

    async def fly(self, pilot: ScriptedPilot) -> None:
        """Claim and end jobs, for ever."""
        renewed = time.monotonic()
        while True:
            if time.monotonic() - renewed > RENEW:
                await pilot.renew()
                renewed = time.monotonic()
            claims = await pilot.claim(most=32, wait=5)
            ends = []
            for claim in claims:
                name = claim["name"] if claim.get("index") is None else f"{claim['name']}[{claim['index']}]"
                if self.hold_back(claim):
                    self.kept.append((pilot, claim))
                    continue
                self.ran.append(name)
                ends.append(end_of(claim, **self.fate(claim)))
            if ends:
                answer = await pilot.post("completions", {"completions": ends})
                assert answer.status_code == 200, answer.text

    async def kept_some(self, least: int = 1) -> None:
        """Wait until so many jobs are held back."""

        async def some() -> bool:
            return len(self.kept) >= least

        await until(some, f"{least} jobs to be held back")

    async def let_go(self) -> None:
        """End what was held back."""
        for pilot, claim in self.kept:
            await pilot.end(claim, **self.fate(claim))
        self.kept.clear()


@asynccontextmanager
async def run_site(
    store: str, folder: Path, *, pilots: int = 1, orchestrator: bool = True, namespace: str = "", **settings: Any
) -> AsyncIterator[RunSite]:
    """Everything that a run needs, on one kind of store."""
    namespace = namespace or await new_namespace()
    known = {"temporal": servers.temporal(), "temporal_namespace": namespace, "relay_every": 0.1}
    async with store_room(store, folder) as url:
        domain = Domain(url, folder, known | {"relay_patience": 1.0} | settings)
        async with domain.server() as server, domain.reconciler() as reconciler:
            site = RunSite(domain, server, namespace, reconciler=reconciler)
            await site.engine.open()
            wanted = {
                name: loop
                for name, loop in reconciler.loops().items()
                if name in ("relay", "orders", "failures", "exceptions", "remakes")
            }
            loops = [asyncio.create_task(run_loops(wanted))]
            parts = make_components(domain.settings())
            await parts.store.open()
            if orchestrator:
                site.orchestrator = OrchestratorComponents(parts, server.services)
                loops.append(asyncio.create_task(run_loops({"orchestrator": site.orchestrator.run})))
                # To begin work takes a busy machine seconds, in which nobody in this process is answered.
                await until(_worked(site), "the orchestrator", 120)
            for _ in range(pilots):
                pilot = await ScriptedPilot.register(server, TENANT)
                site.pilots.append(pilot)
                loops.append(asyncio.create_task(site.fly(pilot)))
            try:
                yield site
            finally:
                for loop in loops:
                    await stop(loop)
                await parts.store.close()


async def _answered(ask: Callable[[str], Awaitable[Any]], run: str) -> Any:
    """What Temporal says of a run. One that many tests keep busy does not answer at times, or knows no namespace: it is asked again, as every client of ours does."""
    for _ in range(9):
        with suppress(Transient, NotFound):
            return await ask(run)
    return await ask(run)


def _worked(site: RunSite) -> Callable[[], Awaitable[bool]]:
    async def there() -> bool:
        client = await site.engine.client()
        queue = TaskQueue(name=site.engine.task_queue)
        kind = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
        request = DescribeTaskQueueRequest(namespace=site.namespace, task_queue=queue, task_queue_type=kind)
        return bool((await client.workflow_service.describe_task_queue(request)).pollers)

    return there


__all__ = ["BAD", "GOOD", "TENANT", "ReconcilerComponents", "RunSite", "new_namespace", "run_site"]
