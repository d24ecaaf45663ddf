"""Makes lost outputs again: the action `remake`, and the loop that continues the waiting jobs.

Each write is version-checked and may be repeated: the remake is created under an id derived from its producer, the producer notes it, a document records
who waits, and the failed job is held. If a process dies in between, the next one finds what was done and continues.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from forestay.domain.data.remake import (
    committed_since,
    holder_of_remake,
    is_lost,
    note_remake,
    remade_by,
    remake_id,
    remake_submission,
    was_made,
    why_not_remade,
)
from forestay.domain.jobs import steering
from forestay.domain.jobs.claim import leave_failure
from forestay.domain.jobs.inputs import JobInput, Produced, produced
from forestay.domain.jobs.job_document import JobDocument, State
from forestay.domain.jobs.lifecycle import TransitionRefused
from forestay.domain.jobs.specification import Specification
from forestay.domain.playbooks.action import Restage, Restaging
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import Permanent, Transient
from forestay.ports.jobs.results import Results
from forestay.services.data.committed_files import committed_digests
from forestay.services.data.remade_outputs import newest_commits
from forestay.services.exceptions.act.data_actions import DataActions
from forestay.services.exceptions.act.job_actions import WAITS_FOR, WORDS, ActionOutcome, job_of
from forestay.services.exceptions.record.decision_log import StepRequest
from forestay.services.jobs.job_submitter import JobSubmitter
from forestay.services.shared.checked_writer import ProposedWrite, Writer, WriteUnsettled
from forestay.services.shared.document_update import update_document
from forestay.services.shared.polling import poll_forever

KIND = "remake-wait"
"""The documents of jobs that wait for a remake."""
BULK = 500
NOT_YET = TransitionRefused("the job is about to be held")
"""The action records that a job waits before it holds the job."""


class LostOutput(NamedTuple):
    """An output that a job needs and that is no longer available."""

    output: Produced
    producer: JobDocument
    """The job that made it last: the one that the input names, or the newest remake that has committed."""
    remake: JobDocument | None
    """The job that makes it again, if there is one."""
    specification: Specification

    def committed_again(self, consumer: JobDocument) -> JobDocument | None:
        """The job that has made it again since the attempt that lacked it began."""
        made = (self.producer, self.remake)
        return next((job for job in made if job is not None and committed_since(job, consumer)), None)


@dataclass(slots=True)
class OutputRemaker:
    """The service; a performer of playbooks, and a loop of every reconciler."""

    data: DataActions
    submitter: JobSubmitter
    documents: DocumentStore
    writer: Writer
    results: Results
    troubled: Callable[[str], None] = lambda _text: None
    every: float = 2.0

    # -- the action --------------------------------------------------------------------------------------------

    async def __call__(self, ask: StepRequest) -> ActionOutcome:
        document = await job_of(self.data.store, ask.incident)
        if isinstance(document, ActionOutcome):
            return document
        wanted = await self.data.failed_input(document)
        if wanted is None or not is_lost(document.last):
            return ActionOutcome(done=False, detail="the job did not fail because an input is lost or damaged")
        if await self.data.other_replica(document, wanted) is not None:
            return await self.data(replace(ask, do=Restage(Restaging.OTHER_REPLICA)))
        lost = await self._find(document, wanted)
        if isinstance(lost, str):
            return ActionOutcome(done=False, detail=lost)
        file = f"{lost.output.path} of job {lost.output.job}"
        if (again := lost.committed_again(document)) is not None:
            notes = {WAITS_FOR: "", WORDS: f"job {again.id} has made {file} again"}
            return await self.data.jobs.recover(ask.incident, ask.do, step=ask.id, notes=notes)
        remake = remake_id(lost.producer)
        if lost.remake is None:
            if why := why_not_remade(lost.producer, lost.specification, owner=document.owner):
                return ActionOutcome(done=False, detail=why)
            await self._create(ask, document, lost)
        elif lost.remake.final:
            words = f"job {remake}, which was to make {file} again, is {lost.remake.state}"
            return ActionOutcome(done=False, detail=words)
        await self._note_wait(document, remake)
        notes = {WAITS_FOR: holder_of_remake(remake), WORDS: f"waits for job {remake}, which makes {file} again"}
        return await self.data.jobs.recover(ask.incident, ask.do, step=ask.id, notes=notes)

    async def is_lost_output(self, document: JobDocument, wanted: JobInput) -> bool:
        """Whether a job failed because an output of another job is lost or damaged."""
        return is_lost(document.last) and not isinstance(await self._find(document, wanted), str)

    async def _find(self, document: JobDocument, wanted: JobInput) -> LostOutput | str:
        """The lost output, or why it cannot be made again."""
        output = produced(wanted.source)
        if output is None:
            return f"{wanted.source} is not an output of a job"
        store = self.data.store
        named = await store.get([output.job])
        if output.job not in named or named[output.job].document.tenant != document.tenant:
            return f"there is no job {output.job}"
        producer = (await newest_commits(store, named))[output.job].document
        specifications = await store.get_specifications([producer.specification])
        if producer.specification not in specifications:
            return f"the specification of job {producer.id} is no longer stored"
        specification = specifications[producer.specification]
        if not was_made(producer, specification, output.path) or not await self._is_listed(producer, output.path):
            return f"job {output.job} has no output {output.path}"
        remake = (await store.get([name])).get(name) if (name := remade_by(producer)) else None
        return LostOutput(output, producer, remake.document if remake is not None else None, specification)

    async def _is_listed(self, producer: JobDocument, path: str) -> bool:
        try:
            return path in await committed_digests(self.results, producer)
        except Permanent:
            return True  # the manifest is lost too, or cannot be read from here

    async def _create(self, ask: StepRequest, document: JobDocument, lost: LostOutput) -> None:
        by, remake = f"playbook:{ask.id}", remake_id(lost.producer)
        submission, element = remake_submission(lost.producer, lost.specification, document, ask.incident.id)
        await self.submitter.submit_elements(submission, [element], by=by)
        now = self.data.clock.now()
        (answer,) = await self.writer.write(
            [
                ProposedWrite(
                    lost.producer.id,
                    lambda producer: note_remake(producer, remake, now=now, by=by),
                    lambda producer: remade_by(producer) == remake,
                )
            ]
        )
        if isinstance(answer, WriteUnsettled):
            raise Transient(f"the store did not confirm the write to job {lost.producer.id}: {answer.detail}")

    async def _note_wait(self, document: JobDocument, remake: str) -> None:
        name = f"{KIND}:{document.id}"
        body = {"job": document.id, "attempt": document.attempt, "remake": remake}
        wait = Document(name, document.tenant, KIND, body)

        def change(stored: StoredDocument | None) -> tuple[Document | None, None]:
            return None if stored is not None and stored.document == wait else wait, None

        await update_document(
            self.documents, name, change, unsure="that the job waits could not be stored; it is tried again"
        )

    # -- the waiting jobs --------------------------------------------------------------------------------------

    async def run(self) -> None:
        await poll_forever(self.look, self.every, self.troubled)

    async def look(self) -> None:
        """Release the jobs whose remakes have ended. If a remake failed, its job fails again for the missing input, and that failure asks a person."""
        waits = await self.documents.find(KIND)
        for start in range(0, len(waits), BULK):
            await self._let_go(waits[start : start + BULK])

    async def _let_go(self, waits: Sequence[StoredDocument]) -> None:
        remakes = await self.data.store.get(sorted({str(stored.document.body["remake"]) for stored in waits}))
        over: list[tuple[StoredDocument, ProposedWrite]] = []
        for stored in waits:
            name = str(stored.document.body["remake"])
            remake = remakes[name].document if name in remakes else None
            if remake is None or remake.final:
                over.append((stored, self._proposed(stored.document, name, remake)))
        if not over:
            return
        answers = await self.writer.write([proposed for _, proposed in over])
        settled = [
            stored
            for (stored, _), answer in zip(over, answers, strict=True)
            if not isinstance(answer, WriteUnsettled) and answer != NOT_YET
        ]
        await self.documents.remove(settled)

    def _proposed(self, wait: Document, name: str, remake: JobDocument | None) -> ProposedWrite:
        holder, now = holder_of_remake(name), self.data.clock.now()
        state = remake.state if remake is not None else "gone"
        words = f"job {name} has committed the lost input" if state is State.COMPLETED else f"job {name} is {state}"

        def decide(document: JobDocument) -> JobDocument | TransitionRefused:
            if document.state is State.FAULTED and document.attempt == wait.body["attempt"]:
                return NOT_YET
            return steering.let_go(
                document, holder=holder, now=now, by="reconciler", answer=leave_failure, reason=words
            )

        return ProposedWrite(str(wait.body["job"]), decide, lambda _document: False)
