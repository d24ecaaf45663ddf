"""Accepts the completions of attempts from pilots and commits them, many in one write.

A completion is answered only when it is settled: it counts, it is kept because the job is held, or it is superseded and kept as
evidence. Anything else is `unknown`, and the pilot sends it again. Of a claim that is not the pilot's nothing is kept.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from forestay.domain.exceptions.evidence.redaction import redacted
from forestay.domain.jobs.claim import Applied, CheckpointReport, Repeated, end, leave_failure
from forestay.domain.jobs.claim_access import NEVER_HELD, ReportRefused, held_by, may_have, may_report
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, JobDocument, State
from forestay.domain.jobs.lifecycle import TransitionRefused
from forestay.formats.jobs.job_json import ending_to_json
from forestay.ports.clock import Clock
from forestay.ports.errors import Permanent, PortError, Transient, Unreadable
from forestay.ports.jobs.job_store import JobStore, Record, Stored
from forestay.services.shared.checked_writer import Answer, JobMissing, ProposedWrite, WriteApplied, Writer

_NOT_YET = TransitionRefused("another pilot holds this claim")
"""The answer to the successor of a dead pilot, which sends its completions: they count as soon as the dead pilot's claim is released."""
_OTHER_TENANT = ReportRefused("there is no such job")
MISSING = 60.0
"""Seconds for which the completion of a job that cannot be found is not yet settled."""


class CompletionStatus(StrEnum):
    """The outcome of a completion."""

    COMMITTED = "committed"
    HELD = "held"
    SUPERSEDED = "superseded"
    UNKNOWN = "unknown"
    """Not settled; send it again."""


@dataclass(frozen=True, slots=True)
class FailedCleanup:
    """A pilot's report on a folder that it could not remove."""

    error: str = ""
    """The system's name of the error, such as `EBUSY`."""
    words: str = ""


@dataclass(frozen=True, slots=True)
class CompletionReport:
    """A completion as a pilot sends it, with data that are not stored in the job's document."""

    job: str
    ending: AttemptResult
    log_tail: str = ""
    log_bytes: int = 0
    cleanup: FailedCleanup | None = None
    """The error when its working folder was removed."""
    staging: Sequence[Mapping[str, object]] = ()
    """How its files were staged; stored beside the log or the evidence."""
    task: Mapping[str, object] | None = None
    """What a pilot tells of the executors of a task, or of its outputs; kept there too."""
    checkpoint: CheckpointReport | None = None
    """What the attempt committed last for the next one."""


@dataclass(frozen=True, slots=True)
class CompletionReply:
    """The reply to the pilot."""

    claim: str
    result: CompletionStatus
    detail: str = ""
    never_held: bool = False
    """The pilot never held the claim: the completion is superseded, and nothing of it was kept."""


@dataclass(slots=True, eq=False)
class _Asked:
    report: CompletionReport
    pilot: str
    tenant: str
    owner: str | None
    answer: asyncio.Future[CompletionReply]


class FailureHandling(Protocol):
    """Handles failed attempts: `ExceptionPipeline`."""

    async def handle_failures(self, failures: Sequence[tuple[Stored, str]]) -> None:
        """Handle faulted jobs, each with the last lines that its attempt printed."""


class HostFailures(Protocol):
    """Records on which hosts attempts failed: `HostHealthTracker`."""

    async def faulted(self, failures: Sequence[tuple[Stored, str]]) -> None:
        """Record where each of these attempts failed, with the last lines that it printed."""


class CleanupReports(Protocol):
    """Records what attempts left behind on their hosts: `CleanupFailures`."""

    async def note(self, failures: Sequence[tuple[JobDocument, str, FailedCleanup]]) -> None:
        """Record each, by its claim. `Transient` if the store does not answer: the pilot repeats its report."""


class StagingFailures(Protocol):
    """Records which sources of files failed: `ReplicaHealth`."""

    async def note(self, tenant: str, staging: Sequence[Mapping[str, object]]) -> None:
        """Record the failed sources among those that an attempt used."""


@dataclass(slots=True)
class JobCompletions:
    """The service that accepts completions; group commit as for claims."""

    store: JobStore
    writer: Writer
    clock: Clock
    bulk: int = 500
    remember: int = 20_000
    failures: FailureHandling | None = None
    """Handles the failures among them before their pilots get an answer; None: their own retry policy does, in the same write."""
    hosts: HostFailures | None = None
    """Called before failures are decided, because the next attempt may come at once; None: not recorded."""
    leftovers: CleanupReports | None = None
    """Records what attempts left behind; None: not recorded."""
    sources: StagingFailures | None = None
    """Records failed sources of files; None: not recorded."""
    troubled: Callable[[str], None] = lambda _text: None
    """Called with the reason why failures could not be handled at once; they stay due."""
    intruded: Callable[[str, str, str], None] = lambda _pilot, _tenant, _job: None
    """Called with a pilot, its tenant and another tenant's job that it names: no honest pilot can know it."""
    intrusions: int = 0
    _queue: list[_Asked] = field(default_factory=list)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _known: OrderedDict[str, Stored] = field(default_factory=OrderedDict)
    _missing: OrderedDict[str, float] = field(default_factory=OrderedDict)

    def granted(self, jobs: Sequence[Stored]) -> None:
        """Remember the documents of claims given here: their completions then need no read."""
        for stored in jobs:
            if stored.document.claim is not None:
                self._known[stored.document.claim.id] = stored
        while len(self._known) > self.remember:
            self._known.popitem(last=False)

    def held_by(self, pilots: Collection[str]) -> list[Stored]:
        """The remembered claims given here to these pilots that have no completion yet."""
        return [
            stored for stored in self._known.values() if stored.document.claim and stored.document.claim.pilot in pilots
        ]

    async def end(
        self, reports: Sequence[CompletionReport], *, pilot: str, tenant: str, owner: str | None = ""
    ) -> Sequence[CompletionReply]:
        """Commit the results of these attempts; returns one reply for each, in order.

        ``owner``: the one for whom the pilot was enrolled, if it was; None: the pilot is not registered, and delivers nothing that another one left.
        """
        loop = asyncio.get_running_loop()
        asked = [_Asked(report, pilot, tenant, owner, loop.create_future()) for report in reports]
        self._queue += asked
        self._wake.set()
        return await asyncio.gather(*(request.answer for request in asked))

    async def run(self) -> None:
        """Commit until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                batch = self._next_batch()
                try:
                    await self._commit([request for request in batch if not request.answer.done()])
                except Permanent:  # one of them cannot be stored; the others must not be refused with it
                    for request in batch:
                        await self._commit_alone(request)
                except Exception as error:  # a bug must not leave the pilots waiting
                    for request in batch:
                        if not request.answer.done():
                            request.answer.set_exception(error)

    async def _commit_alone(self, request: _Asked) -> None:
        if request.answer.done():
            return
        try:
            await self._commit([request])
        except Exception as error:
            if not request.answer.done():
                request.answer.set_exception(error)

    def _next_batch(self) -> list[_Asked]:
        """As many as fit into one write, no job twice: a second completion of the same job waits for its turn."""
        batch: list[_Asked] = []
        later: list[_Asked] = []
        jobs: set[str] = set()
        for request in self._queue:
            fresh = request.report.job not in jobs and len(batch) < self.bulk
            (batch if fresh else later).append(request)
            jobs.add(request.report.job)
        self._queue = later
        return batch

    async def _commit(self, batch: Sequence[_Asked]) -> None:
        try:
            kept = await self._may_report(batch)
            await self._keep_evidence([request for request in batch if request in kept])
        except Transient as error:
            for request in batch:
                _tell(request, CompletionStatus.UNKNOWN, str(error))
            return
        answers = await self.writer.write([self._proposed(request) for request in batch])
        await self._hand_over(batch, answers)
        await self._note_sources([q for q, answer in zip(batch, answers, strict=True) if not _is_refused(answer)])
        # Those whose document was an old one when it was read before.
        missed = [
            request
            for request, answer in zip(batch, answers, strict=True)
            if isinstance(answer, WriteApplied) and request not in kept
        ]
        try:
            await self._keep_evidence(missed)
            await self._note_leftovers(batch, answers)
        except Transient as error:
            for request in batch:
                if request.report.cleanup is not None or request in missed:
                    _tell(request, CompletionStatus.UNKNOWN, str(error))
        late: list[tuple[_Asked, str]] = []
        for request, answer in zip(batch, answers, strict=True):
            self._known.pop(request.report.ending.claim, None)
            if isinstance(answer, ReportRefused):
                _tell(request, CompletionStatus.SUPERSEDED, answer.reason, never_held=True)
            elif answer is _NOT_YET:
                _tell(request, CompletionStatus.UNKNOWN, _NOT_YET.reason)
            elif isinstance(answer, TransitionRefused):
                late.append((request, answer.reason))
            elif not isinstance(answer, JobMissing):
                _tell(request, *_result(answer))
            elif self._long_missing(request.report.ending.claim):
                late.append((request, "there is no such job"))
            else:
                _tell(request, CompletionStatus.UNKNOWN, "the job cannot be found")
        if late:
            await self._keep_late(late)

    async def _may_report(self, batch: Sequence[_Asked]) -> set[_Asked]:
        """Those whose pilots may report on the claims that they name, as far as the documents say so now."""
        documents: dict[str, JobDocument] = {}
        unknown: list[str] = []
        for request in batch:
            known = self._known.get(request.report.ending.claim)
            if known is not None and known.document.id == request.report.job:
                documents[request.report.job] = known.document
            elif _evidence_kind(request.report) or _troubled(request.report):
                unknown.append(request.report.job)
        while unknown:
            try:
                stored_jobs = await self.store.get(unknown)
            except Unreadable as error:
                unknown = [job for job in unknown if job not in error.names]
            else:
                documents |= {job: stored.document for job, stored in stored_jobs.items()}
                break
        return {request for request in batch if _may_report(request, documents.get(request.report.job))}

    async def _hand_over(self, batch: Sequence[_Asked], answers: Sequence[Answer]) -> None:
        """Pass the failures on. An error here loses no completion: the failures stay due, and are found again."""
        if self.failures is None:
            return
        failures = [
            (answer.stored, request.report.log_tail)
            for request, answer in zip(batch, answers, strict=True)
            if isinstance(answer, WriteApplied) and answer.stored.document.state is State.FAULTED
        ]
        if failures:
            try:
                if self.hosts is not None:
                    await self.hosts.faulted(failures)
                await self.failures.handle_failures(failures)
            except Exception as error:
                self.troubled(f"{len(failures)} failure(s) stay due: {type(error).__name__}: {error}")

    async def _note_sources(self, batch: Sequence[_Asked]) -> None:
        """Record failed replicas for the benefit of later jobs; an error here must not affect the completions."""
        if self.sources is None:
            return
        for request in batch:
            # A full disk says nothing about the source of the file.
            if request.report.ending.reason != "disk" and any(entry.get("failed") for entry in request.report.staging):
                try:
                    await self.sources.note(request.tenant, request.report.staging)
                except PortError as error:
                    self.troubled(f"a failed source could not be recorded: {error}")

    async def _note_leftovers(self, batch: Sequence[_Asked], answers: Sequence[Answer]) -> None:
        """Report leftovers to those responsible for the host; they do not change a job's result."""
        failures = [
            (answer.stored.document, request.report.ending.claim, request.report.cleanup)
            for request, answer in zip(batch, answers, strict=True)
            if request.report.cleanup is not None and isinstance(answer, WriteApplied)
        ]
        if failures and self.leftovers is not None:
            await self.leftovers.note(failures)

    def _long_missing(self, claim: str) -> bool:
        """Whether a job has been missing for long: a lagging copy of the store may not know it yet."""
        now = self.clock.monotonic()
        since = self._missing.setdefault(claim, now)
        while len(self._missing) > self.remember:
            self._missing.popitem(last=False)
        return now - since >= MISSING

    def _proposed(self, request: _Asked) -> ProposedWrite:
        ending = request.report.ending
        now = self.clock.now()
        answer = None if self.failures is None else leave_failure

        def decide(document: JobDocument) -> JobDocument | TransitionRefused:
            if document.tenant != request.tenant:
                self.intrusions += 1
                self.intruded(request.pilot, request.tenant, document.id)
                return _OTHER_TENANT
            held = document.claim
            if held is not None and held.id == ending.claim and held.pilot != request.pilot:
                heir = request.owner is not None and may_have(document, request.owner)
                return _NOT_YET if heir else NEVER_HELD
            if not _may_report(request, document):
                return NEVER_HELD
            verdict = end(
                document, ending, now=now, by=request.pilot, answer=answer, checkpoint=request.report.checkpoint,
                heir=request.owner is not None and may_have(document, request.owner),
            )  # fmt: skip
            if isinstance(verdict, Applied | Repeated):
                return verdict.document
            return TransitionRefused(verdict.reason)

        def already_applied(document: JobDocument) -> bool:
            return _may_report(request, document) and isinstance(
                end(document, ending, now=now, by=request.pilot), Repeated
            )

        def confirm_refusal(document: JobDocument) -> bool:
            """Whether a refusal needs a confirming write: a mere read must not discard finished work, nor the evidence of a failure."""
            held = document.claim
            others = held is not None and held.id == ending.claim and held.pilot != request.pilot  # it stays another's
            unknown = held_by(document, ending.claim, request.pilot) is None
            return document.tenant == request.tenant and not others and (unknown or ending.outcome is AttemptOutcome.OK)

        return ProposedWrite(
            request.report.job,
            decide,
            already_applied,
            known=self._known.get(ending.claim),
            confirm_refusal=confirm_refusal,
        )

    async def _keep_evidence(self, batch: Sequence[_Asked]) -> None:
        """Store the evidence of failures, and the log of every attempt, before the document says that the attempt ended."""
        now = self.clock.now()
        records = [_record(request, kind, now) for request in batch if (kind := _evidence_kind(request.report))]
        records += [_record(request, "staging", now) for request in batch if _troubled(request.report)]
        if records:
            await self.store.add_records(records)

    async def _keep_late(self, late: Sequence[tuple[_Asked, str]]) -> None:
        """Store late completions, which are never applied, as evidence before the pilot may forget them."""
        records = [_record(request, "late-completion", self.clock.now(), why=why) for request, why in late]
        try:
            await self.store.add_records(records)
        except Transient as error:
            for request, _ in late:
                _tell(request, CompletionStatus.UNKNOWN, str(error))
            return
        for request, why in late:
            _tell(request, CompletionStatus.SUPERSEDED, why)


def _record(request: _Asked, kind: str, now: int, why: str = "") -> Record:
    report = request.report
    token = report.ending.token
    body: dict[str, object] = {"ending": ending_to_json(report.ending), "pilot": request.pilot}
    if report.log_tail and kind != "staging":
        # Evidence may be read by others, so secrets are removed; the log of a success belongs to its owner and is stored unchanged.
        tail = report.log_tail if kind == "log" else redacted(report.log_tail)
        body |= {"log_tail": tail, "log_bytes": report.log_bytes}
    if report.staging:
        body["staging"] = [_redacted(entry) for entry in report.staging]
    if report.task and kind != "staging":
        body["task"] = report.task if kind == "log" else _redacted_texts(report.task)
    if why:
        body["why"] = why
    # The pilot is part of the name: another pilot's report on the same claim must not block this one.
    name = f"{report.job}:{token.generation}.{token.attempt}:{report.ending.claim}:{kind}:{request.pilot}"
    return Record(id=name, tenant=request.tenant, kind=kind, job=report.job, at=now, body=body)


def _evidence_kind(report: CompletionReport) -> str:
    """The kind of record that a completion leaves; empty: none."""
    if report.ending.outcome is AttemptOutcome.FAILURE:
        return "evidence"
    return "log" if report.log_tail or report.task else ""


def _troubled(report: CompletionReport) -> bool:
    """Whether a source of a file failed although another one served it: this is recorded, an immediate success is not."""
    return report.ending.outcome is AttemptOutcome.OK and any(entry.get("failed") for entry in report.staging)


def _redacted_texts(value: object) -> object:
    """The value with secrets removed from the executors' output, at any depth."""
    if isinstance(value, Mapping):
        return {name: _redacted_texts(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_redacted_texts(entry) for entry in value]
    return redacted(value) if isinstance(value, str) else value


def _redacted(entry: Mapping[str, object]) -> dict[str, object]:
    """How a file was staged, without the secrets that a URL may contain."""
    failed = entry.get("failed")
    words = [redacted(str(failure)) for failure in failed] if isinstance(failed, list) else []
    return {**entry, **({"failed": words} if words else {})}


def _result(answer: Answer) -> tuple[CompletionStatus, str]:
    if isinstance(answer, WriteApplied):
        held = answer.stored.document.held_completion is not None
        return (CompletionStatus.HELD, "") if held else (CompletionStatus.COMMITTED, "")
    return CompletionStatus.UNKNOWN, getattr(answer, "detail", "")


def _is_refused(answer: Answer) -> bool:
    """Whether the pilot may not report on the claim, at least not now."""
    return isinstance(answer, ReportRefused) or answer is _NOT_YET


def _may_report(request: _Asked, document: JobDocument | None) -> bool:
    if document is None or document.tenant != request.tenant:
        return False
    ending = request.report.ending
    return may_report(document, ending.token, ending.claim, request.pilot, request.owner)


def _tell(request: _Asked, result: CompletionStatus, detail: str, *, never_held: bool = False) -> None:
    if not request.answer.done():
        request.answer.set_result(CompletionReply(request.report.ending.claim, result, detail, never_held))
