"""Questions that runs ask people: stored while they are open, and for a while after, so that everyone sees the outcome.

A question is a document. Only its run creates, closes and writes it. An answer goes to the run, which accepts the first one: the document only serves
the inbox.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import orjson

from forestay.domain.flows.commands import AnswerVerb, AskPerson, CloseQuestion, QuestionOutcome
from forestay.domain.flows.definition.flow_pattern import OWNER, ROLE, USER
from forestay.domain.flows.events import Verb, VerbKind
from forestay.ports.clock import Clock
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import Conflict, NotFound
from forestay.ports.flows.flow_engine import FlowEngine
from forestay.ports.operations.identity import Principal, Role
from forestay.services.shared.document_update import update_document

OPEN = "question"
CLOSED = "question-closed"
"""A separate kind, so that a search for open questions does not read all closed ones."""
KEPT = 14 * 86_400_000
"""Milliseconds for which a closed question is kept."""


class ClosedQuestion(NamedTuple):
    """The outcome of a question."""

    outcome: QuestionOutcome
    by: str
    at: int
    answer: Mapping[str, Any]


class RunQuestion(NamedTuple):
    """A question as stored."""

    id: str
    tenant: str
    owner: str
    run: str
    flow: str
    """The flow's name."""
    task: str
    round: int
    title: str
    text: str
    form: Mapping[str, Any]
    who: tuple[str, ...]
    asked: int
    until: int | None
    default: Mapping[str, Any] | None
    closed: ClosedQuestion | None = None


class RunOf(NamedTuple):
    """The run of a question."""

    tenant: str
    owner: str
    run: str
    flow: str


def may_answer(question: RunQuestion, who: Principal) -> bool:
    """Whether a person is among those who may answer."""
    for name in question.who:
        if name == OWNER and who.subject == question.owner:
            return True
        if name.startswith(USER) and who.subject == name.removeprefix(USER):
            return True
        if name.startswith(ROLE):
            role = name.removeprefix(ROLE)
            if role in {known.value for known in Role} and who.may(Role(role)):
                return True
    return False


@dataclass(slots=True)
class Questions:
    """The service."""

    documents: DocumentStore
    clock: Clock

    async def ask(self, asks: RunOf, command: AskPerson) -> None:
        """Store a question; a repeat is the same question, and a closed one stays closed."""
        name = question_id(asks.run, command.work)

        def change(stored: StoredDocument | None) -> tuple[Document | None, None]:
            if stored is not None:
                return None, None
            body = {
                **asks._asdict(),
                "task": command.instance,
                "round": command.round,
                "title": command.title,
                "text": command.text,
                # As text: not every store keeps the order of names, and the fields of a form are ordered.
                "form": orjson.dumps(command.form).decode(),
                "who": list(command.who),
                "asked": self.clock.now(),
                "until": command.until,
                "default": dict(command.default) if command.default is not None else None,
            }
            return Document(_document(name), asks.tenant, OPEN, body), None

        await update_document(self.documents, _document(name), change, unsure="the question could not be stored")

    async def close(self, asks: RunOf, command: CloseQuestion) -> None:
        """Record the outcome of a question; the first one is kept."""
        name, now = _document(question_id(asks.run, command.work)), self.clock.now()

        def change(stored: StoredDocument | None) -> tuple[Document | None, None]:
            if stored is None or stored.document.kind == CLOSED:
                return None, None
            closed = {"outcome": command.outcome.value, "by": command.by, "at": now, "answer": dict(command.answer)}
            body = {**stored.document.body, "closed": closed, "expires": now + KEPT}
            return stored.document._replace(kind=CLOSED, body=body), None

        await update_document(self.documents, name, change, unsure="the question could not be closed")

    async def get(self, tenant: str, name: str) -> RunQuestion:
        """A question of a tenant; `NotFound`."""
        stored = None
        if name.isascii() and name.isalnum():
            stored = (await self.documents.get([_document(name)])).get(_document(name))
        if stored is None or stored.document.tenant != tenant:
            raise NotFound(f"there is no question {name[:64]} in tenant {tenant}")
        return _question(stored)

    async def of_run(self, run: str, works: Sequence[str]) -> Sequence[RunQuestion]:
        """The open questions of some rounds of a run's tasks."""
        names = [_document(question_id(run, work)) for work in works]
        stored = await self.documents.get(names) if names else {}
        return [_question(question) for question in stored.values() if question.document.kind == OPEN]

    async def waiting(self, tenant: str) -> Sequence[RunQuestion]:
        """The questions that wait for an answer, oldest first; up to a second old."""
        return await self._find(OPEN, tenant)

    async def closed(self, tenant: str) -> Sequence[RunQuestion]:
        """The questions that were recently answered or withdrawn."""
        return await self._find(CLOSED, tenant)

    async def _find(self, kind: str, tenant: str) -> Sequence[RunQuestion]:
        found = [_question(stored) for stored in await self.documents.find(kind, tenant=tenant)]
        return sorted(found, key=lambda question: (question.asked, question.id))

    async def answer(
        self, question: RunQuestion, answer: Mapping[str, Any], *, by: str, engine: FlowEngine
    ) -> AnswerVerb:
        """Send an answer to the run, which accepts the first. `Conflict`: it accepted another, or waits no longer.

        The same answer by the same person again is the same answer.
        """
        verb = Verb(
            at=self.clock.now(),
            id=_answer_id(question.id, by, answer),
            kind=VerbKind.ANSWER,
            instance=question.task,
            by=by,
            changes=dict(answer),
            round=question.round,
        )
        try:
            return await engine.send_verb(question.run, verb)
        except NotFound:
            # Its run has ended. A run that was terminated from outside could not withdraw its question.
            work = f"{question.task}@{question.round}"
            await self.close(RunOf(question.tenant, question.owner, question.run, question.flow), CloseQuestion(work))
        closed = (await self.get(question.tenant, question.id)).closed
        if closed is None or not closed.by:
            raise Conflict("the run has ended")
        if closed.by != by or dict(closed.answer) != dict(answer):
            raise Conflict(f"{closed.by} has already answered")
        return AnswerVerb(verb.id, accepted=True, detail="it is already done")


def question_id(run: str, work: str) -> str:
    """The id of a question, short enough to be typed."""
    return hashlib.sha256(f"{run}:{work}".encode()).hexdigest()[:12]


def _document(name: str) -> str:
    return f"question:{name}"


def _answer_id(question: str, by: str, answer: Mapping[str, Any]) -> str:
    text = orjson.dumps([question, by, dict(answer)], option=orjson.OPT_SORT_KEYS)
    return f"answer:{hashlib.sha256(text).hexdigest()[:32]}"


def _question(stored: StoredDocument) -> RunQuestion:
    body = dict(cast("Mapping[str, Any]", stored.document.body))
    body.pop("expires", None)
    closed = body.pop("closed", None)
    body["form"] = orjson.loads(body["form"])
    body["who"] = tuple(body["who"])
    name = stored.document.id.removeprefix("question:")
    if closed is not None:
        closed = ClosedQuestion(QuestionOutcome(closed["outcome"]), closed["by"], closed["at"], closed["answer"])
    return RunQuestion(name, closed=closed, **body)
