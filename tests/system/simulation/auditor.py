"""The independent ledger of what pilots did, and the auditor who holds it against the true history of the store.

The auditor trusts nobody: it is told of every writing that the store can no longer lose, of every payload that starts, of
every effect, and of every answer that a pilot or a client got.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from tests.system.simulation.shard import Entry

from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, JobDocument, State, Token, Transition
from forestay.domain.jobs.lifecycle import Event, whole_story
from forestay.formats.jobs.job_json import ending_from_json
from forestay.ports.jobs.job_store import Record
from forestay.services.jobs.job_completions import CompletionStatus
from forestay.services.shared.checked_writer import chapter_of


class Violation(NamedTuple):
    """A promise that was broken."""

    kind: str
    text: str


class Effect(NamedTuple):
    """What a payload left in its attempt's own place."""

    job: str
    token: Token
    claim: str


class Auditor:
    """Collects evidence while a schedule runs, and judges at its end."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.tally: Counter[str] = Counter()
        self.documents: dict[str, JobDocument] = {}
        self.records: dict[str, Record] = {}
        self.late_completions: set[tuple[str, str]] = set()
        self.specifications: set[str] = set()
        self.claims: dict[str, Effect] = {}
        """Every claim that the store acknowledged."""
        self.first_claims: set[str] = set()
        """Those that came to be with their jobs."""
        self.tokens: dict[tuple[str, Token], str] = {}
        self.ended: set[str] = set()
        self.kept: set[str] = set()
        self.starts: list[Effect] = []
        self.running: dict[str, list[str]] = {}
        """The payloads that run now, by job."""
        self.overlapping: set[str] = set()
        """Jobs of which two payloads ran at the same time."""
        self.effects: dict[str, Effect] = {}
        self.answers: list[tuple[AttemptResult, str, CompletionStatus]] = []
        self.accepted: dict[str, str] = {}
        """Jobs that a client was told of, and under which key."""
        self.asked: dict[str, int] = {}
        """Keys, and how many jobs were asked for under each."""
        self.notices: dict[str, set[tuple[str, str]]] = {}
        """What callbacks were told of each job."""
        self.shown: dict[str, set[str]] = {}
        """The outputs that consumers were shown, for each job."""

    def blame(self, kind: str, text: str) -> None:
        self.violations.append(Violation(kind, text))

    # -- told by the store -------------------------------------------------------------------------------------

    def job_committed(self, name: str, before: Entry[Any] | None, after: Entry[Any]) -> None:
        """A writing of a job's document that can no longer be lost."""
        new: JobDocument = after.value
        old: JobDocument | None = before.value if before is not None else None
        self.documents[name] = new
        if new.claim is not None:
            holder = self.tokens.setdefault((name, new.token), new.claim.id)
            if holder != new.claim.id:
                self.blame("I3 token given twice", f"{name} {new.token}: {holder} and {new.claim.id}")
            self.claims[new.claim.id] = Effect(name, new.token, new.claim.id)
        if new.last is not None:
            self.ended.add(new.last.claim)
        if new.held_completion is not None:
            self.kept.add(new.held_completion.claim)
        if old is not None:
            self._compare(name, old, new)
        elif new.claim is not None:
            self.tally["claimed in the creating write"] += 1
            self.first_claims.add(new.claim.id)

    def _compare(self, name: str, old: JobDocument, new: JobDocument) -> None:
        if new.token < old.token:
            self.blame("I3 token lowered", f"{name}: {old.token} to {new.token}")
        if old.winner is not None and new.winner != old.winner:
            self.blame("I4 second winner", f"{name}: {old.winner} then {new.winner}")
        if old.final and new.state is not old.state:
            self.blame("I4 final state left", f"{name}: {old.state} to {new.state}")
        if new.winner is not None and new.winner.claim not in self.claims:
            self.blame("I4 winner never claimed", f"{name}: {new.winner}")
        if old.claim is not None and old.claim.id in self.first_claims:
            self.tally["first claim confirmed"] += new.claim == old.claim and new.confirmations > old.confirmations
            self.tally["first claim taken away"] += new.former_claim == old.claim.id
        if new.rev < old.rev or not _goes_on(old.history, new.history):
            self.blame("story broken", f"{name}: {old.history} then {new.history}")

    def record_committed(self, name: str, _before: Entry[Any] | None, after: Entry[Any]) -> None:
        record: Record = after.value
        self.records[name] = record
        if record.kind == "late-completion":
            self.late_completions.add((record.job, ending_from_json(record.body["ending"]).claim))  # type: ignore[arg-type]

    def specification_committed(self, name: str, _before: Entry[Any] | None, _after: Entry[Any]) -> None:
        self.specifications.add(name)

    # -- told by pilots and clients ----------------------------------------------------------------------------

    def started(self, job: str, token: Token, claim: str) -> None:
        known = self.claims.get(claim)
        if any(other != claim for other in self.running.setdefault(job, [])):
            self.overlapping.add(job)
        self.running[job].append(claim)
        self.starts.append(Effect(job, token, claim))
        if known != Effect(job, token, claim):
            self.blame("I2 start without a claim", f"{job} {token} {claim}: the store has {known}")

    def stopped(self, job: str, claim: str) -> None:
        """The payload is gone, whatever came of it."""
        if claim in self.running.get(job, ()):
            self.running[job].remove(claim)

    def effect(self, path: str, job: str, token: Token, claim: str) -> None:
        if path in self.effects:
            self.blame("I5 attempt's place used twice", path)
        self.effects[path] = Effect(job, token, claim)

    def answered(self, ending: AttemptResult, job: str, result: CompletionStatus) -> None:
        self.answers.append((ending, job, result))
        if result is CompletionStatus.SUPERSEDED and ending.outcome is AttemptOutcome.OK:
            document = self.documents[job]
            won = document.winner is not None and document.winner.claim == ending.claim
            if won or not (document.final or document.token > ending.token):
                self.blame("good end thrown away", f"{job} {ending}: {document.state} {document.token}")

    def submitted(self, key: str, jobs: Iterable[str]) -> None:
        for job in jobs:
            if self.accepted.setdefault(job, key) != key:
                self.blame("key doubled", f"{job} under {self.accepted[job]} and {key}")

    def show(self, job: str, path: str) -> None:
        """A consumer was shown where the outputs are."""
        self.shown.setdefault(job, set()).add(path)

    def notified(self, job: str, state: str, delivery: str) -> None:
        """A callback was told that a job has ended."""
        self.notices.setdefault(job, set()).add((state, delivery))

    # -- at the end --------------------------------------------------------------------------------------------

    def unsettled(self) -> list[str]:
        """Accepted jobs that are neither final nor waiting for a person."""
        return [job for job in self.accepted if (document := self.documents.get(job)) is None or not _at_rest(document)]

    def judge(self, *, at_rest: bool) -> None:
        """Hold everything against everything; whether all is at rest only if it was left in peace for long enough."""
        for job, key in self.accepted.items():
            document = self.documents.get(job)
            if document is None:
                self.blame("accepted job missing", f"{job} of {key}")
            elif document.specification not in self.specifications:
                self.blame("specification missing", f"{document.specification} of {job}")
            elif at_rest and not _at_rest(document):
                words = "I1 dead claim still held" if document.state is State.RUNNING else "I1 left lying"
                words = "callback never told" if document.final else words
                self.blame(words, f"{job}: {document.state} {document.claim} {document.history[-3:]}")
        self._judge_keys()
        self._judge_starts()
        self._judge_answers()
        for job, document in self.documents.items():
            self._judge_outputs(job, document)
            self._judge_notices(job, document)

    def _judge_keys(self) -> None:
        status: Counter[str] = Counter(document.labels["key"] for document in self.documents.values())
        for key, count in status.items():
            if count > self.asked[key]:
                self.blame("key doubled", f"{key}: {count} jobs stand, {self.asked[key]} were asked for")

    def _judge_starts(self) -> None:
        chapters: dict[str, list[Record]] = {}
        for record in self.records.values():
            if record.kind == "chapter":
                chapters.setdefault(record.job, []).append(record)
        fields: dict[str, set[tuple[int, str]]] = {}
        for job, document in self.documents.items():
            story = whole_story(document, [chapter_of(chapter) for chapter in chapters.get(job, [])])
            if [line.rev for line in story] != list(range(1, document.rev + 1)):
                self.blame("I6 hole in the story", f"{job}: {[line.rev for line in story]} of {document.rev}")
            claims = [(line.attempt, line.note.split()[1]) for line in story if line.event == Event.CLAIM]
            if len({attempt for attempt, _ in claims}) < len(claims):
                self.blame("I3 token given twice", f"{job}: {claims}")
            fields[job] = set(claims)
        for start in self.starts:
            if (start.token.attempt, start.claim) not in fields.get(start.job, ()):
                self.blame("I6 start not in the story", f"{start}")
        self.tally["two runs at the same time"] += len(self.overlapping)
        self.tally["the same, not marked as possible"] += sum(
            not self.documents[job].overlap_possible for job in self.overlapping if job in self.documents
        )
        self.tally["extra attempt"] += sum(count - 1 for count in Counter(start.job for start in self.starts).values())

    def _judge_answers(self) -> None:
        for ending, job, result in self.answers:
            claim = ending.claim
            if result is CompletionStatus.COMMITTED and claim not in self.ended:
                self.blame("end told committed does not exist", f"{job} {ending}")
            if result is CompletionStatus.HELD and claim not in self.kept | self.ended:
                self.blame("end told held does not exist", f"{job} {ending}")
            if result is CompletionStatus.SUPERSEDED and (job, claim) not in self.late_completions:
                self.blame("superseded end not kept", f"{job} {ending}")

    def _judge_outputs(self, job: str, document: JobDocument) -> None:
        winner = document.winner
        if (document.state is State.COMPLETED) != (winner is not None):
            self.blame("I4 completed without a winner", f"{job}: {document.state} {winner}")
        if winner is None:
            return
        if winner.outcome is not AttemptOutcome.OK or winner.manifest is None:
            self.blame("I5 outputs are not the winner's", f"{job}: {winner}")
            return
        effect = self.effects.get(winner.manifest.path)
        if effect != Effect(job, winner.token, winner.claim):
            self.blame("I5 outputs are not the winner's", f"{job}: {winner} but {effect}")
        misled = self.shown.get(job, set()) - {winner.manifest.path}
        if misled:
            self.blame("I5 consumers saw two outputs", f"{job}: {sorted(misled)} and {winner.manifest.path}")

    def _judge_notices(self, job: str, document: JobDocument) -> None:
        reported = self.notices.get(job, set())
        meant = (document.state.value, f"{job}:{document.generation}.{document.attempt}")
        if reported - {meant} or (reported and not document.final):
            self.blame("callback told what is not so", f"{job}: {sorted(reported)} but {meant}")


def _at_rest(document: JobDocument) -> bool:
    """Final, and told to whoever asked for it; or waiting for a person on purpose."""
    if document.final:
        return document.delivery is None or document.delivery.done
    return document.state is State.FAULTED or bool(document.holders)


def _goes_on(old: tuple[Transition, ...], new: tuple[Transition, ...]) -> bool:
    """Whether every line of the old story that the new one still shows is the same."""
    first = new[0].rev if new else 0
    shown = {line.rev: line for line in new}
    return all(shown.get(line.rev) == line for line in old if line.rev >= first)
