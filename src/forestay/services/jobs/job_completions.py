"""Accepts the completions of attempts from pilots and commits them, many in one write.

An end is answered only when it is settled: it counts, it is kept because the job is held, or it is superseded and kept as
evidence. Anything else is `unknown`, and the pilot sends it again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from forestay.domain.exceptions.evidence.redaction import redacted
from forestay.domain.jobs.claim import Applied, Repeated, end, leave_failure
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, JobDocument, State
from forestay.domain.jobs.lifecycle import TransitionRefused
from forestay.formats.jobs.job_json import ending_to_json
from forestay.ports.clock import Clock
from forestay.ports.errors import Permanent, PortError, Transient
from forestay.ports.jobs.job_store import JobStore, Record, Stored
from forestay.services.shared.checked_writer import Answer, JobMissing, ProposedWrite, WriteApplied, Writer

NOT_ITS_OWN = "another pilot holds this claim"
"""Told by the heir of a dead pilot, who has its ends: they count as soon as the claim is taken from the dead."""
MISSING = 60.0
"""Seconds for which the end of a job that cannot be found is not yet settled."""


class CompletionStatus(StrEnum):
    """What became of an end."""

    COMMITTED = "committed"
    HELD = "held"
    SUPERSEDED = "superseded"
    UNKNOWN = "unknown"
    """Not settled; send it again."""


@dataclass(frozen=True, slots=True)
class FailedCleanup:
    """A pilot's report on a folder that it could not remove."""

    error: str = ""
    """As the system calls it, such as `EBUSY`."""
    words: str = ""


@dataclass(frozen=True, slots=True)
class CompletionReport:
    """An end as a pilot sends it, with what does not go into the job's document."""

    job: str
    ending: AttemptResult
    log_tail: str = ""
    log_bytes: int = 0
    cleanup: FailedCleanup | None = None
    """What went wrong when its working folder was to be cleared."""
    staging: Sequence[Mapping[str, object]] = ()
    """How its files came; kept beside the log or the evidence."""
    task: Mapping[str, object] | None = None
    """What a pilot tells of the executors of a task, or of its outputs; kept there too."""


@dataclass(frozen=True, slots=True)
class CompletionReply:
    """The reply to the pilot."""

    claim: str
    result: CompletionStatus
    detail: str = ""


@dataclass(slots=True, eq=False)
class _Asked:
    report: CompletionReport
    pilot: str
    tenant: str
    answer: asyncio.Future[CompletionReply]


class FailureHandling(Protocol):
    """Handles failed attempts: `ExceptionPipeline`."""

    async def handle_failures(self, failures: Sequence[tuple[Stored, str]]) -> None:
        """Handle faulted jobs, each with the last lines that its attempt printed."""


class HostFailures(Protocol):
    """Notes on which hosts attempts failed: `HostHealthTracker`."""

    async def faulted(self, failures: Sequence[tuple[Stored, str]]) -> None:
        """Note where each of these attempts failed, with the last lines that it printed."""


class CleanupReports(Protocol):
    """Notes what attempts left behind on their hosts: `CleanupFailures`."""

    async def note(self, failures: Sequence[tuple[JobDocument, str, FailedCleanup]]) -> None:
        """Note each, by its claim. `Transient` if the store does not answer: the pilot tells it again."""


class StagingFailures(Protocol):
    """Notes which sources of files failed: `ReplicaHealth`."""

    async def note(self, tenant: str, staging: Sequence[Mapping[str, object]]) -> None:
        """Note the failed sources among those that an attempt used."""


@dataclass(slots=True)
class JobCompletions:
    """The service that accepts completions; group commit as for claims."""

    store: JobStore
    writer: Writer
    clock: Clock
    bulk: int = 500
    remember: int = 20_000
    failures: FailureHandling | None = None
    """Handles the failures among them before their pilots are told; None: their own retry policy does, in the same write."""
    hosts: HostFailures | None = None
    """Told before what to do about failures is decided, for the next try may come at once; None: nobody notes."""
    leftovers: CleanupReports | None = None
    """Notes what attempts left behind; None: nobody does."""
    sources: StagingFailures | None = None
    """None: nobody notes which sources of files failed."""
    troubled: Callable[[str], None] = lambda _text: None
    """Told why failures could not be handled at once; they stay due."""
    intruded: Callable[[str, str, str], None] = lambda _pilot, _tenant, _job: None
    """Told of a pilot and its tenant that name another tenant's job: no honest pilot can know it."""
    intrusions: int = 0
    _queue: list[_Asked] = field(default_factory=list)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _known: OrderedDict[str, Stored] = field(default_factory=OrderedDict)
    _missing: OrderedDict[str, float] = field(default_factory=OrderedDict)

    def granted(self, jobs: Sequence[Stored]) -> None:
        """Remember the documents of claims given here: their ends then need no read."""
        for stored in jobs:
            if stored.document.claim is not None:
                self._known[stored.document.claim.id] = stored
        while len(self._known) > self.remember:
            self._known.popitem(last=False)

    def held_by(self, pilots: Collection[str]) -> list[Stored]:
        """The claims given here to these pilots whose ends have not come, as far as they are remembered."""
        return [
            stored for stored in self._known.values() if stored.document.claim and stored.document.claim.pilot in pilots
        ]

    async def end(self, reports: Sequence[CompletionReport], *, pilot: str, tenant: str) -> Sequence[CompletionReply]:
        """Commit what these attempts came to; one result each, in order."""
        loop = asyncio.get_running_loop()
        asked = [_Asked(report, pilot, tenant, loop.create_future()) for report in reports]
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
                except Exception as error:  # the pilots must not hang on a bug
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
        """As many as one write takes, no job twice: a second end of the same job waits for its turn."""
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
            await self._keep_evidence(batch)
        except Transient as error:
            for request in batch:
                _tell(request, CompletionStatus.UNKNOWN, str(error))
            return
        answers = await self.writer.write([self._proposed(request) for request in batch])
        await self._hand_over(batch, answers)
        await self._note_sources(batch)
        try:
            await self._note_leftovers(batch, answers)
        except Transient as error:
            for request in batch:
                if request.report.cleanup is not None:
                    _tell(request, CompletionStatus.UNKNOWN, str(error))
        late: list[tuple[_Asked, str]] = []
        for request, answer in zip(batch, answers, strict=True):
            self._known.pop(request.report.ending.claim, None)
            if isinstance(answer, TransitionRefused):
                late.append((request, answer.reason))
            elif not isinstance(answer, JobMissing):
                _tell(request, *_result(answer))
            elif self._long_missing(request.report.ending.claim):
                late.append((request, "there is no such job"))
            else:
                _tell(request, CompletionStatus.UNKNOWN, "the job cannot be found")
        if late:
            await self._keep_late(late)

    async def _hand_over(self, batch: Sequence[_Asked], answers: Sequence[Answer]) -> None:
        """Whatever goes wrong here costs no end: the failures stay due, and are found again."""
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
        """Which replica failed is a help for the jobs to come, and worth no end."""
        if self.sources is None:
            return
        for request in batch:
            # A full disk says nothing about where the file came from.
            if request.report.ending.reason != "disk" and any(entry.get("failed") for entry in request.report.staging):
                try:
                    await self.sources.note(request.tenant, request.report.staging)
                except PortError as error:
                    self.troubled(f"a failed source could not be recorded: {error}")

    async def _note_leftovers(self, batch: Sequence[_Asked], answers: Sequence[Answer]) -> None:
        """What could not be cleared away changes nothing about how a job ended; it is told to whoever looks after the host."""
        failures = [
            (answer.stored.document, request.report.ending.claim, request.report.cleanup)
            for request, answer in zip(batch, answers, strict=True)
            if request.report.cleanup is not None and isinstance(answer, WriteApplied)
        ]
        if failures and self.leftovers is not None:
            await self.leftovers.note(failures)

    def _long_missing(self, claim: str) -> bool:
        """A copy of the store that lags may not know the job yet; only when nobody knows it for long it is gone."""
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
                return TransitionRefused("there is no such job")
            if (
                document.claim is not None
                and document.claim.id == ending.claim
                and document.claim.pilot != request.pilot
            ):
                return TransitionRefused(NOT_ITS_OWN)
            verdict = end(document, ending, now=now, by=request.pilot, answer=answer)
            if isinstance(verdict, Applied | Repeated):
                return verdict.document
            return TransitionRefused(verdict.reason)

        def already_applied(document: JobDocument) -> bool:
            return document.tenant == request.tenant and isinstance(
                end(document, ending, now=now, by=request.pilot), Repeated
            )

        def confirm_refusal(document: JobDocument) -> bool:
            """Finished work is not thrown away on a read alone; of a failure nothing is lost but its evidence, which is kept."""
            whose = document.claim is None or document.claim.id != ending.claim or document.claim.pilot == request.pilot
            return whose and ending.outcome is AttemptOutcome.OK and document.tenant == request.tenant

        return ProposedWrite(
            request.report.job,
            decide,
            already_applied,
            known=self._known.get(ending.claim),
            confirm_refusal=confirm_refusal,
        )

    async def _keep_evidence(self, batch: Sequence[_Asked]) -> None:
        """What a failure left behind, and what any attempt printed, before the document says that it ended."""
        records = [
            _record(
                request,
                "evidence" if request.report.ending.outcome is AttemptOutcome.FAILURE else "log",
                self.clock.now(),
            )
            for request in batch
            if request.report.ending.outcome is AttemptOutcome.FAILURE or request.report.log_tail or request.report.task
        ]
        records += [_record(request, "staging", self.clock.now()) for request in batch if _troubled(request.report)]
        if records:
            await self.store.add_records(records)

    async def _keep_late(self, late: Sequence[tuple[_Asked, str]]) -> None:
        """A late end is never applied and never lost: it is kept as evidence before the pilot may forget it."""
        records = [_record(request, "late-completion", self.clock.now(), why=why) for request, why in late]
        try:
            await self.store.add_records(records)
        except Transient as error:
            for request, _ in late:
                _tell(request, CompletionStatus.UNKNOWN, str(error))
            return
        for request, why in late:
            _tell(request, CompletionStatus.UNKNOWN if why == NOT_ITS_OWN else CompletionStatus.SUPERSEDED, why)


def _record(request: _Asked, kind: str, now: int, why: str = "") -> Record:
    report = request.report
    token = report.ending.token
    body: dict[str, object] = {"ending": ending_to_json(report.ending), "pilot": request.pilot}
    if report.log_tail and kind != "staging":
        # What others may read as evidence has no secrets in it; what went well is its owner's log, as it was printed.
        tail = report.log_tail if kind == "log" else redacted(report.log_tail)
        body |= {"log_tail": tail, "log_bytes": report.log_bytes}
    if report.staging:
        body["staging"] = [_redacted(entry) for entry in report.staging]
    if report.task and kind != "staging":
        body["task"] = report.task if kind == "log" else _redacted_texts(report.task)
    if why:
        body["why"] = why
    # The teller is part of the name: what someone else says of the same claim must not stand in its way.
    name = f"{report.job}:{token.generation}.{token.attempt}:{report.ending.claim}:{kind}:{request.pilot}"
    return Record(id=name, tenant=request.tenant, kind=kind, job=report.job, at=now, body=body)


def _troubled(report: CompletionReport) -> bool:
    """Whether a source of a file failed, though another one served: worth a record, which one that went well at once is not."""
    return report.ending.outcome is AttemptOutcome.OK and any(entry.get("failed") for entry in report.staging)


def _redacted_texts(value: object) -> object:
    """What executors printed, however deep inside."""
    if isinstance(value, Mapping):
        return {name: _redacted_texts(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_redacted_texts(entry) for entry in value]
    return redacted(value) if isinstance(value, str) else value


def _redacted(entry: Mapping[str, object]) -> dict[str, object]:
    """How a file came, without what an address may carry."""
    failed = entry.get("failed")
    words = [redacted(str(failure)) for failure in failed] if isinstance(failed, list) else []
    return {**entry, **({"failed": words} if words else {})}


def _result(answer: Answer) -> tuple[CompletionStatus, str]:
    if isinstance(answer, WriteApplied):
        held = answer.stored.document.held_completion is not None
        return (CompletionStatus.HELD, "") if held else (CompletionStatus.COMMITTED, "")
    return CompletionStatus.UNKNOWN, getattr(answer, "detail", "")


def _tell(request: _Asked, result: CompletionStatus, detail: str) -> None:
    if not request.answer.done():
        request.answer.set_result(CompletionReply(request.report.ending.claim, result, detail))
