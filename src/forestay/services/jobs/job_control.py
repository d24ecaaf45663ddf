"""Carries out people's actions on a job: cancel, hold, continue, release, retry, force."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from forestay.domain.exceptions.incidents.incident import IncidentState, failure_incident_id
from forestay.domain.jobs import steering
from forestay.domain.jobs.claim import FailureAnswer, begin, release
from forestay.domain.jobs.job_document import JobDocument, JobPhase, State, Token
from forestay.domain.jobs.lifecycle import TransitionRefused
from forestay.ports.clock import Clock
from forestay.ports.errors import PortError, Transient
from forestay.ports.exceptions.incident_store import IncidentStore
from forestay.ports.jobs.job_store import JobStore, Record
from forestay.services.shared.checked_writer import Answer, ProposedWrite, WriteApplied, Writer, WriteUnsettled
from forestay.services.shared.incident_settlement import settle_held

MANY = 500
"""Jobs that are steered in one write."""


@dataclass(slots=True)
class JobControl:
    """The service. Each verb is one version-checked write; a repeat of a successful one gets the same answer."""

    store: JobStore
    writer: Writer
    clock: Clock
    failure_answer: FailureAnswer | None = None
    """Answers a failure whose job was held; None: its own retry policy does."""
    incidents: IncidentStore | None = None
    """Holds failures that wait for a person, which are settled when the job is retried or ended by hand; None: the caller settles them."""

    released: Callable[[str], Awaitable[None]] | None = None
    """Releases what the playbook of an incident holds beside the job (`PlaybookRunner.release`); None: this domain has no flow engine."""

    async def cancel(self, job: str, *, by: str, reason: str = "") -> Answer:
        """End the job; a pilot that runs it is ordered to stop."""
        now = self.clock.now()
        return await self._moved_on(
            job,
            lambda document: steering.cancel(document, now=now, by=by, reason=reason),
            lambda document: document.state is State.CANCELLED,
            f"{by}: cancel. {reason}",
        )

    async def hold(self, job: str, *, holder: str, by: str, reason: str = "") -> Answer:
        now = self.clock.now()
        return await self._one(
            job,
            lambda document: steering.hold(document, holder=holder, now=now, by=by, reason=reason),
            lambda document: holder in document.holders,
        )

    async def let_go(self, job: str, *, holder: str, by: str) -> Answer:
        now = self.clock.now()
        return await self._one(
            job,
            lambda document: steering.let_go(document, holder=holder, now=now, by=by, answer=self.failure_answer),
            lambda document: False,
        )

    async def retry(self, job: str, *, by: str, reason: str = "") -> Answer:
        """Run a faulted job again. Everything that the playbook of its failure holds continues."""
        now = self.clock.now()
        return await self._moved_on(
            job,
            lambda document: steering.retry(
                document, now=now, by=by, reason=reason, answered=failure_incident_id(document)
            ),
            lambda document: False,
            f"{by}: retry. {reason}",
        )

    async def release(self, job: str, *, attempt: int, claim: str, by: str, reason: str) -> Answer:
        """Release a claim by hand; only the one that the caller saw. Its pilot is not proven dead, so an overlap is possible."""
        now = self.clock.now()

        def decide(document: JobDocument) -> JobDocument | TransitionRefused:
            if document.attempt != attempt:
                return TransitionRefused(f"the job has changed: it is at attempt {document.attempt}")
            # The person who releases it is responsible for its earlier effects.
            return release(
                document, claim_id=claim, now=now, by=by, reason=reason, overlap_possible=True, executed=False
            )

        return await self._moved_on(
            job, decide, lambda d: d.claim is None and d.former_claim == claim, f"{by}: release. {reason}"
        )

    async def begin(self, job: str, *, claim: str, pilot: str, tenant: str) -> Answer:
        """Record a pilot's report that the inputs of its job are staged."""
        now = self.clock.now()

        def decide(document: JobDocument) -> JobDocument | TransitionRefused:
            if document.tenant != tenant:
                return TransitionRefused("there is no such job")
            return begin(document, claim_id=claim, now=now, by=pilot)

        def already_applied(document: JobDocument) -> bool:
            held = document.claim
            mine = held is not None and held.id == claim and held.pilot == pilot
            return mine and document.phase is JobPhase.EXECUTING

        return await self._one(job, decide, already_applied)

    async def force(self, job: str, *, to: State, expected: Token, by: str, reason: str) -> Answer:
        now = self.clock.now()
        return await self._moved_on(
            job,
            lambda document: steering.force(document, to=to, expected=expected, now=now, by=by, reason=reason),
            lambda document: document.state is to,
            f"{by}: {to.value}. {reason}",
        )

    async def many(self, jobs: Sequence[str], verb: str, *, holder: str, by: str, reason: str = "") -> None:
        """Cancel, hold or continue many jobs; those that have ended, or to which it does not apply, do not change.

        `Transient` if the store did not settle all of them: a repeat is safe.
        """
        for start in range(0, len(jobs), MANY):
            await self._some(jobs[start : start + MANY], verb, holder=holder, by=by, reason=reason)

    async def _some(self, jobs: Sequence[str], verb: str, *, holder: str, by: str, reason: str) -> None:
        now = self.clock.now()
        before: dict[str, JobDocument] = {}

        def decide(document: JobDocument) -> JobDocument | TransitionRefused:
            before[document.id] = document
            if verb == "cancel":
                return steering.cancel(document, now=now, by=by, reason=reason)
            if verb == "hold":
                if holder in document.holders:
                    return TransitionRefused("it already holds the job")
                return steering.hold(document, holder=holder, now=now, by=by, reason=reason)
            return steering.let_go(document, holder=holder, now=now, by=by, answer=self.failure_answer)

        def already_applied(document: JobDocument) -> bool:
            if verb == "cancel":
                return document.state is State.CANCELLED
            return (holder in document.holders) == (verb == "hold")

        answers = await self.writer.write([ProposedWrite(job, decide, already_applied) for job in jobs])
        if verb == "cancel":
            # Jobs that were cancelled already, perhaps by an earlier attempt of this call, were skipped. So this comes before the error: the next attempt would skip these.
            done = [job for job, answer in zip(jobs, answers, strict=True) if isinstance(answer, WriteApplied)]
            await self._conclude([before[job] for job in done if job in before], f"{by}: cancel. {reason}")
        for job, answer in zip(jobs, answers, strict=True):
            if isinstance(answer, WriteUnsettled):
                raise Transient(f"the store did not confirm the write to job {job}: {answer.detail}")

    async def order(self, document: JobDocument, what: str, **body: object) -> None:
        """Store an order for the pilot that held the job; the server that has its channel passes it on.

        Best effort: the fence, not the order, keeps a late end from counting.
        """
        held = document.claim
        if held is None:
            return
        now = self.clock.now()
        text: dict[str, object] = {"order": what, "pilot": held.pilot, "claim": held.id, **body}
        record = Record(f"order:{held.id}:{what}:{now}", document.tenant, "order", document.id, now, text)
        try:
            await self.store.add_records([record])
        except PortError:
            return

    async def _moved_on(
        self,
        job: str,
        decide: Callable[[JobDocument], JobDocument | TransitionRefused],
        already_applied: Callable[[JobDocument], bool],
        words: str,
    ) -> Answer:
        """Continue or end a job on a person's request. `Transient` if what its incident holds cannot be released now: nothing was changed."""
        before: list[JobDocument] = []
        await self._release_first(job, decide)

        def noting(document: JobDocument) -> JobDocument | TransitionRefused:
            before[:] = [document]
            return decide(document)

        answer = await self._one(job, noting, already_applied)
        if isinstance(answer, WriteApplied):
            await self._conclude(before, words)
        return answer

    async def _conclude(self, before: Sequence[JobDocument], words: str) -> None:
        """Stop running attempts, and settle incidents that waited for a person. Best effort: neither changes the jobs' states."""
        for document in before:
            if document.claim is not None:
                await self.order(document, "cancel")
        failures = [failure_incident_id(document) for document in before if document.state is State.FAULTED]
        if self.incidents is not None:
            with suppress(PortError):
                await settle_held(self.incidents, failures, words, now=self.clock.now())

    async def _release_first(self, job: str, decide: Callable[[JobDocument], JobDocument | TransitionRefused]) -> None:
        """Release what the playbook of a job's failure holds beside the job, before the job continues: a settled incident is not listed, so nobody would see what it still holds."""
        if self.released is None or self.incidents is None:
            return
        stored = (await self.store.get([job])).get(job)
        if (
            stored is None
            or stored.document.state is not State.FAULTED
            or isinstance(decide(stored.document), TransitionRefused)
        ):
            return
        name = failure_incident_id(stored.document)
        known = (await self.incidents.get_statuses([name])).get(name)
        if known is not None and known.status.state is IncidentState.HELD:
            await self.released(name)

    async def _one(
        self,
        job: str,
        decide: Callable[[JobDocument], JobDocument | TransitionRefused],
        already_applied: Callable[[JobDocument], bool],
    ) -> Answer:
        (answer,) = await self.writer.write([ProposedWrite(job, decide, already_applied)])
        return answer
