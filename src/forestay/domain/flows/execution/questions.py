"""Questions to people in a run: asked when their task starts, answered by a verb or by the default at the deadline.

The run itself takes the answer, so the first one wins, and a second one is refused with the name of the first person.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forestay.domain.flows.commands import AskPerson, CloseQuestion, QuestionOutcome
from forestay.domain.flows.definition.answer_form import answer_problems, completed_answer
from forestay.domain.flows.definition.flow_pattern import AskPattern
from forestay.domain.flows.events import Verb
from forestay.domain.flows.execution.endings import complete, result_limit
from forestay.domain.flows.execution.flow_run import InstanceState, TaskInstance
from forestay.domain.flows.execution.library import is_of_library, push_from_library
from forestay.domain.flows.execution.run_update import RunUpdate
from forestay.domain.flows.execution.scope import filled, size_of, values_for
from forestay.domain.flows.scatter.fan_out import Piece

MAX_TITLE = 200
MAX_TEXT = 4000
"""Characters of a question once its references are filled in; the rest is cut off."""
MAX_NAME = 200


def ask_person(update: RunUpdate, instance: TaskInstance, pattern: AskPattern) -> None:
    values = values_for(update, instance)
    deadline = update.task(instance).deadline
    title, text, who = (filled(value, values) for value in (pattern.title, pattern.text, list(pattern.who)))
    update.put(instance, state=InstanceState.ASKING)
    update.say(
        AskPerson(
            work=instance.work,
            instance=instance.id,
            round=instance.round,
            title=_cut(title, MAX_TITLE),
            text=_cut(text, MAX_TEXT),
            form=pattern.form,
            who=tuple(_cut(name, MAX_NAME) for name in who) if isinstance(who, list) else (),
            until=None if deadline is None else update.at + 1000 * deadline.seconds,
            default=pattern.default,
        )
    )


def take_answer(update: RunUpdate, instance: TaskInstance, verb: Verb) -> str:
    """Take an answer; returns why not, or nothing."""
    pattern = update.task(instance).pattern
    if not isinstance(pattern, AskPattern):
        return "the task asks no question"
    if instance.state is not InstanceState.ASKING:
        known = instance.result if isinstance(instance.result, Mapping) else {}
        if known.get("by"):
            return f"{known['by']} has already answered"
        return f"the question is closed: the task is {instance.state.value}"
    answer = completed_answer(pattern.form, verb.changes)
    problems = answer_problems(pattern.form, answer)
    if problems:
        return "; ".join(problems)
    limit = result_limit(update, instance)
    if size_of(answer) > limit:
        return f"the answer is larger than {limit} bytes"
    _complete(update, instance, QuestionOutcome.ANSWERED, verb.by, answer)
    return ""


def answer_by_default(update: RunUpdate, instance: TaskInstance) -> bool:
    """Take the default at the deadline of a question; False: the task is not a question, or has no default."""
    pattern = update.task(instance).pattern
    if not isinstance(pattern, AskPattern) or pattern.default is None or instance.state is not InstanceState.ASKING:
        return False
    _complete(update, instance, QuestionOutcome.DEFAULT, "", completed_answer(pattern.form, pattern.default))
    return True


def _complete(
    update: RunUpdate, instance: TaskInstance, outcome: QuestionOutcome, by: str, answer: Mapping[str, Any]
) -> None:
    update.say(CloseQuestion(instance.work, outcome, by, answer))
    instance = update.put(instance, result={"by": by, "outcome": outcome.value})
    complete(update, instance, answer)
    answered = update.instances[instance.id]
    if answered.state is InstanceState.COMPLETED and is_of_library(update, answered):
        push_from_library(update, answered, (Piece(0, 1),))


def _cut(value: object, most: int) -> str:
    text = value if isinstance(value, str) else "" if value is None else str(value)
    return text if len(text) <= most else text[: most - 1] + "…"
