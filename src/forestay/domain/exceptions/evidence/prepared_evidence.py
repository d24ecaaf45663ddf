"""Evidence made ready for many patterns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from forestay.domain.exceptions.evidence.evidence import Evidence, plain_word, shortened
from forestay.domain.exceptions.evidence.line_prefix import behind_prefix
from forestay.domain.exceptions.evidence.quoted_lines import quoted_lines
from forestay.domain.exceptions.evidence.regex_shape import shape_of
from forestay.domain.exceptions.evidence.regex_texts import Way

MOST_PLACES = 32
_ANY_CASE = "(?i)"
_CAPITALS = re.compile(r"\\.|[A-Z]")
"""Those behind a backslash mean something else."""


@dataclass(frozen=True, slots=True)
class Search:
    """A regular expression, with the texts of which one must be there for it to match."""

    expression: str
    ways: tuple[Way, ...] = field(compare=False)
    """What it needs to match."""

    @classmethod
    def of(cls, expression: str) -> Search:
        return cls(expression, shape_of(expression).ways)

    def finds(self, line: str, lowered: str) -> bool:
        compiled, ignores_case = _compiled(self.expression)
        text = lowered if ignores_case else line
        if compiled.search(text) is not None:
            return True
        if "^" not in self.expression:
            return False
        begins = behind_prefix(lowered)
        return begins > 0 and compiled.search(text[begins:]) is not None


@cache
def _compiled(expression: str) -> tuple[re.Pattern[str], bool]:
    """Only when it is first run: most expressions never are. Where case does not matter, the line in lower run is looked at instead, which takes a third of the time."""
    if not expression.startswith(_ANY_CASE):
        return re.compile(expression), False
    return re.compile(_CAPITALS.sub(_lowered, expression.removeprefix(_ANY_CASE))), True


def _lowered(match: re.Match[str]) -> str:
    return match[0] if match[0].startswith("\\") else match[0].lower()


class PreparedEvidence:
    """One record of evidence, as patterns look at it."""

    __slots__ = (
        "evidence",
        "exit_codes",
        "lines",
        "log_lines",
        "lowered",
        "measures",
        "quoted",
        "signals",
        "state",
        "words",
        "worth",
    )

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.log_lines = len(evidence.log_tail)
        # A reason or a transfer's result in a sentence is read like a line of the log: it often quotes one.
        texts = [text for text in (evidence.transfer, evidence.scheduler_reason) if " " in text]
        self.lines: tuple[str, ...] = (*evidence.log_tail, *(shortened(text.replace("\n", " ")) for text in texts))
        self.lowered = "\n".join(self.lines).lower().split("\n")
        self.quoted = quoted_lines(self.lowered)
        """Lines that quote a script or a program, as bits: what stands there was not said by anything that failed."""
        self.worth: Mapping[str, int] | None = None
        """The lines that are worth running an expression on, as bits, once an index has looked; before that all are."""
        self.state = plain_word(evidence.scheduler_state)
        self.words = evidence.scheduler_words
        self.signals = evidence.signals
        self.exit_codes = evidence.exit_codes
        self.measures = evidence.measures

    def places(self, search: Search, most: int = MOST_PLACES, *, among: int = -1) -> list[int]:
        """The lines that an expression matches, of all or among some, which are given as bits."""
        left = among & ((1 << len(self.lines)) - 1 if self.worth is None else self.worth.get(search.expression, 0))
        places: list[int] = []
        while left and len(places) < most:
            lowest = left & -left
            left ^= lowest
            place = lowest.bit_length() - 1
            if search.finds(self.lines[place], self.lowered[place]):
                places.append(place)
        return places
