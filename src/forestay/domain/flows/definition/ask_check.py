"""The static check of a question to a person."""

from __future__ import annotations

from collections.abc import Iterator

from forestay.domain.flows.definition.answer_form import answer_problems, check_form, completed_answer
from forestay.domain.flows.definition.flow import Task
from forestay.domain.flows.definition.flow_pattern import OWNER, ROLE, USER, AskPattern
from forestay.domain.flows.definition.flow_problem import FlowProblem, Place
from forestay.domain.flows.execution.scope import size_of

MAX_FORM = 8192
MAX_WHO = 50


def check_ask(task: Task, pattern: AskPattern, at: Place) -> Iterator[FlowProblem]:
    if not pattern.title:
        yield FlowProblem((*at, "title"), "say what is asked, in one line")
    wrong = list(check_form(pattern.form, (*at, "form")))
    yield from wrong
    if size_of(pattern.form) > MAX_FORM:
        yield FlowProblem((*at, "form"), f"the form is larger than {MAX_FORM} bytes")
    if not 0 < len(pattern.who) <= MAX_WHO:
        yield FlowProblem((*at, "who"), f"name 1 to {MAX_WHO} who may answer: {OWNER}, {ROLE}NAME or {USER}NAME")
    for place, name in enumerate(pattern.who):
        if name != OWNER and not (name.startswith((ROLE, USER)) and name.partition(":")[2]):
            yield FlowProblem((*at, "who", place), f"one of {OWNER}, {ROLE}NAME, {USER}NAME is expected")
    if pattern.default is None:
        return
    if task.deadline is None:
        yield FlowProblem((*at, "default"), "the default is the answer at the deadline; give the task a deadline")
    if not wrong:
        for problem in answer_problems(pattern.form, completed_answer(pattern.form, pattern.default)):
            yield FlowProblem((*at, "default"), problem)
