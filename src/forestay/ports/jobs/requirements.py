"""Requirements: conditions over what pilots advertise.

The contract is that of rules' conditions (`ports/rules/conditions.py`), with three differences. The fields are those of `pilot_class`. Requirements do not
iterate over lists, so that the cost of an untrusted text is bounded by its length and needs no process of its own. A requirement that errs is false: a pilot
that does not name a feature does not satisfy a condition on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from forestay.ports.rules.conditions import ConditionProblem


class Requirements(Protocol):
    """The port."""

    def problems(self, text: str) -> Sequence[ConditionProblem]:
        """All problems of a text; empty: `holds` can evaluate it."""
        ...

    def holds(self, text: str, facts: Mapping[str, object]) -> bool:
        """Whether a pilot with these facts satisfies the requirement. A text that does not compile holds for none."""
        ...
