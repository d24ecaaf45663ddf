"""Reuses the results of earlier runs, for flows that ask for it.

Two small documents describe a job: one under its reuse key names the job with the result, one under its place in the flow holds the parts of the key, so
that a person can see what differed. They are written before the job and say nothing about its end: a result is reused only if the job's own document says
that it completed, and if the manifest of its outputs is still the committed one. They are removed with the job when it is pruned.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from forestay.domain.jobs.inputs import JobInput, filled, local_path, produced
from forestay.domain.jobs.job_document import JobDocument, State
from forestay.domain.jobs.reuse import (
    FIRST,
    REUSE,
    differing,
    named_files,
    never_reused,
    result_job,
    reuse_fields,
    reuse_key,
    reuse_note,
)
from forestay.domain.jobs.specification import Specification
from forestay.domain.jobs.submission import JobElement
from forestay.ports.data.file_digests import FileDigests
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import Permanent
from forestay.ports.jobs.job_store import JobStore, Stored
from forestay.ports.jobs.results import Results
from forestay.services.data.committed_files import committed_digests

KIND = "reuse"
AGAIN = "its task was run again in the same run"


class _Asked(NamedTuple):
    """A job whose key is known."""

    element: JobElement
    fields: Mapping[str, str]
    key: str
    place: str
    """The name of the document about the last job of this element."""
    staged: Mapping[str, str]
    """The digests that its pilot must find when it stages the inputs."""


class EarlierResult(NamedTuple):
    """Whether a job's result would be reused."""

    original: JobDocument | None
    """The job whose result would be reused; None: it would run."""
    why: str = ""
    """Why it would run."""


@dataclass(slots=True)
class _Digests:
    """The contents of inputs, each looked up once."""

    tenant: str
    results: Results
    files: FileDigests
    jobs: Mapping[str, Stored]
    _paths: dict[str, str | None] = field(default_factory=dict)
    _made: dict[str, Mapping[str, str]] = field(default_factory=dict)

    async def of(self, job_input: JobInput) -> str | None:
        """The digest of an input; None: it is not known before the input is staged."""
        if job_input.sha256 is not None:
            return job_input.sha256
        other = produced(job_input.source)
        if other is not None:
            return (await self._outputs(other.job)).get(other.path)
        path = local_path(job_input.source)
        return None if path is None else await self.at(path)

    async def at(self, path: str) -> str | None:
        """The digest of a file; None: it is not known here."""
        if path not in self._paths:
            self._paths[path] = await self.files.digest(path)
        return self._paths[path]

    async def _outputs(self, job: str) -> Mapping[str, str]:
        if job not in self._made:
            stored = self.jobs.get(job)
            known = stored is not None and stored.document.tenant == self.tenant
            self._made[job] = (
                await readable_outputs(self.results, stored.document) or {} if stored is not None and known else {}
            )
        return self._made[job]


async def readable_outputs(results: Results, document: JobDocument) -> Mapping[str, str] | None:
    """The committed files of a job and their digests; None if their manifest no longer exists."""
    try:
        return await committed_digests(results, document)
    except Permanent:
        return None


@dataclass(slots=True)
class ResultReuse:
    """The service; one for each orchestrator."""

    store: JobStore
    documents: DocumentStore
    results: Results
    files: FileDigests

    async def decide(
        self,
        place: str,
        specification: Specification,
        elements: Sequence[JobElement],
        *,
        owner: str,
        again: bool = False,
    ) -> Sequence[JobElement]:
        """The jobs to create: with the result of an earlier job, or with the reason why they run.

        ``place``: their flow and task. ``again``: run them once more in any case; their results are for later runs.
        """
        if why := never_reused(specification):
            return [_running(element, {}, why) for element in elements]
        tenant = specification.tenant
        asked, decided = await self._keys(place, specification, elements, owner)
        known = await self._get([name for job in asked for name in (_by_key(tenant, job.key), job.place)])
        named = [_job_of(known.get(_by_key(tenant, job.key))) for job in asked]
        earlier = await self.store.get(sorted({job for job in named if job}))
        writes: list[tuple[Document, StoredDocument | None]] = []
        for job, other in zip(asked, named, strict=True):
            at_place = known.get(job.place)
            original, why = None, AGAIN
            if not again:
                original, why = await self._usable(tenant, job, earlier.get(other), other)
            if original is not None:
                decided[job.element.job] = _reusing(job, original)
            else:
                decided[job.element.job] = _running(job.element, _note(job), why or _why(job, at_place), job, at_place)
                entry = Document(_by_key(tenant, job.key), tenant, KIND, {"job": job.element.job})
                writes.append((entry, known.get(entry.id)))
            body = {"job": job.element.job, "fields": dict(job.fields)}
            entry = Document(job.place, tenant, KIND, body)
            writes.append((entry, at_place))
        # The entry of a concurrent writer is as good: at worst a job runs once more.
        await self.documents.put([(entry, stored.version if stored else None) for entry, stored in _once(writes)])
        return [decided[element.job] for element in elements]

    async def foresee(
        self, place: str, specification: Specification, elements: Sequence[JobElement], *, owner: str
    ) -> Mapping[str, EarlierResult]:
        """What `decide` would decide for each job if it was created now. Nothing is written."""
        if why := never_reused(specification):
            return {element.job: EarlierResult(None, why) for element in elements}
        tenant = specification.tenant
        asked, decided = await self._keys(place, specification, elements, owner)
        known = await self._get([name for job in asked for name in (_by_key(tenant, job.key), job.place)])
        named = [_job_of(known.get(_by_key(tenant, job.key))) for job in asked]
        earlier = await self.store.get(sorted({job for job in named if job}))
        foreseen = {job: EarlierResult(None, _reason(element)) for job, element in decided.items()}
        for job, other in zip(asked, named, strict=True):
            original, why = await self._usable(tenant, job, earlier.get(other), other)
            foreseen[job.element.job] = EarlierResult(original, why or _why(job, known.get(job.place)))
        return foreseen

    async def _keys(
        self, place: str, specification: Specification, elements: Sequence[JobElement], owner: str
    ) -> tuple[list[_Asked], dict[str, JobElement]]:
        wanted = {
            element.job: [filled(entry, element.parameters, element.at) for entry in specification.inputs]
            for element in elements
        }
        producers = {
            other.job
            for inputs in wanted.values()
            for job_input in inputs
            if (other := produced(job_input.source)) is not None
        }
        digests = _Digests(specification.tenant, self.results, self.files, await self.store.get(sorted(producers)))
        asked: list[_Asked] = []
        decided: dict[str, JobElement] = {}
        for element in elements:
            known = {job_input.name: await digests.of(job_input) for job_input in wanted[element.job]}
            contents = {path: await digests.at(path) for path in named_files(element.parameters)}
            found = {name: digest for name, digest in known.items() if digest is not None}
            read = {path: digest for path, digest in contents.items() if digest is not None}
            if missing := [*(known.keys() - found.keys()), *(contents.keys() - read.keys())]:
                why = f"the content of {', '.join(sorted(missing))} is not known before the job runs"
                decided[element.job] = _running(element, {}, why)
                continue
            fields = reuse_fields(specification, element.parameters, element.at, found, read, owner=owner)
            staged = {
                job_input.name: found[job_input.name]
                for job_input in wanted[element.job]
                if local_path(job_input.source) is not None
            }
            key = reuse_key(specification.tenant, fields)
            asked.append(_Asked(element, fields, key, _by_place(specification.tenant, place, element.at), staged))
        return asked, decided

    async def _usable(
        self, tenant: str, job: _Asked, stored: Stored | None, name: str
    ) -> tuple[JobDocument | None, str]:
        """The earlier job whose result this job can use; or, if it cannot be used, why not."""
        if not name or name == job.element.job:
            return None, ""
        if stored is None or stored.document.tenant != tenant or reuse_note(stored.document).get("key") != job.key:
            return None, f"the result of job {name} was removed"
        document = stored.document
        if document.state is not State.COMPLETED or document.winner is None:
            return None, f"job {name} is the same and is {document.state.value}"
        if document.winner.manifest is not None and await readable_outputs(self.results, document) is None:
            return None, f"the outputs of job {name} cannot be read any more"
        return document, ""

    async def _get(self, names: Sequence[str]) -> Mapping[str, StoredDocument]:
        return await self.documents.get(sorted(set(names))) if names else {}


async def forget_results(documents: DocumentStore, jobs: Sequence[JobDocument]) -> None:
    """Remove the documents about pruned jobs, unless they are about others by now."""
    notes = [(job.tenant, note) for job in jobs if "key" in (note := reuse_note(job))]
    names = {name for tenant, note in notes for name in (_by_key(tenant, str(note["key"])), str(note["place"]))}
    if names:
        gone = {job.id for job in jobs}
        known = await documents.get(sorted(names))
        await documents.remove([stored for stored in known.values() if _job_of(stored) in gone])


def _reusing(job: _Asked, original: JobDocument) -> JobElement:
    note = {**_note(job), "from": result_job(original)}
    return job.element._replace(extra={REUSE: note}, reused=original.winner)


def _running(
    element: JobElement,
    note: Mapping[str, object],
    why: str,
    job: _Asked | None = None,
    before: StoredDocument | None = None,
) -> JobElement:
    nearest: dict[str, object] = {}
    if job is not None and before is not None and _job_of(before) != element.job:
        nearest = {"nearest": _job_of(before), "differs": _differs(job, before)}
    return element._replace(extra={REUSE: {**note, "why": why, **nearest}})


def _note(job: _Asked) -> dict[str, object]:
    return {"key": job.key, "place": job.place} | ({"inputs": dict(job.staged)} if job.staged else {})


def _reason(element: JobElement) -> str:
    note = element.extra.get(REUSE)
    return str(note.get("why", "")) if isinstance(note, Mapping) else ""


def _why(job: _Asked, before: StoredDocument | None) -> str:
    if before is None or _job_of(before) == job.element.job:
        return FIRST
    return f"not the same as in job {_job_of(before)}: {', '.join(_differs(job, before)) or 'nothing'}"


def _differs(job: _Asked, before: StoredDocument) -> list[str]:
    fields = before.document.body.get("fields")
    return differing(job.fields, fields if isinstance(fields, Mapping) else {})


def _once(
    writes: Sequence[tuple[Document, StoredDocument | None]],
) -> Sequence[tuple[Document, StoredDocument | None]]:
    """Of several jobs with one key the first: the names in one write must differ."""
    first: dict[str, tuple[Document, StoredDocument | None]] = {}
    for entry, stored in writes:
        first.setdefault(entry.id, (entry, stored))
    return list(first.values())


def _job_of(stored: StoredDocument | None) -> str:
    return str(stored.document.body.get("job", "")) if stored is not None else ""


def _by_key(tenant: str, key: str) -> str:
    return f"reuse:{tenant}:{key}"


def _by_place(tenant: str, place: str, index: int | None) -> str:
    return f"reuse-last:{tenant}:{hashlib.sha256(f'{place}:{index}'.encode()).hexdigest()}"
