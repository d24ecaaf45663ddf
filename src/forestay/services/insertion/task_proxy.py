"""Forwards jobs to a task server that is not ours: the proxy of paper P0, section 5.

It acts as a pilot. It claims the jobs intended for its server (monitor), creates a task for each there and keeps the mapping (correlator: see
`domain.jobs.conversation`), polls their states in few calls, and reports their completions as a pilot would. A failure is
decided where every failure is decided (recovery): a retried job comes back here, or to another server's relay, as its next attempt, and
its client, which knows only the job's id, does not notice.

Nothing is concluded from silence. A creation without a response is searched by its tags before it is sent again; while a
server is silent its tasks are left alone until the patience ends; a task of an attempt that no longer counts is cancelled.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

from forestay.domain.jobs.conversation import SILENT, is_polled
from forestay.domain.jobs.job_document import ANY_DOWNSTREAM, JobDocument
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import Specification
from forestay.domain.pilots.pilot import RELAY
from forestay.ports.clock import Clock
from forestay.ports.errors import PortError, Transient
from forestay.ports.insertion.task_service import TaskService
from forestay.ports.jobs.job_store import JobStore, Stored
from forestay.services.insertion.held_tasks import HeldTask, HeldTasks
from forestay.services.insertion.task_completions import failure_of
from forestay.services.insertion.task_poller import TaskPoller
from forestay.services.insertion.task_sender import TaskSender
from forestay.services.insertion.task_server_connection import ProxyPolicy, TaskServerConnection
from forestay.services.jobs.job_completions import CompletionReport, CompletionStatus, JobCompletions
from forestay.services.scheduling.claim_dispatcher import ClaimDispatcher
from forestay.services.scheduling.claim_request import ClaimRequest
from forestay.services.shared.background_tasks import BackgroundTasks
from forestay.services.shared.checked_writer import WriteListener

TOGETHER = 0.02
"""Seconds to wait for more changes: they seldom come alone."""
SHARE = 20
"""The wait for the next poll is at most about one part in this many of the task's own duration."""
REST = 1
"""A poll is followed by a pause of at least this many times its own duration, so that polling does not keep a server busy."""
ENOUGH = Resources(cpus=1 << 40, memory=1 << 60, disk=1 << 60, gpus=1 << 30)
"""The resources assumed for a server: it refuses or queues what it cannot run."""


class TaskProxy(WriteListener):
    """The service, for one server and one tenant."""

    def __init__(
        self,
        name: str,
        tenant: str,
        pilot: str,
        service: TaskService,
        claims: ClaimDispatcher,
        completions: JobCompletions,
        store: JobStore,
        clock: Clock,
        *,
        specification: Callable[[str], Coroutine[Any, Any, Specification | None]],
        policy: ProxyPolicy | None = None,
        on_event: Callable[[str, Mapping[str, object]], None] = lambda _event, _facts: None,
        passed: Callable[[str], None] = lambda _point: None,
        seen: Callable[[Sequence[Stored], float], None] = lambda _found, _since: None,
    ) -> None:
        """`passed` is called at named points, for tests that stop there; `seen` with documents that were read, and since when they are current at least."""
        self.name = name
        self.tenant = tenant
        self.pilot = pilot
        self.service = service
        self.claims = claims
        self.completions = completions
        self.store = store
        self.clock = clock
        self.policy = policy or ProxyPolicy()
        self.told = on_event
        self.passed = passed
        self.seen = seen
        self.held = HeldTasks()
        self.ended = 0
        self._background = BackgroundTasks()
        self.server = TaskServerConnection(service, clock, self.policy, on_event)
        self.sending = TaskSender(
            name, self.server, self.held, store, clock, specification=specification, failure=self._failure,
            spawn=self._background.begin, on_event=on_event, passed=passed,
        )  # fmt: skip
        self.looking = TaskPoller(
            name, tenant, self.server, self.held, store, clock, spawn=self._background.begin, on_event=on_event
        )
        self._changed = asyncio.Event()
        self._moved_at = self._next_look = self._asking = 0.0

    async def run(self) -> None:
        """Run until cancelled. Nothing is claimed before the server has answered for the first time."""
        self.server.doubt()
        for task in [held_task for held_task in self.held if not held_task.task and held_task.report is None]:
            self._background.begin(self._send(task))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._claiming(self.name))
                group.create_task(self._claiming(ANY_DOWNSTREAM))
                group.create_task(self._looking())
                group.create_task(self._checking())
        finally:
            self._background.stop()

    def hint(self, task: str, *, only_of: str = "") -> None:
        """Poll a task now that is reported as over. With `only_of`, a sender with rights for one job cannot affect the tasks of others."""
        for held_task in self.held:
            if held_task.task == task and only_of in ("", held_task.document.id):
                held_task.due = True
                self._changed.set()

    def notice(self, stored: Stored) -> None:
        """Called for each document written in this process: if it ends a claim of this relay, its task is cancelled at once."""
        task = self.held.of_job(stored.document.id)
        if task is not None:
            self._still_ours(task, stored.document)
            if task in self.held and task.registered and is_polled(stored.document):
                # From now on it is polled: a rule does not rely on its server's notification any more.
                task.registered, task.due = False, True
                self._changed.set()

    # -- claiming and sending ----------------------------------------------------------------------------------

    async def _claiming(self, downstream: str) -> None:
        while True:
            room = self.policy.most - len(self.held)
            if room <= 0 or not self.server.answers:
                await asyncio.sleep(0.1)
                if not self.server.answers and not self.held:
                    await self.server.answering(self.tenant)
                continue
            request = ClaimRequest(
                pilot=self.pilot, host=self.name, tenant=self.tenant, free=ENOUGH, most=min(room, 100),
                site=f"{RELAY}{self.name}", slots=self.policy.most, downstream=downstream,
            )  # fmt: skip
            granted = await self.claims.claim(request, wait=20.0)
            self.completions.granted(granted)
            for stored in granted:
                claim = stored.document.claim
                assert claim is not None  # noqa: S101 - it was just granted
                self._background.begin(self._send(self.held.add(stored.document, claim)))

    async def _send(self, task: HeldTask) -> None:
        await self.sending.send(task)
        self._moved_at = self.clock.monotonic()
        self._next_look = min(self._next_look, self._moved_at + self._quick)
        self._changed.set()

    @property
    def _quick(self) -> float:
        """Seconds between polls while states change: a server that calls back for all its tasks is polled less often."""
        registered = self.policy.callback is not None and all(task.registered for task in self.held)
        return self.policy.notified if registered else self.policy.quick

    # -- polling -----------------------------------------------------------------------------------------------

    async def _looking(self) -> None:
        """Poll the tasks: soon after a change, less and less often while nothing changes; at once those that are reported as over."""
        while True:
            if not self.held.watched:
                self._changed.clear()
                await self._changed.wait()
                continue
            whole = self.clock.monotonic() >= self._next_look
            self._changed.clear()
            try:
                moved = await self._look(whole=whole)
            except Transient as error:
                self.told("the task server cannot be reached", {"detail": str(error)})
                if self.server.silent >= self.policy.patience:
                    await self._give_up(str(error))
                await self.server.rest()
                continue
            if whole:
                now = self.clock.monotonic()
                if moved:
                    self._moved_at = now
                soon = max(self._quick, REST * self._asking, (now - self._moved_at) / SHARE)
                self._next_look = now + min(self.policy.slow, soon) * random.uniform(0.75, 1.0)  # noqa: S311 - no secret
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._next_look - self.clock.monotonic())):
                    await self._changed.wait()
                await asyncio.sleep(TOGETHER)

    async def _look(self, *, whole: bool) -> bool:
        """Poll once, all tasks or those that are reported as over; returns whether any ended."""
        watched = self.held.watched
        reports = [(task, task.report) for task in watched if task.report is not None]
        since = self.clock.monotonic()
        reports += await self.looking.look(watched, whole=whole)
        self._asking = self.clock.monotonic() - since
        if reports:
            await self._end(reports)
        return bool(reports)

    async def _end(self, reports: Sequence[tuple[HeldTask, CompletionReport]]) -> None:
        """Report completions; one that is not settled is reported again."""
        for task, report in reports:
            task.report = report
        fresh = [(task, report) for task, report in reports if task in self.held]
        try:
            results = await self.completions.end([report for _, report in fresh], pilot=self.pilot, tenant=self.tenant)
        except PortError as error:
            self.told("ends wait", {"detail": str(error)})
            self._changed.set()
            return
        self.passed("ended")
        for (task, _), result in zip(fresh, results, strict=True):
            if result.result is CompletionStatus.UNKNOWN:
                self._changed.set()
            else:
                self.ended += 1
                self.held.drop(task)

    async def _failure(self, task: HeldTask, reason: str, words: str) -> None:
        await self._end([(task, failure_of(task.document, task.claim, reason, words, where=self.name))])

    async def _give_up(self, why: str) -> None:
        """Give up tasks of unknown outcome: the next attempt searches for them before it sends anything."""
        held = list(self.held)
        self.told("the task server is given up for now", {"tasks": len(held), "silent": round(self.server.silent)})
        await self._end([(task, failure_of(task.document, task.claim, SILENT, why, where=self.name)) for task in held])

    # -- what no longer counts ---------------------------------------------------------------------------------

    async def _checking(self) -> None:
        """Check periodically whether the claims are still held: jobs that were cancelled, forced or reclaimed elsewhere are cancelled at the server too."""
        while True:
            await asyncio.sleep(self.policy.check)
            jobs = self.held.jobs
            for start in range(0, len(jobs), 1000):
                since = self.clock.monotonic()
                with suppress(PortError):
                    stored_jobs = await self.store.get(jobs[start : start + 1000])
                    self.seen(list(stored_jobs.values()), since)
                    for stored in stored_jobs.values():
                        self.notice(stored)

    def _still_ours(self, task: HeldTask, document: JobDocument) -> None:
        theirs = document.claim.id if document.claim is not None else ""
        if theirs == task.claim.id or document.token < task.document.token or task.report is not None:
            return
        self.held.drop(task)
        self._background.begin(self._let_go(task))

    async def _let_go(self, held_task: HeldTask) -> None:
        """Cancel the task of a job whose claim is lost, and report it: the completion is late, and kept as such."""
        if held_task.task:
            await self.server.cancel(held_task.task)
        report = failure_of(
            held_task.document, held_task.claim, "downstream-cancelled", "its task was cancelled", where=self.name
        )
        with suppress(PortError):
            await self.completions.end([report], pilot=self.pilot, tenant=self.tenant)
