"""Evidence made ready for many patterns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from forestay.domain.exceptions.evidence.evidence import Evidence, plain_word, shortened
from forestay.domain.exceptions.evidence.linear_regex import compiled
from forestay.domain.exceptions.evidence.log_lines import behind_prefix, quoted_lines

MOST_PLACES = 32


@dataclass(frozen=True, slots=True)
class Search:
    """A regular expression that a line must match somewhere; one with `^` also behind what loggers put before a line."""

    expression: str
    without: str = ""
    """A line that this matches does not count; empty: every line counts."""

    def finds(self, line: str, lowered: str) -> bool:
        return _finds(self.expression, line, lowered) and not (self.without and _finds(self.without, line, lowered))


def is_anchored(expression: str) -> bool:
    """Whether an expression wants the beginning of a line."""
    return "^" in expression


def _finds(expression: str, line: str, lowered: str) -> bool:
    regex = compiled(expression)
    if regex.search(line.encode("utf-8", "replace")) is not None:
        return True
    begins = behind_prefix(lowered) if is_anchored(expression) else 0
    return begins > 0 and regex.search(line[begins:].encode("utf-8", "replace")) is not None


class PreparedEvidence:
    """One record of evidence, as patterns look at it."""

    __slots__ = (
        "evidence",
        "exit_codes",
        "lines",
        "log_lines",
        "lowered",
        "matched",
        "measures",
        "quoted",
        "signals",
        "state",
        "words",
    )

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.log_lines = len(evidence.log_tail)
        # A reason or a transfer's result in a sentence is read like a line of the log: it often quotes one.
        texts = [text for text in (evidence.transfer, evidence.scheduler_reason) if " " in text]
        self.lines: tuple[str, ...] = (*evidence.log_tail, *(shortened(text.replace("\n", " ")) for text in texts))
        self.lowered = [line.lower() for line in self.lines]
        self.quoted = quoted_lines(self.lowered)
        """Lines that quote a script or a program, as bits: what stands there was not said by anything that failed."""
        self.matched: Mapping[str, int] | None = None
        """The lines that each expression of an index matches, as bits, once the index has looked."""
        self.state = plain_word(evidence.scheduler_state)
        self.words = evidence.scheduler_words
        self.signals = evidence.signals
        self.exit_codes = evidence.exit_codes
        self.measures = evidence.measures

    def places(self, search: Search, most: int = MOST_PLACES, *, among: int = -1) -> list[int]:
        """The lines that an expression matches, of all or among some, which are given as bits."""
        if self.matched is None:
            every = range(len(self.lines))
            left = sum(1 << place for place in every if search.finds(self.lines[place], self.lowered[place]))
        else:
            left = self.matched.get(search.expression, 0) & ~self.matched.get(search.without, 0)
        left &= among
        places: list[int] = []
        while left and len(places) < most:
            lowest = left & -left
            left ^= lowest
            places.append(lowest.bit_length() - 1)
        return places
