"""Carries jobs to a task server that is not ours: the proxy of paper P0, section 5.

It takes the place of a pilot. It claims the jobs that are meant for its server (monitor), makes a task of each there and keeps who is who (correlator: see
`domain.jobs.conversation`), asks in few calls how they stand, and brings their ends as a pilot would. What to do about an end that is not good is
decided where every fault is decided (recovery): a job that is tried again comes back here, or to another server's relay, as its next attempt, and
its client, who knows the job's id alone, sees nothing of it.

What the server does not say is not concluded. A creation that was not answered is looked for by its tags before it is sent again; while a
server is silent its tasks are left alone until patience ends; a task of an attempt that no longer counts is cancelled.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from holdfast.domain.jobs.claim import NOT_STARTED
from holdfast.domain.jobs.conversation import (
    ATTEMPT_TAG,
    CALLBACK_TAG,
    JOB_TAG,
    KIND,
    RELAY_TAG,
    SILENT,
    Exchange,
    chosen,
    key_of,
    surely_new,
    token_named,
)
from holdfast.domain.jobs.job_document import ANY_DOWNSTREAM, Claim, JobDocument, Token, downstream_of
from holdfast.domain.jobs.resources import Resources
from holdfast.domain.jobs.specification import Specification
from holdfast.domain.pilots.pilot import RELAY
from holdfast.formats.tes_reading import read_shown_task, state_named
from holdfast.formats.tes_task import ENDED, TaskState
from holdfast.ports.clock import Clock
from holdfast.ports.errors import NotFound, Permanent, PortError, Transient
from holdfast.ports.job_store import JobStore, Record, Stored
from holdfast.ports.task_service import Json, TaskService, Unreached
from holdfast.services.claim_jobs import ClaimJobs
from holdfast.services.end_jobs import EndJobs, EndReport, Result
from holdfast.services.reach_task_server import ReachTaskServer, RelayPolicy, tags_in
from holdfast.services.read_task_ends import LIVE, LOST, REFUSED, body_of, end_of, fault_of

TOGETHER = 0.02
"""Seconds to wait for more of what moves: it seldom moves alone."""
ENOUGH = Resources(cpus=1 << 40, memory=1 << 60, disk=1 << 60, gpus=1 << 30)
"""What a server is taken to have: what it cannot run it refuses or queues itself."""


@dataclass(slots=True, eq=False)
class _Held:
    """One claim of ours, and its task."""

    document: JobDocument
    claim: Claim
    task: str = ""
    tried: bool = False
    """Its creation was begun; whether it took place is known only once it has a task."""
    missing: int = 0
    """Looks in a row at which the server did not know it."""
    due: bool = False
    """Someone said that it is over."""
    report: EndReport | None = None
    """Its end, until that is settled."""


class RelayTasks:
    """The service, for one server and one tenant."""

    def __init__(
        self,
        name: str,
        tenant: str,
        pilot: str,
        service: TaskService,
        claims: ClaimJobs,
        ends: EndJobs,
        store: JobStore,
        clock: Clock,
        *,
        specification: Callable[[str], Coroutine[Any, Any, Specification | None]],
        policy: RelayPolicy | None = None,
        told: Callable[[str, Mapping[str, object]], None] = lambda _event, _facts: None,
        passed: Callable[[str], None] = lambda _point: None,
    ) -> None:
        """`passed` is called at named points, for tests that stop there."""
        self.name = name
        self.tenant = tenant
        self.pilot = pilot
        self.service = service
        self.claims = claims
        self.ends = ends
        self.store = store
        self.clock = clock
        self.specification = specification
        self.policy = policy or RelayPolicy()
        self.told = told
        self.passed = passed
        self.held: dict[str, _Held] = {}
        """By claim."""
        self.sent = self.adopted = self.doubled = self.ended = 0
        self._by_job: dict[str, str] = {}
        self._changed = asyncio.Event()
        self.server = ReachTaskServer(service, clock, self.policy, told)
        self._moved_at = self._next_look = 0.0
        self._lists = True
        """Whether the server does as it is asked when it lists by tags and state."""
        self._unwritten: list[Record] = []
        self._known_strays: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until cancelled. Nothing is claimed before the server has answered for the first time."""
        self.server.doubt()
        for one in [one for one in self.held.values() if not one.task and one.report is None]:
            self._spawn(self._send(one))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._claiming(self.name))
                group.create_task(self._claiming(ANY_DOWNSTREAM))
                group.create_task(self._looking())
                group.create_task(self._checking())
        finally:
            for task in self._tasks:
                task.cancel()

    def hint(self, task: str) -> None:
        """Someone says that a task is over: it is looked at now."""
        for one in self.held.values():
            if one.task == task:
                one.due = True
                self._changed.set()

    def notice(self, stored: Stored) -> None:
        """A document was written here: if it takes a job of ours away, its task is cancelled at once."""
        claim = self._by_job.get(stored.document.id)
        if claim is not None:
            self._still_ours(self.held[claim], stored.document)

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
            self.ends.granted(granted)
            for stored in granted:
                claim = stored.document.claim
                assert claim is not None  # noqa: S101 - it was just granted
                self.held[claim.id] = one = _Held(stored.document, claim)
                self._by_job[stored.document.id] = claim.id
                self._spawn(self._send(one))

    async def _send(self, one: _Held) -> None:
        """Make the task of a claim, once; what the store does not say now is asked again."""
        while one.claim.id in self.held:
            try:
                await self._send_once(one)
            except PortError as error:
                self.told("a task waits to be sent", {"job": one.document.id, "detail": str(error)})
                await asyncio.sleep(1.0)
            else:
                return

    async def _send_once(self, one: _Held) -> None:
        document = one.document
        try:
            spec = await self.specification(document.specification)
            if spec is None:
                await self._end(
                    [(one, fault_of(document, one.claim, REFUSED, "its specification is missing", where=self.name))]
                )
                return
            body = body_of(document, spec, self.policy.image)
            if self.policy.callback:
                body["tags"][CALLBACK_TAG] = self.policy.callback
            task = None if surely_new(document) and not one.tried else await self._find(one)
            adopted = task is not None
            if task is None and one.claim.id in self.held:
                self.passed("claimed")
                one.tried = True
                task = await self._create(one, body)
        except Permanent as error:
            await self._end([(one, fault_of(document, one.claim, REFUSED, str(error), where=self.name))])
            return
        if task is None:
            return  # it is not ours any more, or its server was given up
        one.task = task
        self.sent += not adopted
        self.adopted += adopted
        self._note(one, adopted=adopted)
        self._move()
        if one.claim.id not in self.held:
            self._spawn(self.server.cancel(task))  # taken away while it was sent

    async def _create(self, one: _Held, body: Json) -> str | None:
        """The id of the new task. Of a creation that was not answered the server is asked, before it is sent again."""
        key = key_of(one.document.id, one.document.token)
        while one.claim.id in self.held:
            try:
                made = await self.server.call(self.service.create(body, key=key))
            except NotFound as error:
                raise Permanent(f"it has no tasks at this address: {error}") from error
            except Unreached as error:
                if downstream_of(one.document) == ANY_DOWNSTREAM:
                    # Another server may take it at once; nothing was tried here.
                    await self._end(
                        [(one, fault_of(one.document, one.claim, NOT_STARTED, str(error), where=self.name))]
                    )
                    return None
                if await self._given_up(one, str(error)):
                    return None
            except Transient as error:
                self.told("a creation was not answered", {"job": one.document.id, "detail": str(error)})
                began = self.clock.monotonic()
                while one.claim.id in self.held:
                    found = await self._find(one)
                    if found is not None:
                        return found
                    if self.clock.monotonic() - began >= self.policy.settle:
                        break
                    await asyncio.sleep(self.policy.settle / 4)
            else:
                self.passed("created")
                return made
        return None

    async def _find(self, one: _Held) -> str | None:
        """The task of this job that counts, if its server has one: it runs, or has ended well. Waits until the server answers."""
        while one.claim.id in self.held:
            try:
                tasks = await self.server.tasks_of(one.document.id)
            except Transient as error:
                await self._given_up(one, str(error))
                continue
            found = []
            for task in tasks:
                state = state_named(task.get("state"))
                token = token_named(str(tags_in(task).get(ATTEMPT_TAG, ""))) or Token(0, 0)
                if state is TaskState.COMPLETE or (state not in ENDED and state is not TaskState.CANCELING):
                    found.append((str(task.get("id", "")), state is TaskState.COMPLETE, token))
            task_id, surplus = chosen(found)
            for other in surplus:
                self.doubled += 1
                self.told("a task was made twice", {"job": one.document.id, "kept": task_id, "cancelled": other})
                self._spawn(self.server.cancel(other))
            return task_id
        return None

    async def _given_up(self, one: _Held, why: str) -> bool:
        """Wait for the server a little; a job for which it was silent too long is given back as a fault, to be sent again later or elsewhere."""
        if self.server.silent < self.policy.patience:
            await self.server.rest()
            return False
        await self._end([(one, fault_of(one.document, one.claim, SILENT, why, where=self.name))])
        await self.server.rest()  # should the end not be settled, it is brought again by whoever looks
        return True

    def _note(self, one: _Held, *, adopted: bool) -> None:
        """Write the exchange down, together with others: what is lost of it is found again by its tags."""
        document = one.document
        exchange = Exchange(document.id, document.token, self.name, one.task, adopted, bool(self.policy.callback))
        record = Record(exchange.name, document.tenant, KIND, document.id, self.clock.now(), exchange.as_plain())
        first = not self._unwritten
        self._unwritten.append(record)
        if first:
            self._spawn(self._write_notes())

    async def _write_notes(self) -> None:
        await asyncio.sleep(0.02)
        while self._unwritten:
            records, self._unwritten = self._unwritten, []
            try:
                await self.store.add_records(records)
            except PortError:
                self._unwritten = records + self._unwritten
                await asyncio.sleep(1.0)

    # -- looking -----------------------------------------------------------------------------------------------

    async def _looking(self) -> None:
        """Ask how the tasks stand: soon after something moved, ever less often while nothing does; at once for those that are said to be over."""
        while True:
            if not any(one.task or one.report for one in self.held.values()):
                self._changed.clear()
                await self._changed.wait()
                continue
            whole = self.clock.monotonic() >= self._next_look
            self._changed.clear()
            try:
                moved = await self._look(whole=whole)
            except Transient as error:
                self.told("the task server is not reached", {"detail": str(error)})
                if self.server.silent >= self.policy.patience:
                    await self._give_up(str(error))
                await self.server.rest()
                continue
            if whole:
                now = self.clock.monotonic()
                if moved:
                    self._moved_at = now
                # So nobody waits for the next look much longer than a tenth of what the task itself took.
                pause = min(self.policy.slow, max(self.policy.quick, (now - self._moved_at) / 10))
                self._next_look = now + pause * random.uniform(0.75, 1.0)  # noqa: S311 - no secret
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._next_look - self.clock.monotonic())):
                    await self._changed.wait()
                await asyncio.sleep(TOGETHER)

    async def _look(self, *, whole: bool) -> bool:
        """One round, over all or those that are said to be over; says whether anything ended."""
        watched = [one for one in self.held.values() if one.task or one.report]
        live = await self._live() if whole and self._lists and len(watched) > len(LIVE) else set()
        asked = [one for one in watched if one.report is None and (one.due or (whole and one.task not in live))]
        reports: list[tuple[_Held, EndReport]] = [(one, one.report) for one in watched if one.report is not None]
        for one, found in zip(asked, await asyncio.gather(*(self._ask(one) for one in asked)), strict=True):
            if found is not None:
                reports.append((one, found))
        if reports:
            await self._end(reports)
        return bool(reports)

    async def _live(self) -> set[str]:
        """The tasks of ours that are under way, in few calls."""
        live: set[str] = set()
        mine = {one.task for one in self.held.values()}
        for state in LIVE:
            page = ""
            while True:
                listed = await self.server.call(
                    self.service.listed(tags={RELAY_TAG: self.tenant}, state=state.value, page=page, size=1000)
                )
                for task in listed.tasks:
                    if task.get("state") != state.value:
                        self._lists = False  # it does not filter: each task is asked for by itself from now on
                        return set()
                    live.add(str(task.get("id", "")))
                page = listed.next
                if not page:
                    break
        for stray in live - mine - self._known_strays:
            self._known_strays.add(stray)
            self._spawn(self._stray(stray))
        return live

    async def _ask(self, one: _Held) -> EndReport | None:
        """How one task stands; its end if it is over."""
        try:
            task = read_shown_task(await self.server.call(self.service.get(one.task, full=True)))
        except NotFound as error:
            one.missing += 1
            if one.missing < 2:
                return None
            self.told("a task is lost", {"job": one.document.id, "task": one.task})
            return fault_of(one.document, one.claim, LOST, str(error), where=self.name)
        except (ValueError, Permanent):
            return None
        one.missing, one.due = 0, False
        if task.state not in ENDED:
            return None
        return end_of(one.document, one.claim, task, where=self.name, now=self.clock.now())

    async def _end(self, reports: Sequence[tuple[_Held, EndReport]]) -> None:
        """Bring ends; one that is not settled is brought again."""
        for one, report in reports:
            one.report = report
        fresh = [(one, report) for one, report in reports if one.claim.id in self.held]
        try:
            results = await self.ends.end([report for _, report in fresh], pilot=self.pilot, tenant=self.tenant)
        except PortError as error:
            self.told("ends wait", {"detail": str(error)})
            self._changed.set()
            return
        self.passed("ended")
        for (one, _), result in zip(fresh, results, strict=True):
            if result.result is Result.UNKNOWN:
                self._changed.set()
            else:
                self.ended += 1
                self._drop(one)

    async def _give_up(self, why: str) -> None:
        """Nobody knows what became of the tasks: the next attempt looks for them before it sends anything."""
        watched = list(self.held.values())
        self.told("the task server is given up for now", {"tasks": len(watched), "silent": round(self.server.silent)})
        await self._end([(one, fault_of(one.document, one.claim, SILENT, why, where=self.name)) for one in watched])

    # -- what no longer counts ---------------------------------------------------------------------------------

    async def _checking(self) -> None:
        """See now and then whether the jobs are still ours: what was cancelled, forced or taken away elsewhere is cancelled at the server too."""
        while True:
            await asyncio.sleep(self.policy.check)
            jobs = list(self._by_job)
            for start in range(0, len(jobs), 1000):
                with suppress(PortError):
                    found = await self.store.get(jobs[start : start + 1000])
                    for job, stored in found.items():
                        if claim := self._by_job.get(job):
                            self._still_ours(self.held[claim], stored.document)

    def _still_ours(self, one: _Held, document: JobDocument) -> None:
        theirs = document.claim.id if document.claim is not None else ""
        if theirs == one.claim.id or document.token < one.document.token or one.report is not None:
            return
        self._drop(one)
        self._spawn(self._let_go(one))

    async def _let_go(self, one: _Held) -> None:
        """Cancel the task of a job that is not ours any more, and say so: the end is late, and kept as that."""
        if one.task:
            await self.server.cancel(one.task)
        report = fault_of(one.document, one.claim, "downstream-cancelled", "its task was cancelled", where=self.name)
        with suppress(PortError):
            await self.ends.end([report], pilot=self.pilot, tenant=self.tenant)

    async def _stray(self, task: str) -> None:
        """A task of this tenant that is none of ours here: cancelled if its job has ended, or goes on as another task."""
        with suppress(PortError, ValueError):
            shown = await self.server.call(self.service.get(task, full=True))
            job, token = str(tags_in(shown).get(JOB_TAG, "")), token_named(str(tags_in(shown).get(ATTEMPT_TAG, "")))
            stored = (await self.store.get([job])).get(job) if job else None
            if stored is None or token is None or stored.document.tenant != self.tenant:
                return
            document = stored.document
            other = await self.store.get_record(Exchange(job, document.token, "", "").name)
            gone_on = other is not None and other.body.get("task") != task and document.token > token
            if document.final or gone_on:
                self.told("a task is left over", {"job": job, "task": task})
                await self.server.cancel(task)
            elif document.claim is not None:
                self._known_strays.discard(task)  # looked at again: it may be left over one day

    def _drop(self, one: _Held) -> None:
        self.held.pop(one.claim.id, None)
        if self._by_job.get(one.document.id) == one.claim.id:
            del self._by_job[one.document.id]

    def _move(self) -> None:
        self._moved_at = self.clock.monotonic()
        self._next_look = min(self._next_look, self._moved_at + self.policy.quick)
        self._changed.set()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
