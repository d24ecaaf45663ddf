"""Accepts jobs: a job is accepted when the store has acknowledged its first document."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol
from uuid import NAMESPACE_URL, uuid5
from weakref import WeakValueDictionary

import orjson

from forestay.domain.jobs.claim import confirm
from forestay.domain.jobs.job_document import JobDocument
from forestay.domain.jobs.specification import Specification
from forestay.domain.jobs.submission import JobElement, Submission, new_job, new_jobs
from forestay.ports.clock import Clock, Ids
from forestay.ports.documents import DocumentStore
from forestay.ports.errors import Conflict, Transient
from forestay.ports.jobs.job_store import DocumentChange, JobStore, Record, Stored, Written
from forestay.services.jobs.first_claims import FirstClaimer, FirstClaims
from forestay.services.jobs.store_marks import generation_of, pruned_before
from forestay.services.shared.checked_writer import TRIES
from forestay.services.shared.loop_slices import LoopSlices
from forestay.services.shared.recent import Recent

BULK = 1000
SHARED_BULK = 100
"""Jobs of one write in a server that serves others meanwhile: building the rows of a larger write would block the loop for tens of milliseconds."""
KNOWN_SPECIFICATIONS = 10_000
RELIED_ON = 6 * 3_600_000
"""Milliseconds for which a specification that was stored is taken to be there: much less than any retention, which counts in days."""
KNOWN_KEYS = 10_000


class AcceptedJob(NamedTuple):
    """A stored job."""

    id: str
    created: bool
    """False: an earlier request with the same key had created it."""


class NewJobListener(Protocol):
    """Notified of jobs that were just created."""

    def created(self, jobs: Sequence[Stored]) -> None:
        """Called for jobs created in this process; must not raise or wait."""


@dataclass(slots=True)
class JobSubmitter:
    """The service."""

    store: JobStore
    clock: Clock
    ids: Ids
    listeners: Sequence[NewJobListener] = ()
    """Notified of new jobs, so that a waiting pilot need not wait for the next search."""
    documents: DocumentStore | None = None
    """Holds the generation of the domain; None: it is 0."""
    trace: Callable[[], str] = lambda: ""
    """The trace in which jobs are submitted by our own flows."""
    pilots: FirstClaimer | None = None
    """Gives jobs to waiting pilots in the write that creates them; None: they are claimed later."""
    _known: Recent[str, int] = field(default_factory=lambda: Recent(KNOWN_SPECIFICATIONS))
    """When specifications were last stored from here (milliseconds since 1970)."""
    _accepted: Recent[str, str] = field(default_factory=lambda: Recent(KNOWN_KEYS))
    """Keys whose jobs were all acknowledged here, with the digest of the request."""
    _turns: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    _generation: int | None = None
    """The generation of the domain; raised only while no server runs, so it is read once."""

    async def submit(
        self, submissions: Sequence[Submission], *, by: str, key: str | None = None, trace: str = ""
    ) -> Sequence[AcceptedJob]:
        """Store the jobs. With a key, a repeat returns the same jobs; `Conflict` if the key was used for others.

        The trace is not part of the request's identity: a repeat may have another.

        `Transient` when the store did not acknowledge everything: some jobs may exist. The same key makes a repeat safe.
        """
        if key is None:
            return await self._accept(submissions, (self.ids.job() for _ in submissions), by, trace)
        tenant = submissions[0].specification.tenant
        asked = orjson.dumps([by, submissions], option=orjson.OPT_SORT_KEYS)
        digest = hashlib.sha256(asked).hexdigest()
        # A key belongs to its caller: another caller with the same key must neither be refused nor learn that it was used.
        name = f"key:{tenant}:{hashlib.sha256(f'{by}:{key}'.encode()).hexdigest()}"
        names: list[str] = []
        slices = LoopSlices()
        for place in range(len(submissions)):
            names.append(job_named(tenant, by, key, place))
            await slices.pause()
        # Many concurrent repeats run one after the other: together they would only conflict with each other.
        async with self._turns.setdefault(name, asyncio.Lock()):
            if self._accepted.get(name) == digest:
                return [AcceptedJob(job, created=False) for job in names]
            await self._keep_key(name, tenant, digest, names, {"by": by, "key": key})
            accepted = await self._accept(submissions, names, by, trace)
            self._accepted[name] = digest
            return accepted

    async def submit_named(
        self, submissions: Sequence[Submission], names: Sequence[str], *, by: str
    ) -> Sequence[AcceptedJob]:
        """Store jobs whose ids their submitter derived, so that a repeat finds the first ones."""
        return await self._accept(submissions, names, by)

    async def submit_elements(self, common: Submission, elements: Sequence[JobElement], *, by: str) -> None:
        """Store the jobs of a task, whose ids are derived from their task and index, so that a repeat finds the first ones.

        `Transient` when the store did not acknowledge everything; a repeat is safe.
        """
        await self._keep_specifications({common.specification.id: common.specification})
        (common,) = await self._in_generation([common])
        documents = list(new_jobs(common, elements, now=self.clock.now(), by=by, trace=self.trace()))
        for start in range(0, len(documents), BULK):
            await self._create(documents[start : start + BULK])

    async def _accept(
        self, submissions: Sequence[Submission], names: Iterable[str], by: str, trace: str = ""
    ) -> Sequence[AcceptedJob]:
        await self._keep_specifications(
            {submission.specification.id: submission.specification for submission in submissions}
        )
        now = self.clock.now()
        asked = zip(await self._in_generation(submissions), names, strict=True)
        documents: list[JobDocument] = []
        slices = LoopSlices()
        for submission, name in asked:
            documents.append(new_job(submission, job=name, now=now, by=by, trace=trace))
            await slices.pause()
        accepted: list[AcceptedJob] = []
        for start in range(0, len(documents), SHARED_BULK):
            accepted += await self._create(documents[start : start + SHARED_BULK])
        return accepted

    async def _in_generation(self, submissions: Sequence[Submission]) -> Sequence[Submission]:
        """The submissions in the domain's generation: in a restored store a job of the same name may have existed before, so its tokens must be higher."""
        if self._generation is None:
            self._generation = 0 if self.documents is None else (await generation_of(self.documents)).number
        if not self._generation:
            return submissions
        return [replace(submission, generation=self._generation + submission.generation) for submission in submissions]

    async def _keep_key(
        self, name: str, tenant: str, digest: str, jobs: Sequence[str], origin: Mapping[str, str]
    ) -> None:
        # With its origin the names of the jobs can be derived: the key is kept as long as any of them.
        body = {"digest": digest, "jobs": len(jobs), **origin}
        record = Record(id=name, tenant=tenant, kind="key", job="", at=self.clock.now(), body=body)
        (new,) = await self.store.add_records([record])
        if new:
            return
        before = await self.store.get_record(name)
        if before is None:
            raise Transient("the idempotency key could not be read back; send the same request again")
        if before.body["digest"] != digest:
            raise Conflict("this idempotency key was used for another request; use a new key for new jobs")
        if before.at <= await self._pruned() and len(await self.store.get(jobs)) < len(jobs):
            # They would be created and run a second time.
            raise Conflict("jobs of this idempotency key ended long ago and were removed; use a new key for new jobs")

    async def _pruned(self) -> int:
        return 0 if self.documents is None else await pruned_before(self.documents)

    async def _keep_specifications(self, specifications: dict[str, Specification]) -> None:
        now = self.clock.now()
        # One that is in use is stored again and again: the retention removes what nobody has stored for days.
        new = [spec for name, spec in specifications.items() if now - self._known.get(name, 0) > RELIED_ON]
        if new:
            await self.store.put_specifications(new, used=now)
        for spec in new:
            self._known[spec.id] = now

    async def _create(self, documents: Sequence[JobDocument]) -> list[AcceptedJob]:
        """Create-if-absent, settled by the same rule as every write: a read counts only when confirmed.

        A later write that seems to exist on the document proves nothing: like the document itself, it may have been read from
        a copy that is about to lose it.
        """
        claims = self.pilots.claim_first(documents) if self.pilots is not None else None
        if claims is None:
            settled = await self._settle(documents, _unclaimed())
        else:
            try:
                settled = await self._settle(documents, claims)
            finally:
                claims.close()
        for listener in self.listeners:
            listener.created([stored for stored, _ in settled.values()])
        return [AcceptedJob(document.id, created=settled[document.id][1]) for document in documents]

    async def _settle(
        self, documents: Sequence[JobDocument], claims: FirstClaims[Any]
    ) -> dict[str, tuple[Stored, bool]]:
        """The stored documents, and whether they were created here."""
        settled: dict[str, tuple[Stored, bool]] = {}
        wanted = {document.id: document for document in documents}
        changes = [DocumentChange(claims.claimed(document), None) for document in documents]
        for _ in range(TRIES):
            unsure: list[str] = []
            for change, result in zip(changes, await self.store.write(changes), strict=True):
                job = change.document.id
                if isinstance(result, Written):
                    stored = Stored(change.document, result.version)
                    settled[job] = stored, change.expected is None
                    claims.settled(stored)
                else:
                    unsure.append(job)
            if not unsure:
                return settled
            stored_jobs = await self.store.get(unsure)
            for job in unsure:
                if job not in stored_jobs:
                    claims.drop(job)
            changes = [_settling(wanted[job], stored_jobs.get(job)) for job in unsure]
        raise Transient("the store did not acknowledge every job; send the same request with the same key again")


def _unclaimed() -> FirstClaims[Any]:
    return FirstClaims({}, lambda _claims: None)


def _settling(wanted: JobDocument, stored: Stored | None) -> DocumentChange:
    """The write that settles whether a job exists: its creation once more, or a confirmation of the document found."""
    return DocumentChange(wanted, None) if stored is None else DocumentChange(confirm(stored.document), stored.version)


def job_named(tenant: str, by: str, key: str, place: int) -> str:
    """The id of the n-th job of a caller's request with a key: always the same."""
    return str(uuid5(NAMESPACE_URL, f"forestay:{tenant}:{by}:{key}:{place}"))


def specification_named(tenant: str, content: dict[str, object]) -> str:
    """The id of a specification: a digest of its content and tenant."""
    text = orjson.dumps([tenant, content], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(text).hexdigest()[:32]
