"""Conditions: the language of rules, as the evaluation of rule trees needs it.

The law. A condition is typed: a text that names a field that the context does not have, or compares what cannot be compared, or gives
anything but a truth value, is not compiled; every problem is told with its line and column. An evaluation gives a truth value or
`Erred`, raises nothing, and ends: its iterations are bounded by the language's own budget, and what it works on by the context's
bounds. Only the values true and false themselves are answers; an error is never taken for one of them.

A text from outside is first *tried*, in a process that can be killed: nobody compiles or evaluates a text here that was not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from forestay.domain.rules.condition import Erred, Evaluate
from forestay.domain.rules.context import Context


class ConditionProblem(NamedTuple):
    """Something wrong with a condition's text, where it is; both counted from 1, and 0 where no place can be named."""

    line: int
    column: int
    message: str

    def __str__(self) -> str:
        return f"{self.line}:{self.column}: {self.message}" if self.line else self.message


class ConditionTrial(NamedTuple):
    """The result of testing a condition: its error, or its value on each given context."""

    problems: tuple[ConditionProblem, ...]
    answers: tuple[bool | Erred, ...] = ()


class Conditions(Protocol):
    """The port: cheap, in this process, for texts that have been tried."""

    def compile(self, text: str) -> tuple[ConditionProblem, ...]:
        """Every problem of a text; empty: it is compiled and kept, and evaluating it compiles nothing more."""
        ...

    def over(self, context: Context) -> Evaluate:
        """Evaluates texts over one context. A text that does not compile errs."""
        ...


class ConditionSandbox(Protocol):
    """The port for texts from outside: each is compiled, and evaluated over given contexts and over one at its bounds, in another
    process that is killed when it uses more than 250 ms of CPU or 64 MiB; that is a problem of the text, not an error."""

    async def try_out(self, text: str, contexts: Sequence[Context] = ()) -> ConditionTrial:
        """Raises `Transient` when no process can be had."""
        ...

    async def close(self) -> None:
        """End the process."""
        ...
