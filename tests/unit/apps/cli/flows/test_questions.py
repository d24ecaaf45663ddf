"""`forestay inbox questions` and `answer`."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.apps.cli.conftest import Shell
from tests.unit.apps.cli.fake_api import FakeApi

QUESTION: dict[str, Any] = {
    "id": "3f9a1c7e20b4", "state": "waiting", "title": "Is the calibration good?", "text": "Residuals: 0.3",
    "form": {
        "properties": {
            "good": {"type": "boolean", "title": "Calibration is good"}, "share": {"type": "number", "default": 0.5},
            "rounds": {"type": "integer"}, "method": {"type": "string", "enum": ["fast", "exact"]},
        },
        "required": ["good"],
    },
    "who": ["owner", "role:operator"], "may_answer": True, "run": "4f1c9d2a-0000", "flow": "calibration", "task": "check", "owner": "alice",
    "asked": "2026-05-01T10:00:00.000Z", "until": "2026-05-02T10:00:00.000Z", "default": {"good": False}, "answer": None, "answered_by": None,
    "closed": None,
}  # fmt: skip


@pytest.fixture
def asked(api: FakeApi) -> FakeApi:
    api.questions += [dict(QUESTION), {**QUESTION, "id": "aaaa1c7e20b4", "may_answer": False}]
    return api


def test_questions_are_listed_with_who_may_answer_and_the_inbox_tells_of_them(forestay: Shell, asked: FakeApi) -> None:
    asked.questions.append({**QUESTION, "id": "bbbb1c7e20b4", "state": "answered", "answered_by": "ben"})
    listed = forestay("inbox", "questions")
    assert listed.code == 0, listed.err
    for words in ("3f9a1c7e20b4", "Is the calibration good?", "owner, role:operator", "aaaa1c7e20b4"):
        assert words in listed.out
    assert "bbbb" not in listed.out
    assert "forestay inbox answer" in listed.err
    assert "aaaa" not in forestay("inbox", "questions", "--me").out
    assert "bbbb" in forestay("inbox", "questions", "--all").out
    assert "2 questions of runs wait for an answer: forestay inbox questions" in forestay("inbox").err
    del asked.questions[1:]
    assert "1 run asks a question" in forestay("inbox").err
    asked.questions.clear()
    assert forestay("inbox", "questions").err.strip() == "No run asks a question."
    assert "question" not in forestay("inbox").err


def test_a_question_is_shown_with_its_fields_and_answered_with_typed_values(forestay: Shell, asked: FakeApi) -> None:
    shown = forestay("inbox", "answer", "3f9a")
    assert shown.code == 0, shown.err
    for words in (
        "Is the calibration good?",
        "Residuals: 0.3",
        "good (boolean, required)  Calibration is good",
        "share (number, default 0.5)",
        "method (string: fast, exact)",
        'then {"good": false}',
    ):
        assert words in shown.out, words
    done = forestay("inbox", "answer", "3f9a", "good=yes", "share=0.7", "rounds=3", "method=fast")
    assert done.code == 0, done.err
    assert done.out.strip() == "3f9a1c7e20b4 answered"
    sent = asked.requests[-1]
    assert sent.body == {"answer": {"good": True, "share": 0.7, "rounds": 3, "method": "fast"}}
    closed = forestay("inbox", "answer", "3f9a")
    assert "Answered by alice" in closed.out


@pytest.mark.parametrize(
    ("value", "words"),
    [("good", "expected FIELD=VALUE"), ("good=perhaps", "expected yes or no"), ("rounds=x", "expected a number")],
)
def test_a_value_that_cannot_be_read_is_refused_before_anything_is_sent(
    forestay: Shell, asked: FakeApi, value: str, words: str
) -> None:
    refused = forestay("inbox", "answer", "3f9a", value)
    assert refused.code == 2
    assert words in refused.err
    assert all(request.method == "GET" for request in asked.requests)


def test_all_defaults_are_an_answer(forestay: Shell, asked: FakeApi) -> None:
    assert forestay("inbox", "answer", "3f9a", "--yes", "--json").json["state"] == "answered"
    assert asked.requests[-1].body == {"answer": {}}
