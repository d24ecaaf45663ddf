"""A fault pattern: one thing that evidence may show, and what it points to.

All that a pattern gives must hold. Matching is pure and says by what it matched, since readings that rest on different tellers confirm each other.
"""

from __future__ import annotations

import operator
import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntFlag
from functools import cache
from itertools import accumulate

from holdfast.domain.faults.cause import Cause, Retry
from holdfast.domain.faults.evidence import Evidence, Scheduler, Stage, plain_word, shortened
from holdfast.domain.faults.regex_shape import Way, shape_of

MOST_LINES_SHOWN = 5
_MOST_PLACES = 32


class Teller(IntFlag):
    """Who told what a pattern matched by."""

    PROCESS = 1
    """Its exit code or signal."""
    SCHEDULER = 2
    LOG = 4
    MEASURES = 8
    TRANSFER = 16


OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "==": operator.eq,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Comparison:
    """A measure against a bound; it does not hold when the measure is unknown."""

    measure: str
    sign: str
    bound: float

    def holds(self, measures: Mapping[str, float]) -> bool:
        known = measures.get(self.measure)
        return known is not None and OPERATORS[self.sign](known, self.bound)


@dataclass(frozen=True, slots=True)
class Search:
    """A regular expression, with the texts of which one must be there for it to match."""

    expression: str
    needed: tuple[str, ...] = field(compare=False)
    ways: tuple[Way, ...] = field(compare=False)

    @classmethod
    def of(cls, expression: str) -> Search:
        shape = shape_of(expression)
        return cls(expression, shape.needed, shape.ways)

    def possible(self, present: frozenset[str] | set[str]) -> bool:
        """Whether all that one of the ways to match needs is among these texts."""
        for way in self.ways:
            for texts in way:
                if present.isdisjoint(texts):
                    break
            else:
                return True
        return not self.ways

    def worth_trying(self, lowered: str) -> bool:
        """Whether a text in lower case has all that one of the ways to match needs."""
        for way in self.ways:
            for texts in way:
                for text in texts:
                    if text in lowered:
                        break
                else:
                    break
            else:
                return True
        return not self.ways

    def finds(self, line: str) -> bool:
        return _compiled(self.expression).search(line) is not None


@cache
def _compiled(expression: str) -> re.Pattern[str]:
    """Only when it is first run: most expressions never are."""
    return re.compile(expression)


class Seen:
    """Evidence made ready for many patterns."""

    __slots__ = (
        "_lowered_lines",
        "_starts",
        "evidence",
        "exit_codes",
        "lines",
        "log_lines",
        "lowered",
        "measures",
        "possible",
        "signals",
        "state",
        "words",
    )

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.log_lines = len(evidence.log_tail)
        # A reason or a transfer's result in a sentence is read like a line of the log: it often quotes one.
        said = [one for one in (evidence.transfer, evidence.scheduler_reason) if " " in one]
        self.lines: tuple[str, ...] = (*evidence.log_tail, *(shortened(one) for one in said))
        self.lowered = "\n".join(self.lines).lower()
        self._starts: list[int] | None = None
        self._lowered_lines: list[str] | None = None
        self.possible: Collection[str] | None = None
        """The expressions whose text is there, once an index has looked; before that nobody knows."""
        self.state = plain_word(evidence.scheduler_state)
        self.words = evidence.scheduler_words
        self.signals = evidence.signals
        self.exit_codes = evidence.exit_codes
        self.measures = evidence.measures

    def places(self, search: Search, most: int = _MOST_PLACES) -> list[int]:
        """The lines that an expression matches."""
        # In the whole log first: most that need several texts are settled by that.
        if (
            search.expression not in self.possible
            if self.possible is not None
            else not search.worth_trying(self.lowered)
        ):
            return []
        found = []
        lowered = self._in_lower_case()
        for place in self._worth_a_look(search):
            if search.worth_trying(lowered[place]) and search.finds(self.lines[place]):
                found.append(place)
                if len(found) == most:
                    break
        return found

    def _in_lower_case(self) -> list[str]:
        if self._lowered_lines is None:
            self._lowered_lines = self.lowered.split("\n")
        return self._lowered_lines

    def _worth_a_look(self, search: Search) -> Iterable[int]:
        """The lines that hold one of the texts that the expression cannot do without."""
        if not search.needed:
            return range(len(self.lines))
        if self._starts is None:
            # Lower case can be longer, so the lines are measured in it.
            self._starts = [0, *accumulate(len(line) + 1 for line in self._in_lower_case())]
        starts = self._starts
        found: set[int] = set()
        for text in search.needed:
            at = self.lowered.find(text)
            while at >= 0:
                place = bisect_right(starts, at) - 1
                found.add(place)
                at = self.lowered.find(text, starts[place + 1])
        return sorted(found)


@dataclass(frozen=True, slots=True)
class When:
    """What must hold; what is empty is not asked."""

    exit_code: frozenset[int] = frozenset()
    signal: frozenset[int] = frozenset()
    scheduler: frozenset[Scheduler] = frozenset()
    scheduler_state: frozenset[str] = frozenset()
    """In the form of `plain_word`."""
    scheduler_word: frozenset[str] = frozenset()
    """The state or a word of the reason, in the form of `plain_word`."""
    scheduler_reason: tuple[Search, ...] = ()
    hold_code: frozenset[int] = frozenset()
    hold_subcode: frozenset[int] = frozenset()
    stage: frozenset[Stage] = frozenset()
    transfer: tuple[Search, ...] = ()
    lines: tuple[Search, ...] = ()
    also: tuple[Search, ...] = ()
    unless: tuple[Search, ...] = ()
    compare: tuple[Comparison, ...] = ()

    @property
    def tellers(self) -> Teller:
        """Who must have told something for this to hold."""
        found = Teller(0)
        if self.exit_code or self.signal:
            found |= Teller.PROCESS
        if self.scheduler_state or self.scheduler_word or self.scheduler_reason or self.hold_code:
            found |= Teller.SCHEDULER
        if self.lines or self.also:
            found |= Teller.LOG
        if self.compare:
            found |= Teller.MEASURES
        if self.transfer:
            found |= Teller.TRANSFER
        return found

    def facts_hold(self, seen: Seen) -> bool:
        """Everything but the lines: cheap, so it is asked first."""
        evidence = seen.evidence
        if self.exit_code and not (self.exit_code & seen.exit_codes):
            return False
        if self.signal and not (self.signal & seen.signals):
            return False
        if self.scheduler and evidence.scheduler not in self.scheduler:
            return False
        if self.scheduler_state and seen.state not in self.scheduler_state:
            return False
        if self.scheduler_word and not (self.scheduler_word & seen.words):
            return False
        if self.hold_code and evidence.hold_code not in self.hold_code:
            return False
        if self.hold_subcode and evidence.hold_subcode not in self.hold_subcode:
            return False
        if self.stage and evidence.stage not in self.stage:
            return False
        if self.scheduler_reason and not _any(self.scheduler_reason, evidence.scheduler_reason):
            return False
        if self.transfer and not _any(self.transfer, evidence.transfer):
            return False
        return all(one.holds(seen.measures) for one in self.compare)


@dataclass(frozen=True, slots=True)
class Match:
    """A pattern that holds, and the lines by which it does."""

    pattern: FaultPattern
    places: tuple[int, ...] = ()
    """Every line that matches, first to last; empty if the pattern asks for none."""
    beside: tuple[int, ...] = ()
    """The first line for each of the texts that had to be there too."""


@dataclass(frozen=True, slots=True)
class FaultPattern:
    """One pattern of a pack."""

    name: str
    cause: Cause
    retry: Retry
    confidence: float
    weight: int
    """How near the root of the matter, 0 to 100."""
    when: When
    words: str
    advice: str = ""
    pack: str = ""

    def match(self, seen: Seen) -> Match | None:
        """Whether the evidence shows it."""
        when = self.when
        if not when.facts_hold(seen):
            return None
        places: list[int] = []
        if when.lines:
            for search in when.lines:
                places += seen.places(search)
            if not places:
                return None
        beside: list[int] = []
        for search in when.also:
            first = seen.places(search, 1)
            if not first:
                return None
            beside += first
        if any(seen.places(search, 1) for search in when.unless):
            return None
        return Match(self, tuple(sorted(set(places))), tuple(sorted(set(beside))))


def _any(searches: tuple[Search, ...], text: str) -> bool:
    line = shortened(text)
    return bool(line) and any(search.finds(line) for search in searches)
