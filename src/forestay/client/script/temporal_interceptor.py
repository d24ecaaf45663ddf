"""An interceptor for any Temporal worker in Python: failures of its activities are reported, and the reply is carried out.

One line is added to a worker::

    Worker(client, task_queue="orders", workflows=[...], activities=[...], interceptors=[ForestayInterceptor()])

It stands around activities only. Workflows run as before and their histories show nothing new, so it can be added to and taken away from workers whose workflows are under way. A workflow run is a
run, an activity of it a task. When an activity fails for good (its last attempt, or an error that is not retried) the event is reported with its evidence, and the attempt waits, heart beating,
while the incident is handled: then the activity is tried again inside the same attempt, completes with a given result, or fails.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.exceptions import CancelledError as ActivityCancelled
from temporalio.worker import (
    ActivityInboundInterceptor,
    ActivityOutboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
)

from forestay.client.api import engine_calls
from forestay.client.api.async_client import AsyncForestayClient
from forestay.client.api.retrying_call import Patience
from forestay.client.script.command_state import CommandState, Complete, Fail, GoOn, Remove, Retry, Verdict
from forestay.client.script.error_evidence import evidence_of_error
from forestay.client.transport.errors import ClientError, Unavailable
from forestay.client.transport.settings import find_settings

if TYPE_CHECKING:
    from forestay.client.api.schemas import NewEvent, ToldIncident

T = TypeVar("T")
log = logging.getLogger("forestay.temporal")

POLL = 10.0
"""Seconds that one question for orders waits at the server."""
MARGIN = timedelta(seconds=2)
"""So long before an attempt's time is over it waits no more."""


class ForestayInterceptor(Interceptor):
    """See the module.

    ``after_attempts``: an activity that is retried without end is reported from this attempt on; 0: only failures that are final for Temporal.
    ``hold``: what no rule answers waits for a person or a new rule, as long as the activity's time allows; otherwise it fails as without Forestay.
    Without `client` the server and token are found as the command line finds them.
    """

    def __init__(
        self,
        *,
        client: AsyncForestayClient | None = None,
        engine: str = "temporal",
        after_attempts: int = 0,
        hold: bool = False,
    ) -> None:
        self.engine = engine
        self.after_attempts = after_attempts
        self.otherwise = "hold" if hold else "go-on"
        self._client = client

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the name that the SDK gives it
        return _Reporting(next, self)

    def client(self) -> AsyncForestayClient:
        """The connection, made when the first activity fails."""
        if self._client is None:
            settings = find_settings()
            self._client = AsyncForestayClient(
                settings.server.value, settings.token.value, patience=Patience(seconds=10.0)
            )
        return self._client

    def is_final(self, error: BaseException, info: activity.Info) -> bool:
        """Whether Temporal will not retry on its own, or has retried often enough."""
        if self.after_attempts and info.attempt >= self.after_attempts:
            return True
        if isinstance(error, ApplicationError) and error.non_retryable:
            return True
        policy = info.retry_policy
        if policy is None:
            return False
        kind = error.type if isinstance(error, ApplicationError) and error.type else type(error).__name__
        if kind in (policy.non_retryable_error_types or ()):
            return True
        return 0 < policy.maximum_attempts <= info.attempt


class _Reporting(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, outer: ForestayInterceptor) -> None:  # noqa: A002
        super().__init__(next)
        self.outer = outer
        self.outbound: ActivityOutboundInterceptor | None = None

    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        self.outbound = outbound
        super().init(outbound)

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the name that the SDK gives it
        info = activity.info()
        assert self.outbound is not None  # noqa: S101 - the SDK calls `init` first
        heartbeat = AttemptHeartbeat(info, self.outbound)
        tries = 0
        while True:
            try:
                return await super().execute_activity(input)
            except (asyncio.CancelledError, ActivityCancelled):
                raise
            except Exception as error:
                if not self.outer.is_final(error, info):
                    raise
                tries += 1
                verdict = await _Waiting(self.outer, info, heartbeat).answered(error, tries)
                if isinstance(verdict, GoOn):
                    raise
                if isinstance(verdict, Complete):
                    return verdict.result
                if isinstance(verdict, Fail | Remove):
                    words = verdict.reason or "failed by command"
                    raise ApplicationError(words, type=type(verdict).__name__, non_retryable=True) from error
                _change(input, verdict)
                await heartbeat.during(asyncio.sleep(verdict.wait))
                # What runs in a thread leaves a heartbeat behind that is for its thread alone.
                self.next.init(self.outbound)


class _Waiting:
    """One failed attempt, until it is known what becomes of it."""

    def __init__(self, outer: ForestayInterceptor, info: activity.Info, heartbeat: AttemptHeartbeat) -> None:
        self.outer, self.info, self.heartbeat = outer, info, heartbeat
        self.task = f"{info.activity_type}:{info.activity_id}"
        self.commands = CommandState(waiting={self.task})

    async def answered(self, error: BaseException, tries: int) -> Verdict:
        info, engine = self.info, self.outer.engine
        run = info.workflow_run_id or info.activity_run_id or ""
        key = f"{info.workflow_id or info.activity_id}/{run}"
        common = {"run": key, "flow": info.workflow_type or info.activity_type}
        evidence = evidence_of_error(error, attempt=info.attempt, activity=info.activity_type)
        labels = {"task_queue": info.task_queue, "namespace": info.namespace}
        # The run is made known with the first thing that goes wrong in it: workflows themselves are left alone.
        started = cast("NewEvent", common | {"id": "started", "kind": "run-started"})
        number = (info.attempt - 1) * 1000 + tries
        aborted = cast(
            "NewEvent",
            common
            | {"id": f"{info.activity_id}:{number}", "kind": "task-aborted", "task": self.task, "attempt": number}
            | {"evidence": evidence, "labels": labels, "otherwise": self.outer.otherwise},
        )
        client = self.outer.client()
        try:
            answers = await self.heartbeat.during(client.send(engine_calls.report(engine, [started, aborted])))
        except ClientError as problem:
            log.warning("the failure of %s is not reported: %s", self.task, problem)
            return GoOn(str(problem))
        answer = answers[-1]
        if answer["answer"] != "wait" or answer["incident"] is None:
            return GoOn(answer["words"])
        return await self._wait(client, answer["run"], answer["incident"])

    async def _wait(self, client: AsyncForestayClient, run: str, incident: str) -> Verdict:
        while True:
            left = _left(self.info)
            if left is not None and left <= 0:
                return GoOn("the attempt's time is over")
            poll = POLL if left is None else min(POLL, left)
            try:
                told_incident = await self.heartbeat.during(self._obey(client, run, incident, poll))
            except Unavailable:
                continue  # it comes back; the attempt's own timeout limits the wait
            except ClientError as problem:
                log.warning("commands for %s cannot be read: %s", self.task, problem)
                return GoOn(str(problem))
            verdict = self.commands.over(self.task, told_incident)
            if verdict is not None:
                return verdict

    async def _obey(self, client: AsyncForestayClient, run: str, incident: str, wait: float) -> ToldIncident | None:
        engine = self.outer.engine
        orders = await client.send(engine_calls.orders(engine, run=run, incidents=[incident], wait=wait))
        # Other tasks of the run wait elsewhere, and answer what is ordered of them.
        mine = [order for order in orders.orders if order["task"] in ("", self.task)]
        for answer in self.commands.take(mine):
            await client.send(engine_calls.answer_order(engine, answer.order, answer.outcome, answer.detail))
        if orders.orders and not mine:
            await asyncio.sleep(min(1.0, wait))
        return orders.incidents.get(incident)


class AttemptHeartbeat:
    """The heartbeats of an attempt while it waits, where its activity must give them."""

    def __init__(self, info: activity.Info, outbound: ActivityOutboundInterceptor) -> None:
        self.info, self.outbound = info, outbound

    async def during(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for something."""
        if self.info.heartbeat_timeout is None:
            return await work
        task = asyncio.ensure_future(work)
        pause = self.info.heartbeat_timeout.total_seconds() / 3
        try:
            while True:
                done, _ = await asyncio.wait({task}, timeout=pause)
                if done:
                    return task.result()
                self.outbound.heartbeat(*self.info.heartbeat_details)
        finally:
            task.cancel()


def _left(info: activity.Info) -> float | None:
    """Seconds until the attempt's time is over; ``None``: it has no end."""
    if info.start_to_close_timeout is None:
        return None
    end = info.started_time + info.start_to_close_timeout - MARGIN
    return (end - datetime.now(UTC)).total_seconds()


def _change(execute_activity_input: ExecuteActivityInput, verdict: Retry) -> None:
    """Other arguments for the next try, where the order has them."""
    arguments = verdict.data.get("arguments")
    if isinstance(arguments, list) and len(arguments) == len(execute_activity_input.args):
        execute_activity_input.args = arguments
    elif (
        isinstance(arguments, Mapping)
        and len(execute_activity_input.args) == 1
        and isinstance(execute_activity_input.args[0], dict)
    ):
        execute_activity_input.args = [{**execute_activity_input.args[0], **arguments}]
