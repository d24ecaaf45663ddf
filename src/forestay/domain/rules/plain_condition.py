"""What can be said of a condition without the language: which values it asks fields for, and most often its answer.

Most conditions are a conjunction with comparisons in it: `cause == "memory" && job.attempt < 3 && …`. If one of them is false, so
is the condition, whatever the rest is, even if the rest errs. An answer that is given is the language's own; a test holds it to that.
Only a text that compiles may be read so: its types are then known to fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from forestay.domain.rules.condition_part import OPEN, ConditionPart, FieldComparison
from forestay.domain.rules.condition_reader import NotPlainConditionError, read_condition
from forestay.domain.rules.context import Context, FieldType

Answer = Callable[[Context], "bool | None"]
"""Whether a condition is true; None: only evaluating it tells, or that it errs."""


def _unknown(_context: Context) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Conjunction:
    """What is known of a condition."""

    comparisons: tuple[FieldComparison, ...]
    answer: Answer = _unknown


NOTHING = Conjunction(())


def conjunction_of(text: str) -> Conjunction:
    """What can be read off a text that compiles."""
    try:
        read = read_condition(text)
    except (NotPlainConditionError, RecursionError):
        return NOTHING
    return Conjunction(read.comparisons, _answer_of(read)) if read.kind == FieldType.TRUTH else NOTHING


def _answer_of(read: ConditionPart) -> Answer:
    ask = read.ask

    def answer(context: Context) -> bool | None:
        try:
            found_answer: bool = ask(context, None)
        except OPEN:
            return None
        return found_answer

    return answer
