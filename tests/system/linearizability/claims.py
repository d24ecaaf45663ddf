"""The second level: clients that claim jobs, end their attempts and take claims away, through the checked writer."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from uuid import UUID

from tests.system.linearizability.history import Facts, Recorder, version_facts
from tests.system.linearizability.registers import Registers, Rest

from forestay.domain.jobs.claim import Applied, Repeated, claim, claimable, confirm, end
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, JobDocument, State
from forestay.domain.jobs.lifecycle import TransitionRefused
from forestay.domain.jobs.specification import RetryPolicy, Specification
from forestay.domain.jobs.submission import Submission, new_job
from forestay.ports.errors import PortError
from forestay.ports.jobs.job_store import Conflicted, DocumentChange, Stored, Written
from forestay.services.jobs.claim_releaser import release_write
from forestay.services.shared.checked_writer import Answer, JobMissing, ProposedWrite, WriteApplied, Writer

LEVEL = "writer"
SPECIFICATION = Specification(
    id="linearizability", tenant="alpha", name="claims", command=("true",), retry=RetryPolicy(max_attempts=1_000_000)
)
_WINDOW = 12
"""So many jobs are in use at once; those that ended make room for new ones."""
_MOST_AT_ONCE = 3
_OK_SHARE = 0.1
_PATIENCE = 2_000
"""Milliseconds after which a claim that still stands is taken away; its holder may be alive, and then comes too late."""


@dataclass(slots=True)
class ClaimClient:
    """One client with a store instance and a writer of its own: pilot, server and reconciler in one."""

    name: str
    arm: str
    store: Registers
    writer: Writer
    recorder: Recorder
    dice: random.Random
    finished: set[int] = field(default_factory=set)
    _oldest: int = 0
    _rest: Rest = field(init=False)

    def __post_init__(self) -> None:
        self._rest = Rest(self.dice)

    async def step(self) -> None:
        """Look at a few jobs and do what there is to do with each: create, claim and end, or take a claim away."""
        names = self._pick()
        try:
            stored_jobs = await self.store.get(list(names))
        except PortError:
            await self._rest.after(success=False)
            return
        missing = [name for name in names if name not in stored_jobs]
        if missing:
            await self._create(missing)
        now = _now()
        to_claim: list[Stored] = []
        to_release: list[Stored] = []
        for name, stored in stored_jobs.items():
            document = stored.document
            held = document.claim
            if document.final or document.state is State.FAULTED:
                self._finish(names[name])
            elif held is not None and (now - held.granted > _PATIENCE or self.dice.random() < 0.02):
                to_release.append(stored)
            elif claimable(document, now):
                to_claim.append(stored)
        if to_release:
            await self._release(to_release)
        if to_claim:
            await self._claim_and_end(to_claim)

    def _pick(self) -> dict[str, int]:
        open_ones = (number for number in count(self._oldest) if number not in self.finished)
        picked = self.dice.sample(list(islice(open_ones, _WINDOW)), self.dice.randint(1, _MOST_AT_ONCE))
        return {f"{self.arm}-j{number:05}": number for number in picked}

    def _finish(self, job: int) -> None:
        self.finished.add(job)
        while self._oldest in self.finished:
            self.finished.discard(self._oldest)
            self._oldest += 1

    async def _create(self, names: Sequence[str]) -> None:
        """Create jobs, every other one with a claim of ours on it, which counts only if the creating write is acknowledged."""
        submission = Submission(SPECIFICATION, owner="ada")
        changes: list[DocumentChange] = []
        operations: list[Facts] = []
        for name in names:
            document = new_job(submission, job=name, now=_now(), by="ada")
            facts = self._facts(name, "create")
            if self.dice.random() < 0.5:
                facts["claim"] = self._claim_id()
                claimed = claim(document, claim_id=str(facts["claim"]), pilot=self.name, host="node", now=_now())
                assert isinstance(claimed, JobDocument)
                document = claimed
            changes.append(DocumentChange(document, None))
            operations.append(facts)
        numbers = self.recorder.call(operations)
        results = await self.store.write(changes)
        value = ["written" if isinstance(write_result, Written) else "conflicted" if isinstance(write_result, Conflicted) else "unknown" for write_result in results]  # fmt: skip
        self.recorder.done(numbers, [{"result": word} for word in value])
        already_applied = [
            Stored(change.document, result.version)
            for change, result in zip(changes, results, strict=True)
            if isinstance(result, Written) and change.document.claim is not None
        ]
        await self._work_and_end(already_applied)

    async def _claim_and_end(self, jobs: Sequence[Stored]) -> None:
        ids = [self._claim_id() for _ in jobs]
        operations = [
            self._facts(job.document.id, "claim") | {"claim": name, "attempt": job.document.attempt + 1}
            for job, name in zip(jobs, ids, strict=True)
        ]
        answers = await self._carry_out(
            operations, [self._claim_wish(job, name) for job, name in zip(jobs, ids, strict=True)]
        )
        await self._work_and_end([answer.stored for answer in answers if isinstance(answer, WriteApplied)])

    def _claim_id(self) -> str:
        return UUID(int=self.dice.getrandbits(128), version=4).hex

    async def _work_and_end(self, already_applied: list[Stored]) -> None:
        if not already_applied:
            return
        await asyncio.sleep(0.05 * self.dice.random())
        endings = {stored.document.id: self._ending(stored.document) for stored in already_applied}
        for _ in range(4):
            # As a pilot does: what was not settled is sent again.
            already_applied = await self._end(already_applied, endings)
            if not already_applied:
                return

    async def _end(self, held: Sequence[Stored], endings: dict[str, AttemptResult]) -> list[Stored]:
        if not held:
            return []
        operations = []
        writes = []
        for stored in held:
            ending = endings[stored.document.id]
            facts = {"claim": ending.claim, "attempt": ending.token.attempt, "outcome": ending.outcome.value}
            operations.append(self._facts(stored.document.id, "end") | facts)
            writes.append(self._completion_write(stored, ending))
        answers = await self._carry_out(operations, writes)
        unsettled = []
        for stored, answer in zip(held, answers, strict=True):
            if not isinstance(answer, WriteApplied | TransitionRefused | JobMissing):
                unsettled.append(stored)
        return unsettled

    async def _release(self, jobs: Sequence[Stored]) -> None:
        operations = []
        writes = []
        for job in jobs:
            held = job.document.claim
            assert held is not None
            operations.append(self._facts(job.document.id, "release") | {"claim": held.id})
            writes.append(release_write(job, by=self.name, reason="no end in sight", overlap_possible=True, now=_now()))
        await self._carry_out(operations, writes)

    async def close(self, names: Sequence[str]) -> list[str]:
        """Write each job once more as it stands, which proves what stands, and record it; those it did not work for."""
        writes = [ProposedWrite(name, confirm, lambda _: False) for name in names]
        numbers = self.recorder.call([self._facts(name, "final") for name in names])
        answers = await self.writer.write(writes)
        left = []
        facts: list[Facts] = []
        for name, answer in zip(names, answers, strict=True):
            if isinstance(answer, WriteApplied):
                facts.append(_stands(answer.stored))
            elif isinstance(answer, JobMissing):
                facts.append({"result": "missing"})
            else:
                facts.append({"result": "unknown"})
                left.append(name)
        self.recorder.done(numbers, facts)
        return left

    async def _carry_out(self, operations: Sequence[Facts], writes: Sequence[ProposedWrite]) -> Sequence[Answer]:
        numbers = self.recorder.call(operations)
        answers = await self.writer.write(writes)
        self.recorder.done(numbers, [_said(answer) for answer in answers])
        await self._rest.after(success=any(isinstance(answer, WriteApplied | TransitionRefused) for answer in answers))
        return answers

    def _claim_wish(self, stored: Stored, name: str) -> ProposedWrite:
        now = _now()

        def decide(document: JobDocument) -> JobDocument | TransitionRefused:
            return claim(document, claim_id=name, pilot=self.name, host="node", now=now)

        def already_applied(document: JobDocument) -> bool:
            return document.claim is not None and document.claim.id == name

        return ProposedWrite(stored.document.id, decide, already_applied, known=stored, no_retry=True)

    def _completion_write(self, stored: Stored, ending: AttemptResult) -> ProposedWrite:
        now = _now()

        def decide(document: JobDocument) -> JobDocument | TransitionRefused:
            verdict = end(document, ending, now=now, by=self.name)
            return verdict.document if isinstance(verdict, Applied | Repeated) else TransitionRefused(verdict.reason)

        def already_applied(document: JobDocument) -> bool:
            return isinstance(end(document, ending, now=now, by=self.name), Repeated)

        return ProposedWrite(stored.document.id, decide, already_applied, known=stored)

    def _ending(self, document: JobDocument) -> AttemptResult:
        assert document.claim is not None
        outcome = AttemptOutcome.OK if self.dice.random() < _OK_SHARE else AttemptOutcome.FAILURE
        return AttemptResult(
            document.token, document.claim.id, outcome, exit_code=0 if outcome is AttemptOutcome.OK else 1
        )

    def _facts(self, document: str, kind: str) -> dict[str, object]:
        return {"level": LEVEL, "arm": self.arm, "client": self.name, "document": document, "kind": kind}


def _said(answer: Answer) -> Facts:
    if isinstance(answer, WriteApplied):
        document = answer.stored.document
        facts = {"state": document.state.value, "rev": document.rev}
        return {"result": "settled", "version": version_facts(answer.stored.version), **facts}
    if isinstance(answer, JobMissing):
        return {"result": "missing"}
    if isinstance(answer, TransitionRefused):
        return {"result": "refused", "detail": answer.reason}
    return {"result": "unsettled", "detail": answer.detail}


def _stands(stored: Stored) -> Facts:
    document = stored.document
    facts = {"state": document.state.value, "attempt": document.attempt, "rev": document.rev}
    holder = {"holder": document.claim.id} if document.claim else {}
    return {"result": "found", "version": version_facts(stored.version), **facts, **holder}


def _now() -> int:
    return time.time_ns() // 1_000_000
