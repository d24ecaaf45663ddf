"""Routes for the questions of runs to people: open questions, and answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Response
from pydantic import Field

from forestay.apps.server.flows.flow_routes import engine_of
from forestay.apps.server.http.answers import Out, Time, errors
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import RequestContext, TheDesk, Viewer, json_answer
from forestay.apps.server.http.router import Router
from forestay.apps.server.http.schemas import Model, PlainValue
from forestay.domain.flows.definition.answer_form import answer_problems, completed_answer
from forestay.formats.jobs.job_public import time_text
from forestay.ports.errors import Conflict, NotFound
from forestay.ports.operations.identity import Principal
from forestay.services.flows.questions import RunQuestion, may_answer

router = Router(prefix="/v1", tags=["questions"])


class QuestionOut(Out):
    id: str
    state: Literal["waiting", "answered", "default", "expired", "withdrawn"]
    title: str
    text: str
    form: dict[str, Any]
    """A JSON Schema object: its properties are the fields of the answer."""
    who: list[str]
    """Who may answer: owner, role:NAME, user:NAME."""
    may_answer: bool
    """Whether the caller may."""
    run: str
    flow: str
    task: str
    owner: str
    asked: Time
    until: Time | None
    default: dict[str, Any] | None
    """The answer if nobody gives one until then."""
    answer: dict[str, Any] | None
    answered_by: str | None
    closed: Time | None


class QuestionsOut(Out):
    questions: list[QuestionOut]


class QuestionAnswerIn(Model):
    answer: dict[Annotated[str, Field(max_length=64)], PlainValue] = Field(default_factory=dict, max_length=50)
    """Values by the names of the form's fields; a field that is left out has its default."""


def question_public(question: RunQuestion, who: Principal) -> dict[str, object]:
    closed = question.closed
    taken = closed is not None and closed.outcome.value in ("answered", "default")
    return {
        "id": question.id,
        "state": closed.outcome.value if closed is not None else "waiting",
        "title": question.title,
        "text": question.text,
        "form": dict(question.form),
        "who": list(question.who),
        "may_answer": may_answer(question, who),
        "run": question.run,
        "flow": question.flow,
        "task": question.task,
        "owner": question.owner,
        "asked": time_text(question.asked),
        "until": time_text(question.until),
        "default": dict(question.default) if question.default is not None else None,
        "answer": dict(closed.answer) if closed is not None and taken else None,
        "answered_by": (closed.by or None) if closed is not None else None,
        "closed": time_text(closed.at) if closed is not None else None,
    }


@router.get("/questions", response_model=QuestionsOut, responses=errors())
async def find_questions(context: TheDesk, who: Viewer, state: Literal["waiting", "closed"] = "waiting") -> Response:
    """The questions that runs ask people: those that wait, the oldest first, or those that were closed in the last two weeks."""
    questions = context.services.components.questions
    found = await (questions.waiting(who.tenant) if state == "waiting" else questions.closed(who.tenant))
    return json_answer({"questions": [question_public(question, who) for question in found]})


@router.get("/questions/{question}", response_model=QuestionOut, responses=errors(404))
async def read_question(context: TheDesk, who: Viewer, question: str) -> Response:
    """One question."""
    return json_answer(question_public(await _question(context, who, question), who))


@router.post("/questions/{question}", response_model=QuestionOut, responses=errors(404, 409, 501, body=True))
async def answer_question(context: TheDesk, who: Viewer, question: str, body: QuestionAnswerIn) -> Response:
    """Answer a question: the answer becomes the outputs of its task, and the run continues. The first answer counts; the same one again changes nothing."""
    known = await _question(context, who, question)
    if not may_answer(known, who):
        raise HttpProblem(403, f"{who.subject} may not answer this; {', '.join(known.who)} may")
    answer = completed_answer(known.form, body.answer)
    problems = answer_problems(known.form, answer)
    if problems:
        raise HttpProblem(422, "; ".join(problems))
    if known.closed is None:
        await context.note(who, "question.answer", known.run, task=known.task, question=known.id)
        try:
            reply = await context.services.components.questions.answer(
                known, answer, by=who.subject, engine=engine_of(context)
            )
        except Conflict as error:
            raise HttpProblem(409, str(error)) from error
        if not reply.accepted:
            raise HttpProblem(409, reply.detail)
        shown = question_public(known, who) | {"state": "answered", "answer": answer, "answered_by": who.subject}
        return json_answer(shown)
    if known.closed.by == who.subject and dict(known.closed.answer) == answer:
        return json_answer(question_public(known, who))
    by = f" by {known.closed.by}" if known.closed.by else ""
    raise HttpProblem(409, f"the question is closed: {known.closed.outcome.value}{by}")


async def _question(context: RequestContext, who: Principal, name: str) -> RunQuestion:
    try:
        return await context.services.components.questions.get(who.tenant, name)
    except NotFound as error:
        raise HttpProblem(404, str(error)) from error
