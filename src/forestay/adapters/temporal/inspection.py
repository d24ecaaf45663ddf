"""Inspects Temporal: whether it answers, has our namespace, and has workers."""

from __future__ import annotations

import time

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeTaskQueueRequest,
    GetClusterInfoRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from forestay.adapters.temporal.flow_engine import ANSWER, TemporalFlowEngine, translated
from forestay.ports.errors import Transient
from forestay.ports.inspections import EngineInspection

RECENT = 60.0
"""Seconds since an orchestrator last polled; a waiting one polls at least once a minute."""


async def inspect_engine(engine: TemporalFlowEngine) -> EngineInspection:
    """`Transient` if it does not answer."""
    try:
        client = await engine.client()
    except Transient as error:
        cause = error.__cause__
        if isinstance(cause, RPCError) and cause.status is RPCStatusCode.NOT_FOUND:
            return EngineInspection("", has_namespace=False)
        raise
    with translated():
        info = await client.workflow_service.get_cluster_info(GetClusterInfoRequest(), timeout=ANSWER)
        asked = DescribeNamespaceRequest(namespace=client.namespace)
        namespace = await client.workflow_service.describe_namespace(asked, timeout=ANSWER)
        orchestrators = await _pollers(client, engine.task_queue, TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW)
        hands = await _pollers(client, engine.task_queue, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY)
    kept = namespace.config.workflow_execution_retention_ttl.ToTimedelta().total_seconds() / 86_400
    return EngineInspection(
        info.server_version, has_namespace=True, orchestrators=orchestrators, hands=hands, keeps_days=kept
    )


async def _pollers(client: Client, queue: str, kind: TaskQueueType.ValueType) -> int:
    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind
    )
    response = await client.workflow_service.describe_task_queue(request, timeout=ANSWER)
    now = time.time()
    return len({poller.identity for poller in response.pollers if now - poller.last_access_time.seconds < RECENT + 5})
