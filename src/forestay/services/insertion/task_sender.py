"""Creates the task of a claim at the task server, once, and records the exchange.

A creation without a response may have taken place: it is searched by its tags before it is sent again. So is the task of an earlier attempt of
unknown outcome; a task that runs or has succeeded is adopted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from forestay.domain.jobs.claim import NOT_STARTED
from forestay.domain.jobs.conversation import (
    ATTEMPT_TAG,
    CALLBACK_TAG,
    KIND,
    SILENT,
    Exchange,
    chosen,
    is_polled,
    key_of,
    surely_new,
    token_named,
)
from forestay.domain.jobs.job_document import ANY_DOWNSTREAM, Token, downstream_of
from forestay.domain.jobs.specification import Specification
from forestay.formats.ga4gh.tes_reading import state_named
from forestay.formats.ga4gh.tes_task import ENDED, TaskState
from forestay.ports.clock import Clock
from forestay.ports.errors import NotFound, Permanent, PortError, Transient
from forestay.ports.insertion.task_service import Json, Unreached
from forestay.ports.jobs.job_store import JobStore, Record
from forestay.services.insertion.held_tasks import HeldTask, HeldTasks
from forestay.services.insertion.task_completions import REFUSED, body_of
from forestay.services.insertion.task_server_connection import TaskServerConnection, tags_in

NOTES_TOGETHER = 0.1
"""Seconds to wait for more exchanges to record: nothing depends on when one is written."""


class TaskSender:
    """The service, for one server and one tenant."""

    def __init__(
        self,
        name: str,
        server: TaskServerConnection,
        held: HeldTasks,
        store: JobStore,
        clock: Clock,
        *,
        specification: Callable[[str], Coroutine[Any, Any, Specification | None]],
        failure: Callable[[HeldTask, str, str], Awaitable[None]],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        on_event: Callable[[str, Mapping[str, object]], None],
        passed: Callable[[str], None],
    ) -> None:
        """`failure` reports the end of an attempt that cannot be sent: its reason, and a text."""
        self.name = name
        self.server = server
        self.policy = server.policy
        self.held = held
        self.store = store
        self.clock = clock
        self.specification = specification
        self.failure = failure
        self.spawn = spawn
        self.told = on_event
        self.passed = passed
        self.sent = self.adopted = self.doubled = 0
        self._unwritten: list[Record] = []

    async def send(self, task: HeldTask) -> None:
        """Create the task of a claim; reads that the store does not answer now are repeated."""
        while task in self.held:
            try:
                await self._send_once(task)
            except PortError as error:
                self.told("a task waits to be sent", {"job": task.document.id, "detail": str(error)})
                await asyncio.sleep(1.0)
            else:
                return

    async def _send_once(self, held_task: HeldTask) -> None:
        document = held_task.document
        try:
            spec = await self.specification(document.specification)
            if spec is None:
                await self.failure(held_task, REFUSED, "its specification is missing")
                return
            body = body_of(document, spec, self.policy.image)
            held_task.registered = self.policy.callback is not None and not is_polled(document)
            if self.policy.callback is not None and held_task.registered:
                body["tags"][CALLBACK_TAG] = self.policy.callback(document.id)
            task = None if surely_new(document) and not held_task.tried else await self._find(held_task)
            adopted = task is not None
            if task is None and held_task in self.held:
                self.passed("claimed")
                held_task.tried = True
                task = await self._create(held_task, body)
        except Permanent as error:
            await self.failure(held_task, REFUSED, str(error))
            return
        if task is None:
            return  # the claim is lost, or its server was given up
        held_task.task = task
        self.sent += not adopted
        self.adopted += adopted
        self._note(held_task, adopted=adopted)
        if held_task not in self.held:
            self.spawn(self.server.cancel(task))  # taken away while it was sent

    async def _create(self, task: HeldTask, body: Json) -> str | None:
        """The id of the new task. After a creation without a response the server is searched before it is sent again.

        A server that answers other calls but never this one is tried less and less often, and given up in the end like a silent one.
        """
        key = key_of(task.document.id, task.document.token)
        settle, first = self.policy.settle, self.clock.monotonic()
        while task in self.held:
            try:
                made = await self.server.call(self.server.service.create(body, key=key))
            except NotFound as error:
                raise Permanent(f"there is no TES service at this address: {error}") from error
            except Unreached as error:
                if downstream_of(task.document) == ANY_DOWNSTREAM:
                    # Another server may accept it at once; nothing was tried here.
                    await self.failure(task, NOT_STARTED, str(error))
                    return None
                if await self._given_up(task, str(error)):
                    return None
            except Transient as error:
                self.told("a create request got no response", {"job": task.document.id, "detail": str(error)})
                began = self.clock.monotonic()
                while task in self.held:
                    found_task = await self._find(task)
                    if found_task is not None:
                        return found_task
                    if self.clock.monotonic() - began >= settle:
                        break
                    await asyncio.sleep(settle / 4)
                settle = min(self.policy.slow, 2 * settle)
                if self.clock.monotonic() - first >= self.policy.patience:
                    await self.failure(task, SILENT, str(error))
                    return None
            else:
                self.passed("created")
                return made
        return None

    async def _find(self, held_task: HeldTask) -> str | None:
        """The valid task of this job, if its server has one: it runs, or has succeeded. Waits until the server answers."""
        while held_task in self.held:
            try:
                tasks = await self.server.tasks_of(held_task.document.id)
            except Transient as error:
                await self._given_up(held_task, str(error))
                continue
            found_tasks = []
            for task in tasks:
                state = state_named(task.get("state"))
                token = token_named(str(tags_in(task).get(ATTEMPT_TAG, ""))) or Token(0, 0)
                if state is TaskState.COMPLETE or (state not in ENDED and state is not TaskState.CANCELING):
                    found_tasks.append((str(task.get("id", "")), state is TaskState.COMPLETE, token))
            task_id, surplus = chosen(found_tasks)
            for other in surplus:
                self.doubled += 1
                self.told(
                    "a task was created twice", {"job": held_task.document.id, "kept": task_id, "cancelled": other}
                )
                self.spawn(self.server.cancel(other))
            return task_id
        return None

    async def _given_up(self, task: HeldTask, why: str) -> bool:
        """Wait a little for the server; a job for which it was silent too long is returned as a failure, to be sent again later or elsewhere."""
        if self.server.silent < self.policy.patience:
            await self.server.rest()
            return False
        await self.failure(task, SILENT, why)
        await self.server.rest()  # if the completion is not settled, the polling loop reports it again
        return True

    def _note(self, held_task: HeldTask, *, adopted: bool) -> None:
        """Record the exchange, together with others: a lost record is recovered by the task's tags."""
        document = held_task.document
        exchange = Exchange(document.id, document.token, self.name, held_task.task, adopted, held_task.registered)
        record = Record(exchange.name, document.tenant, KIND, document.id, self.clock.now(), exchange.as_plain())
        first = not self._unwritten
        self._unwritten.append(record)
        if first:
            self.spawn(self._write_notes())

    async def _write_notes(self) -> None:
        await asyncio.sleep(NOTES_TOGETHER)
        while self._unwritten:
            records, self._unwritten = self._unwritten, []
            try:
                await self.store.add_records(records)
            except PortError:
                self._unwritten = records + self._unwritten
                await asyncio.sleep(1.0)
