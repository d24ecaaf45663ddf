"""The bare engine to compare with: one Temporal activity a job, in one worker, without a sandbox."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import uuid4

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

PATIENCE = timedelta(seconds=60)
QUEUE = "bare"


@workflow.defn(name="bare")
class BareWorkflow:
    """So many activities side by side."""

    @workflow.run
    async def run(self, jobs: int) -> None:
        await asyncio.gather(
            *(
                workflow.execute_activity("no-op", number, start_to_close_timeout=PATIENCE, task_queue=QUEUE)
                for number in range(jobs)
            )
        )


@dataclass(slots=True)
class Bare:
    """A worker, and when its activities began."""

    client: Client
    began: list[float] = field(default_factory=list)

    async def run(self, jobs: int) -> float:
        """Have so many jobs done; seconds until the first began."""
        self.began.clear()
        since = time.perf_counter()
        await self.client.execute_workflow("bare", jobs, id=str(uuid4()), task_queue=QUEUE)
        return self.began[0] - since

    @activity.defn(name="no-op")
    async def no_op(self, _number: int) -> None:
        self.began.append(time.perf_counter())


@asynccontextmanager
async def bare_temporal(address: str, namespace: str) -> AsyncIterator[Bare]:
    bare = Bare(await Client.connect(address, namespace=namespace))
    worker = Worker(
        bare.client,
        task_queue=QUEUE,
        workflows=[BareWorkflow],
        activities=[bare.no_op],
        workflow_runner=UnsandboxedWorkflowRunner(),
    )
    async with worker:
        yield bare
