"""Questions to people on every store: asked once, closed once, and those that wait are found by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from tests.contract.room import Stores
from tests.unit.apps.server.later_clock import LaterClock

from forestay.domain.flows.commands import AnswerVerb, AskPerson, CloseQuestion, QuestionOutcome
from forestay.domain.flows.events import Verb
from forestay.ports.errors import Conflict, NotFound
from forestay.ports.operations.identity import Principal, Role
from forestay.services.flows.questions import Questions, RunOf, may_answer, question_id

OpenAnother = Callable[[], Awaitable[Stores]]
RUN = RunOf("alpha", "ada", "r-1", "calibration")
FORM = {"properties": {"zeta": {"type": "boolean"}, "alpha": {"type": "string"}}, "required": ["zeta"]}
ASK = AskPerson(
    "check@1", "check", 1, "Good?", "Look.", FORM, ("owner", "user:ben", "role:approver"), 5000, {"zeta": True}
)
NAME = question_id("r-1", "check@1")


@dataclass
class Run:
    """The engine, as far as an answer needs it."""

    gone: bool = False
    verbs: list[Verb] = field(default_factory=list)

    async def send_verb(self, _run: str, verb: Verb) -> AnswerVerb:
        if self.gone:
            raise NotFound("it has ended")
        self.verbs.append(verb)
        return AnswerVerb(verb.id, accepted=True)


async def test_a_question_is_read_as_it_was_asked_its_fields_in_their_order(stores: Stores) -> None:
    questions = Questions(stores.documents, LaterClock())
    await questions.ask(RUN, ASK)
    question = await questions.get("alpha", NAME)
    assert (question.run, question.flow, question.task, question.round) == ("r-1", "calibration", "check", 1)
    assert (question.title, question.text, question.until, question.default) == ("Good?", "Look.", 5000, {"zeta": True})
    assert list(question.form["properties"]) == ["zeta", "alpha"]
    assert question.closed is None
    await stores.jobs.refresh()
    assert [question.id for question in await questions.waiting("alpha")] == [NAME]
    assert await questions.waiting("beta") == []
    with pytest.raises(NotFound):
        await questions.get("beta", NAME)
    with pytest.raises(NotFound):
        await questions.get("alpha", "../question")


async def test_what_is_closed_waits_no_longer_and_is_not_opened_again_by_a_late_repeat(stores: Stores) -> None:
    questions = Questions(stores.documents, LaterClock())
    await questions.ask(RUN, ASK)
    asked = (await questions.get("alpha", NAME)).asked
    await questions.ask(RUN, ASK)
    await questions.close(RUN, CloseQuestion("check@1", QuestionOutcome.ANSWERED, "ben", {"zeta": True}))
    await questions.close(RUN, CloseQuestion("check@1"))
    await questions.ask(RUN, ASK)
    await stores.jobs.refresh()
    assert await questions.waiting("alpha") == []
    (question,) = await questions.closed("alpha")
    assert question.asked == asked
    assert question.closed is not None
    assert (question.closed.outcome, question.closed.by) == (QuestionOutcome.ANSWERED, "ben")
    assert question.closed.answer == {"zeta": True}


async def test_many_that_close_it_at_once_agree(stores: Stores, another: OpenAnother) -> None:
    others = [Questions((await another()).documents, LaterClock()) for _ in range(4)]
    await others[0].ask(RUN, ASK)
    closings = (
        other.close(RUN, CloseQuestion("check@1", QuestionOutcome.ANSWERED, f"p{number}", {"zeta": True}))
        for number, other in enumerate(others)
    )
    await asyncio.gather(*closings)
    seen = [(await other.get("alpha", NAME)).closed for other in others]
    assert len({closed.by for closed in seen if closed is not None}) == 1


async def test_an_answer_goes_to_the_run_and_the_same_again_is_the_same(stores: Stores) -> None:
    questions, run = Questions(stores.documents, LaterClock()), Run()
    await questions.ask(RUN, ASK)
    question = await questions.get("alpha", NAME)
    for answer in ({"zeta": True}, {"zeta": True}, {"zeta": False}):
        assert (await questions.answer(question, answer, by="ben", engine=run)).accepted  # type: ignore[arg-type]
    first, again, other = run.verbs
    assert first.id == again.id != other.id
    assert (first.instance, first.round, first.by, first.changes) == ("check", 1, "ben", {"zeta": True})


async def test_an_answer_to_a_run_that_has_ended_says_so_and_takes_the_question_out(stores: Stores) -> None:
    questions, run = Questions(stores.documents, LaterClock()), Run(gone=True)
    await questions.ask(RUN, ASK)
    question = await questions.get("alpha", NAME)
    with pytest.raises(Conflict, match="the run has ended"):
        await questions.answer(question, {"zeta": True}, by="ben", engine=run)  # type: ignore[arg-type]
    closed = (await questions.get("alpha", NAME)).closed
    assert closed is not None
    assert closed.outcome is QuestionOutcome.WITHDRAWN


async def test_who_comes_second_when_the_run_has_ended_is_told_who_was_first(stores: Stores) -> None:
    questions, run = Questions(stores.documents, LaterClock()), Run(gone=True)
    await questions.ask(RUN, ASK)
    question = await questions.get("alpha", NAME)
    await questions.close(RUN, CloseQuestion("check@1", QuestionOutcome.ANSWERED, "ben", {"zeta": True}))
    with pytest.raises(Conflict, match="ben has already answered"):
        await questions.answer(question, {"zeta": True}, by="ada", engine=run)  # type: ignore[arg-type]
    repeat = await questions.answer(question, {"zeta": True}, by="ben", engine=run)  # type: ignore[arg-type]
    assert repeat.accepted


@pytest.mark.parametrize(
    ("subject", "role", "may"),
    [
        ("ada", Role.VIEWER, True),
        ("ben", Role.VIEWER, True),
        ("cleo", Role.OPERATOR, False),
        ("dora", Role.APPROVER, True),
        ("eve", Role.ADMINISTRATOR, True),
    ],
)
async def test_the_owner_who_is_named_and_who_has_the_role_may_answer(
    stores: Stores, subject: str, role: Role, may: bool
) -> None:
    questions = Questions(stores.documents, LaterClock())
    await questions.ask(RUN, ASK)
    who = Principal(subject, "alpha", frozenset({role}), 0)
    assert may_answer(await questions.get("alpha", NAME), who) is may
