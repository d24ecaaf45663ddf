"""Forwards jobs to a task server that is not ours: the proxy of paper P0, section 5.

It takes the place of a pilot. It claims the jobs that are meant for its server (monitor), makes a task of each there and keeps who is who (correlator: see
`domain.jobs.conversation`), asks in few calls how they stand, and brings their ends as a pilot would. What to do about an end that is not good is
decided where every failure is decided (recovery): a job that is tried again comes back here, or to another server's relay, as its next attempt, and
its client, who knows the job's id alone, sees nothing of it.

What the server does not say is not concluded. A creation that was not answered is looked for by its tags before it is sent again; while a
server is silent its tasks are left alone until patience ends; a task of an attempt that no longer counts is cancelled.
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
from forestay.services.shared.background_tasks import BackgroundTasks
from forestay.services.shared.checked_writer import WriteListener

TOGETHER = 0.02
"""Seconds to wait for more of what moves: it seldom moves alone."""
SHARE = 20
"""Nobody waits for the next look much longer than this part of what the task itself took."""
REST = 1
"""Asking is followed by a rest of so many times its own length, at least: a server is not kept busy by being asked."""
ENOUGH = Resources(cpus=1 << 40, memory=1 << 60, disk=1 << 60, gpus=1 << 30)
"""What a server is taken to have: what it cannot run it refuses or queues itself."""


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
        """`passed` is called at named points, for tests that stop there; `seen` with the documents that were read, and since when they are so at least."""
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
        """Until cancelled. Nothing is claimed before the server has answered for the first time."""
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
        """Someone says that a task is over: it is looked at now. Who may speak of a single job only changes nothing for the tasks of others."""
        for held_task in self.held:
            if held_task.task == task and only_of in ("", held_task.document.id):
                held_task.due = True
                self._changed.set()

    def notice(self, stored: Stored) -> None:
        """A document was written here: if it takes a job of ours away, its task is cancelled at once."""
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
            granted = await self.claims.claim(
                pilot=self.pilot, host=self.name, tenant=self.tenant, free=ENOUGH, most=min(room, 100), wait=20.0,
                site=f"{RELAY}{self.name}", slots=self.policy.most, downstream=downstream,
            )  # fmt: skip
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
        """Seconds between looks while things move: one that calls back for all its tasks need not be asked as often."""
        registered = self.policy.callback is not None and all(task.registered for task in self.held)
        return self.policy.notified if registered else self.policy.quick

    # -- looking -----------------------------------------------------------------------------------------------

    async def _looking(self) -> None:
        """Ask how the tasks stand: soon after something moved, ever less often while nothing does; at once for those that are said to be over."""
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
        """One round, over all or those that are said to be over; says whether anything ended."""
        watched = self.held.watched
        reports = [(task, task.report) for task in watched if task.report is not None]
        since = self.clock.monotonic()
        reports += await self.looking.look(watched, whole=whole)
        self._asking = self.clock.monotonic() - since
        if reports:
            await self._end(reports)
        return bool(reports)

    async def _end(self, reports: Sequence[tuple[HeldTask, CompletionReport]]) -> None:
        """Bring ends; one that is not settled is brought again."""
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
        """Nobody knows what became of the tasks: the next attempt looks for them before it sends anything."""
        held = list(self.held)
        self.told("the task server is given up for now", {"tasks": len(held), "silent": round(self.server.silent)})
        await self._end([(task, failure_of(task.document, task.claim, SILENT, why, where=self.name)) for task in held])

    # -- what no longer counts ---------------------------------------------------------------------------------

    async def _checking(self) -> None:
        """See now and then whether the jobs are still ours: what was cancelled, forced or taken away elsewhere is cancelled at the server too."""
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
        """Cancel the task of a job that is not ours any more, and say so: the end is late, and kept as that."""
        if held_task.task:
            await self.server.cancel(held_task.task)
        report = failure_of(
            held_task.document, held_task.claim, "downstream-cancelled", "its task was cancelled", where=self.name
        )
        with suppress(PortError):
            await self.completions.end([report], pilot=self.pilot, tenant=self.tenant)
