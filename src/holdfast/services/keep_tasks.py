"""Keeps TES tasks over the job store: makes their jobs, shows how they stand, and sees to it that outputs are brought away.

A task is one job of the house; one with outputs has a second, which is held until the first has ended (`formats.tes_job`). Whoever sees that end lets the
second go: the server that wrote it, at once; any server that looks for such jobs now and then; and whoever is asked how the task stands. So it
happens whoever dies meanwhile, and to let go twice is harmless.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from uuid import NAMESPACE_URL, uuid5
from weakref import WeakValueDictionary

import orjson

from holdfast.domain.jobs.job_document import JobDocument, Outcome, Phase, State
from holdfast.domain.jobs.specification import Specification
from holdfast.domain.jobs.submission import Submission
from holdfast.formats.job_json import specification_to_json
from holdfast.formats.tes_job import (
    BRINGS,
    HOLDER,
    MARK,
    OUTPUTS,
    TASK,
    Asked,
    labels_of,
    outputs_job,
    outputs_priority,
    outputs_specification,
    specification_of,
)
from holdfast.formats.tes_task import Task, TaskState
from holdfast.ports.clock import Clock
from holdfast.ports.errors import Conflict, PortError
from holdfast.ports.job_store import JobQuery, JobStore, Record, Stored
from holdfast.services.know_specifications import KnowSpecifications
from holdfast.services.recall_tasks import RecallTasks
from holdfast.services.steer_jobs import SteerJobs
from holdfast.services.submit_jobs import SubmitJobs, specification_named
from holdfast.services.write_checked import Settled

WINDOW = 60_000
"""Milliseconds: a request that is the same as one of this or the last window may be its repeat."""
PATIENCE = (0.05, 0.15, 0.4)
"""Seconds between looks for the word of another server that its answer was sent."""
TOGETHER = 0.03
"""Seconds to wait for more such words: they are written together."""
AT_ONCE = 32
"""Tasks of one text in a window that are looked at together."""
REMEMBER = 10_000
CANCELING = 30_000
"""Milliseconds for which a cancelled task whose pilot has not told its end is shown as being cancelled."""
EVERY = 5.0
PAGE = 500


class Made(NamedTuple):
    """A task that stands."""

    id: str
    created: bool
    """False: an earlier request had made it."""
    text: str = ""
    """The digest of what was asked, where a repeat is known by it."""


class _Last(NamedTuple):
    """The last task that was made of a text here."""

    window: int
    number: int
    told: bool
    """Whether its id was sent to the client."""


@dataclass(slots=True)
class KeepTasks:
    """The service; one a server."""

    store: JobStore
    submit: SubmitJobs
    steer: SteerJobs
    clock: Clock
    recall: RecallTasks
    specifications: KnowSpecifications
    _made: OrderedDict[str, _Last] = field(default_factory=OrderedDict)
    _turns: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    _ended: asyncio.Queue[str] = field(default_factory=lambda: asyncio.Queue(10_000))
    _marks: list[Record] = field(default_factory=list)
    _marking: asyncio.Event = field(default_factory=asyncio.Event)

    # Creation

    async def create(
        self,
        task: Task,
        *,
        tenant: str,
        owner: str,
        asked: Asked,
        warnings: Sequence[str],
        key: str | None,
        fallback: bool = False,
    ) -> Made:
        """Make a task. With a key a repeat gives the same task; without, a repeat is known by its text while the first answer was not sent.

        ``fallback`` says that the request came to the path that clients try when the first one failed them: there a text that was just taken by the
        first path is its repeat, also when the answer was sent and got lost.
        `Transient` when the store did not acknowledge it: it may stand, and the same request again finds it.
        """
        spec = _named(specification_of(task, tenant, asked, warnings))
        text = orjson.dumps([owner, spec.id, asked.priority])
        digest = hashlib.sha256(text).hexdigest()
        if key is not None:
            made = await self._make(task, spec, _job_of(tenant, owner, "key", key), owner=owner, asked=asked)
            return await self._the_same(made, spec)
        async with self._turns.setdefault(digest, asyncio.Lock()):
            if fallback:
                first = await self._last_of(digest, self.clock.now() // WINDOW)
                if first is not None and not await self._ended_already(digest, first):
                    job = _job_of(digest, first.window, first.number)
                    return await self._make(task, spec, job, owner=owner, asked=asked)
                digest += "-fallback"
            return await self._create_once(task, spec, digest, owner=owner, asked=asked)

    async def _create_once(self, task: Task, spec: Specification, digest: str, *, owner: str, asked: Asked) -> Made:
        window = self.clock.now() // WINDOW
        last = await self._last_of(digest, window)
        if last is not None and not last.told and not await self._ended_already(digest, last):
            made = await self._make(task, spec, _job_of(digest, last.window, last.number), owner=owner, asked=asked)
            self._remember(digest, last)
            return made._replace(text=digest)
        number = last.number + 1 if last is not None and last.window == window else 0
        while True:
            job = _job_of(digest, window, number)
            self._remember(digest, _Last(window, number, told=False))
            made = await self._make(task, spec, job, owner=owner, asked=asked)
            if made.created or not await self._told_elsewhere(job):
                return made._replace(text=digest)
            number += 1  # another server has made one of the same text meanwhile, and told so

    async def _last_of(self, digest: str, window: int) -> _Last | None:
        last = self._made.get(digest)
        return await self._last_elsewhere(digest, window) if last is None or last.window < window - 1 else last

    async def _the_same(self, made: Made, spec: Specification) -> Made:
        """One key is for one task."""
        if not made.created:
            stored = (await self.store.get([made.id])).get(made.id)
            if stored is not None and stored.document.specification != spec.id:
                raise Conflict("this key was used for another task; use a new key for a new one")
        return made

    async def _last_elsewhere(self, digest: str, window: int) -> _Last | None:
        """What other servers, or this one before it was started anew, made of the same text."""
        firsts = {place: _job_of(digest, place, 0) for place in (window, window - 1)}
        known = await self.store.get(list(firsts.values()))
        for place, first in firsts.items():
            if first not in known:
                continue
            number = 0
            while True:
                names = [_job_of(digest, place, number + step) for step in range(AT_ONCE)]
                found = await self.store.get(names)
                number += len(found)
                if len(found) < AT_ONCE:
                    break
            return _Last(place, number - 1, await self._told_elsewhere(_job_of(digest, place, number - 1)))
        return None

    async def _told_elsewhere(self, job: str) -> bool:
        """Whether the id was sent to a client; the word of it comes a moment after the task."""
        for pause in (*PATIENCE, None):
            if await self.store.get_record(_mark(job)) is not None:
                return True
            if pause is not None:
                await asyncio.sleep(pause)
        return False

    async def _ended_already(self, digest: str, last: _Last) -> bool:
        job = _job_of(digest, last.window, last.number)
        stored = (await self.store.get([job])).get(job)
        return stored is not None and stored.document.final

    def told(self, made: Made, tenant: str) -> None:
        """The id of a task was sent to its client: the same request again asks for another."""
        last = self._made.get(made.text)
        if last is None or last.told or _job_of(made.text, last.window, last.number) != made.id:
            return
        self._made[made.text] = last._replace(told=True)
        self._marks.append(Record(_mark(made.id), tenant, "tes-told", made.id, self.clock.now(), {}))
        self._marking.set()

    def _remember(self, digest: str, last: _Last) -> None:
        self._made[digest] = last
        self._made.move_to_end(digest)
        while len(self._made) > REMEMBER:
            self._made.popitem(last=False)

    async def _make(self, task: Task, spec: Specification, job: str, *, owner: str, asked: Asked) -> Made:
        submissions = [
            Submission(
                spec,
                owner,
                name=spec.name,
                labels=labels_of(task, asked.downstream),
                priority=asked.priority,
                downstream=asked.downstream,
                callback=asked.callback or None,
            ),
        ]
        names = [job]
        if task.outputs and not asked.downstream:
            submissions.append(_outputs_of(job, spec.tenant, owner, spec.name, asked.priority))
            names.append(outputs_job(job))
        self.specifications.know([spec])
        accepted = await self.submit.submit_named(submissions, names, by=owner)
        return Made(job, accepted[0].created)

    # How tasks stand

    async def find(self, job: str) -> Stored | None:
        """The job of a task; of one that was written or read here a moment ago, as it was then."""
        return self.recall.recall(job) or (await self.store.get([job])).get(job)

    async def states(self, jobs: Sequence[Stored]) -> Mapping[str, TaskState]:
        """How these tasks stand, in the words of TES; what is being mended is shown as waiting or running."""
        ended = [one.document for one in jobs if one.document.final and BRINGS in one.document.labels]
        beside = await self.store.get([outputs_job(one.id) for one in ended]) if ended else {}
        states: dict[str, TaskState] = {}
        for one in jobs:
            document = one.document
            other = beside.get(outputs_job(document.id))
            state = state_of(document, other.document if other is not None else None)
            if state is TaskState.CANCELED and await self._still_stopping(document):
                state = TaskState.CANCELING
            states[document.id] = state
            if document.final and BRINGS in document.labels and (other is None or HOLDER in other.document.holders):
                self._look_at(document.id)
        return states

    async def _still_stopping(self, document: JobDocument) -> bool:
        """Whether the pilot of a cancelled task has not told yet that nothing of it is left."""
        claim = document.former_claim
        if claim is None or self.clock.now() - document.changed > CANCELING:
            return False
        by = next((line.by for line in reversed(document.history) if line.event == "claim"), "")
        return await self.store.get_record(end_record(document, claim, "late-end", by)) is None

    async def end_notes(self, document: JobDocument) -> Mapping[str, object]:
        """What the pilot of the deciding attempt told beside its end: the record of it."""
        last = document.winner or document.last
        if last is None:
            return {}
        kind = "log" if last.outcome is Outcome.OK else "evidence"
        told = (line.by for line in document.history if last.claim in line.note and line.event != "claim")
        by = next(told, "")
        record = await self.store.get_record(
            f"{document.id}:{last.token.generation}.{last.token.attempt}:{last.claim}:{kind}:{by}"
        )
        return record.body if record is not None else {}

    # Outputs

    async def cancel(self, stored: Stored, *, by: str) -> object:
        """End a task; one that has ended stays as it is."""
        answer = await self.steer.cancel(stored.document.id, by=by, reason="asked by TES")
        if BRINGS in stored.document.labels:
            await self.steer.cancel(outputs_job(stored.document.id), by=by, reason="its task was cancelled")
        return answer

    def notice(self, stored: Stored) -> None:
        """A document was written here: the outputs of a task that has ended are to be brought away."""
        self.recall.notice(stored)
        if stored.document.final and BRINGS in stored.document.labels:
            self._look_at(stored.document.id)

    def _look_at(self, job: str) -> None:
        if not self._ended.full():
            self._ended.put_nowait(job)

    async def run(self) -> None:
        """Let jobs of outputs go until cancelled, and look now and then for those that nobody let go."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._let_go_noticed())
            group.create_task(self._mark_told())
            while True:
                await asyncio.sleep(EVERY)
                try:
                    await self._sweep()
                except PortError:
                    continue  # the next look finds them

    async def _let_go_noticed(self) -> None:
        while True:
            jobs = {await self._ended.get()}
            while not self._ended.empty():
                jobs.add(self._ended.get_nowait())
            try:
                found = await self.store.get(sorted(jobs))
                await asyncio.gather(*(self._let_go(one.document) for one in found.values()))
            except PortError:
                await asyncio.sleep(1.0)  # the sweep finds them

    async def _mark_told(self) -> None:
        while True:
            await self._marking.wait()
            await asyncio.sleep(TOGETHER)
            self._marking.clear()
            marks, self._marks = self._marks, []
            try:
                await self.store.add_records(marks)
            except PortError:
                self._marks = (marks + self._marks)[-REMEMBER:]
                await asyncio.sleep(1.0)
                self._marking.set()

    async def _sweep(self) -> None:
        query = JobQuery(labels={MARK: OUTPUTS}, held=True, states=frozenset({State.AVAILABLE}))
        cursor: str | None = None
        while True:
            page = await self.store.search(query, limit=PAGE, cursor=cursor)
            tasks = sorted({str(one.document.parameters.get("task")) for one in page.jobs})
            found = await self.store.get(tasks)
            for one in found.values():
                if one.document.final:
                    await self._let_go(one.document)
            cursor = page.cursor
            if cursor is None:
                return

    async def _let_go(self, task: JobDocument) -> None:
        """The task has ended: its outputs may go, or are not wanted any more."""
        if not task.final or BRINGS not in task.labels:
            return
        job = outputs_job(task.id)
        ending = task.winner or task.last
        if task.state is State.CANCELLED or ending is None or ending.manifest is None:
            await self.steer.cancel(job, by=HOLDER, reason="there is nothing to bring")
            return
        answer = await self.steer.let_go(job, holder=HOLDER, by=HOLDER)
        if not isinstance(answer, Settled):
            found = await self.store.get([job])
            if job not in found:  # the server died between the two writes
                given = _outputs_of(task.id, task.tenant, task.owner, task.name, task.priority)
                await self.submit.submit_named([replace(given, holders=())], [job], by=HOLDER)


def state_of(document: JobDocument, outputs: JobDocument | None) -> TaskState:
    """How a task stands, by its job and the one that brings its outputs away."""
    match document.state:
        case State.AVAILABLE:
            return TaskState.QUEUED
        case State.RUNNING:
            return TaskState.INITIALIZING if document.phase is Phase.STAGING_IN else TaskState.RUNNING
        case State.FAULTED:
            return TaskState.RUNNING
        case State.CANCELLED:
            return TaskState.CANCELED
        case State.FORCED_COMPLETE:
            return TaskState.COMPLETE
        case State.COMPLETED:
            verdict = TaskState.COMPLETE
        case _:
            last = document.last
            own = last is not None and last.reason == "exit" and last.exit_code not in (None, 0)
            verdict = TaskState.EXECUTOR_ERROR if own else TaskState.SYSTEM_ERROR
    if BRINGS not in document.labels:
        return verdict
    if outputs is None or not outputs.final:
        return TaskState.RUNNING  # shown as ended only when its outputs are there
    if verdict is not TaskState.COMPLETE or _nothing_to_bring(document):
        return verdict
    if outputs.state is State.CANCELLED:
        return TaskState.CANCELED
    return TaskState.SYSTEM_ERROR if outputs.state is State.FAILED else verdict


def _nothing_to_bring(document: JobDocument) -> bool:
    return document.winner is not None and document.winner.manifest is None


def states_asked(state: TaskState) -> frozenset[State]:
    """The states of jobs among which tasks of a state are found."""
    return {
        TaskState.QUEUED: frozenset({State.AVAILABLE}),
        TaskState.INITIALIZING: frozenset({State.RUNNING}),
        TaskState.RUNNING: frozenset({State.RUNNING, State.FAULTED, State.COMPLETED, State.FAILED}),
        TaskState.COMPLETE: frozenset({State.COMPLETED, State.FORCED_COMPLETE}),
        TaskState.EXECUTOR_ERROR: frozenset({State.FAILED}),
        TaskState.SYSTEM_ERROR: frozenset({State.FAILED, State.COMPLETED}),
        TaskState.CANCELED: frozenset({State.CANCELLED, State.COMPLETED}),
        TaskState.CANCELING: frozenset({State.CANCELLED}),
    }.get(state, frozenset())


def tasks_of(tenant: str, state: TaskState | None, tags: Iterable[tuple[str, str]]) -> JobQuery:
    """The query that finds the jobs of tasks; what it cannot say is looked at afterwards."""
    states = states_asked(state) if state is not None else frozenset()
    return JobQuery(tenant=tenant, states=states, labels={MARK: TASK, **dict(tags)})


def end_record(document: JobDocument, claim: str, kind: str, pilot: str) -> str:
    """The name of what a pilot told about the end of the last attempt."""
    return f"{document.id}:{document.generation}.{document.attempt}:{claim}:{kind}:{pilot}"


def _outputs_of(task: str, tenant: str, owner: str, name: str, priority: int) -> Submission:
    return Submission(
        _named(outputs_specification(tenant)),
        owner,
        name=f"outputs of {name}"[:200],
        parameters={"task": task},
        labels={MARK: OUTPUTS},
        priority=outputs_priority(priority),
        holders=(HOLDER,),
    )


def _named(spec: Specification) -> Specification:
    content = specification_to_json(spec)
    return replace(spec, id=specification_named(spec.tenant, content))


def _job_of(*parts: object) -> str:
    return str(uuid5(NAMESPACE_URL, "holdfast:tes:" + orjson.dumps(parts).decode()))


def _mark(job: str) -> str:
    return f"{job}:tes-told"
