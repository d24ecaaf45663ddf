"""TES tasks over the job store: reports their state, and ensures that their outputs are delivered.

A task is one Forestay job; a task with outputs has a second, which is held until the first has ended (`formats.ga4gh.tes_job`). Any process that sees that
end releases the second: the server that wrote it, at once; any server that searches for such jobs periodically; and the one that is asked for the task's
state. So it happens whichever process dies meanwhile, and releasing twice is harmless.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

from forestay.domain.jobs.job_document import AttemptOutcome, JobDocument, State
from forestay.formats.ga4gh.tes_job import BRINGS, HOLDER, MARK, OUTPUTS, TASK, outputs_job
from forestay.formats.ga4gh.tes_task import TaskState
from forestay.ports.clock import Clock
from forestay.ports.errors import PortError
from forestay.ports.jobs.job_store import JobQuery, JobStore, Stored
from forestay.services.insertion.task_factory import outputs_of
from forestay.services.insertion.task_states import completion_record, state_of
from forestay.services.jobs.job_control import JobControl
from forestay.services.jobs.job_submitter import JobSubmitter, NewJobListener
from forestay.services.shared.checked_writer import WriteApplied, WriteListener
from forestay.services.shared.recent import Recent

CANCELING = 30_000
"""Milliseconds for which a cancelled task whose pilot has not reported its end is shown as being cancelled."""
EVERY = 5.0
PAGE = 500


@dataclass(slots=True)
class TesTasks(WriteListener):
    """The service; one for each server."""

    label: ClassVar[str] = MARK
    store: JobStore
    submit: JobSubmitter
    steer: JobControl
    clock: Clock
    recall: TaskCache
    _ended: asyncio.Queue[str] = field(default_factory=lambda: asyncio.Queue(10_000))

    # States of tasks

    async def find(self, job: str) -> Stored | None:
        """The job of a task; if it was written or read here a moment ago, that copy."""
        return self.recall.recall(job) or (await self.store.get([job])).get(job)

    async def states(self, jobs: Sequence[Stored]) -> Mapping[str, TaskState]:
        """The TES states of these tasks; tasks that are being recovered are shown as waiting or running."""
        ended = [job.document for job in jobs if job.document.final and BRINGS in job.document.labels]
        beside = await self.store.get([outputs_job(document.id) for document in ended]) if ended else {}
        states: dict[str, TaskState] = {}
        for job in jobs:
            document = job.document
            other = beside.get(outputs_job(document.id))
            state = state_of(document, other.document if other is not None else None)
            if state is TaskState.CANCELED and await self._still_stopping(document):
                state = TaskState.CANCELING
            states[document.id] = state
            if document.final and BRINGS in document.labels and (other is None or HOLDER in other.document.holders):
                self._look_at(document.id)
        return states

    async def _still_stopping(self, document: JobDocument) -> bool:
        """Whether the pilot of a cancelled task has yet to report that nothing of it is left."""
        claim = document.former_claim
        if claim is None or self.clock.now() - document.changed > CANCELING:
            return False
        by = next((line.by for line in reversed(document.history) if line.event == "claim"), "")
        return await self.store.get_record(completion_record(document, claim, "late-completion", by)) is None

    async def completion_notes(self, document: JobDocument) -> Mapping[str, object]:
        """The record that the pilot of the deciding attempt sent with its completion."""
        last = document.winner or document.last
        if last is None:
            return {}
        kind = "log" if last.outcome is AttemptOutcome.OK else "evidence"
        names = (line.by for line in document.history if last.claim in line.note and line.event != "claim")
        by = next(names, "")
        record = await self.store.get_record(
            f"{document.id}:{last.token.generation}.{last.token.attempt}:{last.claim}:{kind}:{by}"
        )
        return record.body if record is not None else {}

    # Outputs

    async def cancel(self, stored: Stored, *, by: str) -> object:
        """Cancel a task; one that has ended does not change."""
        answer = await self.steer.cancel(stored.document.id, by=by, reason="requested through TES")
        if BRINGS in stored.document.labels:
            await self.steer.cancel(outputs_job(stored.document.id), by=by, reason="its task was cancelled")
        return answer

    def notice(self, stored: Stored) -> None:
        """Called for each document written in this process: the outputs of an ended task have to be delivered."""
        self.recall.notice(stored)
        if BRINGS in stored.document.labels and stored.document.final:
            self._look_at(stored.document.id)

    def _look_at(self, job: str) -> None:
        if not self._ended.full():
            self._ended.put_nowait(job)

    async def run(self) -> None:
        """Release jobs of outputs until cancelled, and search periodically for those that nobody released."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._let_go_noticed())
            while True:
                await asyncio.sleep(EVERY)
                try:
                    await self._sweep()
                except PortError:
                    continue  # the next poll finds them

    async def _let_go_noticed(self) -> None:
        while True:
            jobs = {await self._ended.get()}
            while not self._ended.empty():
                jobs.add(self._ended.get_nowait())
            try:
                stored_jobs = await self.store.get(sorted(jobs))
                await asyncio.gather(*(self._let_go(stored_job.document) for stored_job in stored_jobs.values()))
            except PortError:
                await asyncio.sleep(1.0)  # the sweep finds them

    async def _sweep(self) -> None:
        query = JobQuery(labels={MARK: OUTPUTS}, held=True, states=frozenset({State.AVAILABLE}))
        cursor: str | None = None
        while True:
            page = await self.store.search(query, limit=PAGE, cursor=cursor)
            tasks = sorted({str(job.document.parameters.get("task")) for job in page.jobs})
            stored_jobs = await self.store.get(tasks)
            for stored_job in stored_jobs.values():
                if stored_job.document.final:
                    await self._let_go(stored_job.document)
            cursor = page.cursor
            if cursor is None:
                return

    async def _let_go(self, task: JobDocument) -> None:
        """Release or cancel the delivery of an ended task's outputs."""
        if not task.final or BRINGS not in task.labels:
            return
        job = outputs_job(task.id)
        ending = task.winner or task.last
        if task.state is State.CANCELLED or ending is None or ending.manifest is None:
            await self.steer.cancel(job, by=HOLDER, reason="there is nothing to copy")
            return
        answer = await self.steer.let_go(job, holder=HOLDER, by=HOLDER)
        if not isinstance(answer, WriteApplied):
            stored_jobs = await self.store.get([job])
            if job not in stored_jobs:  # the server died between the two writes
                submission = outputs_of(task.id, task.tenant, task.owner, task.name, task.priority)
                await self.submit.submit_named([replace(submission, holders=())], [job], by=HOLDER)


FRESH = 3.0
"""Seconds; a little more than the interval between a relay's checks of its claims."""
MOST = 2_000


class _CachedTask(NamedTuple):
    since: float
    """The time at which it was current at least."""
    stored: Stored


@dataclass(slots=True)
class TaskCache(NewJobListener):
    """Caches the jobs of tasks that this server wrote or read a moment ago: clients request the same few tasks again and again.

    Writes through this server are visible at once. Writes of others, a reconciler or another server, are visible after ``FRESH`` at the latest; the
    jobs that a relay holds are read together every few seconds in any case, so that a poll for one of them needs no read of its own.
    """

    clock: Clock
    _known: Recent[str, _CachedTask] = field(default_factory=lambda: Recent(MOST))

    def recall(self, job: str) -> Stored | None:
        """The recent copy of a job, if there is one."""
        known = self._known.get(job)
        return known.stored if known is not None and self.clock.monotonic() - known.since <= FRESH else None

    def notice(self, stored: Stored) -> None:
        """Called for each document written in this process."""
        self._put(stored, self.clock.monotonic())

    def created(self, jobs: Sequence[Stored]) -> None:
        for stored in jobs:
            self.notice(stored)

    def seen(self, jobs: Sequence[Stored], since: float) -> None:
        """Add documents read by a request made at `since`: what was written here meanwhile is newer."""
        for stored in jobs:
            known = self._known.get(stored.document.id)
            if known is None or known.since < since:
                self._put(stored, since)

    def _put(self, stored: Stored, since: float) -> None:
        if stored.document.labels.get(MARK) == TASK:
            self._known[stored.document.id] = _CachedTask(since, stored)
