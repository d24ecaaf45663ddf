"""What it takes to start an orchestrator: processor time until it polls Temporal for work."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from tests import servers
from tests.live.run_site import new_namespace
from tests.unit.apps.processor_time import within
from tests.unit.apps.server.processes import processes
from tests.unit.apps.server.running import Domain, until

pytestmark = [pytest.mark.finding("F-G3"), pytest.mark.live, pytest.mark.measured]
ORCHESTRATOR = 2.2
"""The goal is 1.2; 1.7 to 2.0 was measured. What is left: 1,600 modules, of which Temporal's client has 260 and SQLAlchemy 240."""
QUEUE = "forestay"


async def test_an_orchestrator_soon_polls_for_work(tmp_path: Path) -> None:
    address, starts = servers.temporal(), count()
    client = await Client.connect(address)

    async def measure() -> float:
        state = tmp_path / str(next(starts))
        state.mkdir()
        namespace = await new_namespace()
        known = {"temporal": address, "temporal_namespace": namespace}
        request = DescribeTaskQueueRequest(
            namespace=namespace,
            task_queue=TaskQueue(name=QUEUE),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
        )
        async with processes(Domain(f"sqlite:///{state}/jobs.db", state), state, **known) as running:
            orchestrator = running.orchestrator()

            async def polls() -> bool:
                assert orchestrator.process.poll() is None, (state / "orchestrator-0.log").read_text()
                return bool((await client.workflow_service.describe_task_queue(request)).pollers)

            await until(polls, "an orchestrator that polls")
            return orchestrator.cpu

    await within(ORCHESTRATOR, measure)
