"""Requirements: conditions over what pilots advertise.

The law is that of rules' conditions (`ports/rules/conditions.py`), with three differences. Their fields are those of `pilot_class`. They walk through no lists,
so that a text from outside costs no more than its length and needs no process of its own. What errs does not hold: a pilot that does not name a feature does
not satisfy a condition on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from forestay.ports.rules.conditions import ConditionProblem


class Requirements(Protocol):
    """The port."""

    def problems(self, text: str) -> Sequence[ConditionProblem]:
        """Everything that is wrong with a text; empty: it may be asked whether it holds."""
        ...

    def holds(self, text: str, facts: Mapping[str, object]) -> bool:
        """Whether a pilot of these facts satisfies it. A text that does not compile holds for none."""
        ...
