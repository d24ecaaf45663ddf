"""Conditions: the language of rules, as the evaluation of rule trees needs it.

The contract. A condition is typed: a text that names a field that the context does not have, compares incompatible types, or returns
anything but a boolean does not compile; every problem is reported with its line and column. An evaluation returns a boolean or
`Erred`, raises nothing, and terminates: its iterations are bounded by the language's own budget, and its data by the context's
bounds. Only true and false themselves are results; an error is never taken for one of them.

An untrusted text is first *tried* in a process that can be killed: no text is compiled or evaluated in this process before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from forestay.domain.rules.condition import Erred, Evaluate
from forestay.domain.rules.context import Context


class ConditionProblem(NamedTuple):
    """A problem of a condition's text, with its position: line and column from 1, or 0 where no position is known."""

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
        """All problems of a text; empty: it was compiled and is cached, so evaluating it does not compile it again."""
        ...

    def over(self, context: Context) -> Evaluate:
        """A function that evaluates texts over one context. A text that does not compile errs."""
        ...


class ConditionSandbox(Protocol):
    """The port for untrusted texts: each is compiled, and evaluated over the given contexts and over one of maximal size, in another
    process that is killed when it uses more than 250 ms of CPU or 64 MiB; that counts as a problem of the text, not as an error."""

    async def try_out(self, text: str, contexts: Sequence[Context] = ()) -> ConditionTrial:
        """Raises `Transient` when no process can be started."""
        ...

    async def close(self) -> None:
        """End the process."""
        ...
