"""Creates the jobs of TES tasks, once for each intended task.

A repeated request is recognised by its key, or by its text as long as its id was not sent to a client (decision 55).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from uuid import NAMESPACE_URL, uuid5
from weakref import WeakValueDictionary

import orjson

from forestay.domain.jobs.specification import Specification
from forestay.domain.jobs.submission import Submission
from forestay.formats.ga4gh.tes_job import (
    HOLDER,
    MARK,
    OUTPUTS,
    Asked,
    labels_of,
    outputs_job,
    outputs_priority,
    outputs_specification,
    specification_of,
)
from forestay.formats.ga4gh.tes_task import TaskDocument
from forestay.formats.jobs.job_json import specification_to_json
from forestay.ports.clock import Clock
from forestay.ports.errors import Conflict, PortError
from forestay.ports.jobs.job_store import JobStore, Record
from forestay.services.jobs.job_submitter import JobSubmitter, specification_named
from forestay.services.jobs.specification_cache import SpecificationCache

WINDOW = 60_000
"""Milliseconds: a request equal to one of this or the last window may be its repeat."""
PATIENCE = (0.05, 0.15, 0.4)
"""Seconds between polls for another server's record that its response was sent."""
TOGETHER = 0.03
"""Seconds to wait for more such records: they are written together."""
AT_ONCE = 32
"""Tasks of one text in a window that are read together."""
REMEMBER = 10_000


class CreatedTask(NamedTuple):
    """A stored task."""

    id: str
    created: bool
    """False: an earlier request had created it."""
    text: str = ""
    """The digest of the request, where a repeat is recognised by it."""


class _Last(NamedTuple):
    """The last task that this server created for a text."""

    window: int
    number: int
    reported: bool
    """Whether its id was sent to the client."""


@dataclass(slots=True)
class TaskFactory:
    """The service; one for each server."""

    store: JobStore
    submit: JobSubmitter
    specifications: SpecificationCache
    clock: Clock
    _made: OrderedDict[str, _Last] = field(default_factory=OrderedDict)
    _turns: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    _marks: list[Record] = field(default_factory=list)
    _marking: asyncio.Event = field(default_factory=asyncio.Event)

    async def create(
        self,
        task: TaskDocument,
        *,
        tenant: str,
        owner: str,
        asked: Asked,
        warnings: Sequence[str],
        key: str | None,
        fallback: bool = False,
    ) -> CreatedTask:
        """Create a task. With a key, a repeat returns the same task; without, a repeat is recognised by its text as long as the first response was not sent.

        ``fallback`` says that the request came to the path that clients try when the first one failed: there a text that was just accepted by the
        first path is its repeat, also when the response was sent and got lost.
        `Transient` when the store did not acknowledge it: it may exist, and a repeat of the request finds it.
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

    async def _create_once(
        self, task: TaskDocument, spec: Specification, digest: str, *, owner: str, asked: Asked
    ) -> CreatedTask:
        window = self.clock.now() // WINDOW
        last = await self._last_of(digest, window)
        if last is not None and not last.reported and not await self._ended_already(digest, last):
            made = await self._make(task, spec, _job_of(digest, last.window, last.number), owner=owner, asked=asked)
            self._remember(digest, last)
            return made._replace(text=digest)
        number = last.number + 1 if last is not None and last.window == window else 0
        while True:
            job = _job_of(digest, window, number)
            self._remember(digest, _Last(window, number, reported=False))
            made = await self._make(task, spec, job, owner=owner, asked=asked)
            if made.created or not await self._told_elsewhere(job):
                return made._replace(text=digest)
            number += 1  # another server has created one of the same text meanwhile, and sent its id

    async def _last_of(self, digest: str, window: int) -> _Last | None:
        last = self._made.get(digest)
        return await self._last_elsewhere(digest, window) if last is None or last.window < window - 1 else last

    async def _the_same(self, made: CreatedTask, spec: Specification) -> CreatedTask:
        """The task if it matches the request; `Conflict` otherwise: one key is for one task."""
        if not made.created:
            stored = (await self.store.get([made.id])).get(made.id)
            if stored is not None and stored.document.specification != spec.id:
                raise Conflict("this key was used for another task; use a new key for a new one")
        return made

    async def _last_elsewhere(self, digest: str, window: int) -> _Last | None:
        """The last task of the same text created by other servers, or by this one before it was restarted."""
        firsts = {place: _job_of(digest, place, 0) for place in (window, window - 1)}
        known = await self.store.get(list(firsts.values()))
        for place, first in firsts.items():
            if first not in known:
                continue
            number = 0
            while True:
                names = [_job_of(digest, place, number + step) for step in range(AT_ONCE)]
                stored_jobs = await self.store.get(names)
                number += len(stored_jobs)
                if len(stored_jobs) < AT_ONCE:
                    break
            return _Last(place, number - 1, await self._told_elsewhere(_job_of(digest, place, number - 1)))
        return None

    async def _told_elsewhere(self, job: str) -> bool:
        """Whether the id was sent to a client; the record of that follows a moment after the task."""
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

    def told(self, made: CreatedTask, tenant: str) -> None:
        """Called when a task's id was sent to its client: the same request again creates another task."""
        last = self._made.get(made.text)
        if last is None or last.reported or _job_of(made.text, last.window, last.number) != made.id:
            return
        self._made[made.text] = last._replace(reported=True)
        self._marks.append(Record(_mark(made.id), tenant, "tes-told", made.id, self.clock.now(), {}))
        self._marking.set()

    def _remember(self, digest: str, last: _Last) -> None:
        self._made[digest] = last
        self._made.move_to_end(digest)
        while len(self._made) > REMEMBER:
            self._made.popitem(last=False)

    async def _make(
        self, task: TaskDocument, spec: Specification, job: str, *, owner: str, asked: Asked
    ) -> CreatedTask:
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
            submissions.append(outputs_of(job, spec.tenant, owner, spec.name, asked.priority))
            names.append(outputs_job(job))
        self.specifications.know([spec])
        accepted = await self.submit.submit_named(submissions, names, by=owner)
        return CreatedTask(job, accepted[0].created)

    async def run(self) -> None:
        """Record which ids were sent, until cancelled."""
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


def outputs_of(task: str, tenant: str, owner: str, name: str, priority: int) -> Submission:
    """The job that delivers the outputs of a task, held until the task has ended."""
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
    return str(uuid5(NAMESPACE_URL, "forestay:tes:" + orjson.dumps(parts).decode()))


def _mark(job: str) -> str:
    return f"{job}:tes-told"
