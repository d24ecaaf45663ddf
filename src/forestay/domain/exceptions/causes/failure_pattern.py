"""A failure pattern: one thing that evidence may show, and what it points to.

All that a pattern gives must hold. Matching is pure and says by what it matched, since readings that rest on different tellers confirm each other.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntFlag

from forestay.domain.exceptions.causes.cause import Cause, RetryNeed
from forestay.domain.exceptions.evidence.evidence import AttemptStage, Scheduler, shortened
from forestay.domain.exceptions.evidence.line_tone import warns
from forestay.domain.exceptions.evidence.prepared_evidence import PreparedEvidence, Search

MOST_LINES_SHOWN = 5
NEAR = 12
"""An `unless` counts only so many lines around a line that matches."""


class EvidenceSource(IntFlag):
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
class MeasureComparison:
    """A measure against a bound; it does not hold when the measure is unknown."""

    measure: str
    sign: str
    bound: float

    def holds(self, measures: Mapping[str, float]) -> bool:
        known = measures.get(self.measure)
        return known is not None and OPERATORS[self.sign](known, self.bound)


@dataclass(frozen=True, slots=True)
class PatternConditions:
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
    stage: frozenset[AttemptStage] = frozenset()
    transfer: tuple[Search, ...] = ()
    lines: tuple[Search, ...] = ()
    not_lines: tuple[Search, ...] = ()
    """A line that one of these matches does not count among `lines`."""
    also: tuple[Search, ...] = ()
    unless: tuple[Search, ...] = ()
    compare: tuple[MeasureComparison, ...] = ()

    @property
    def tellers(self) -> EvidenceSource:
        """Who must have told something for this to hold."""
        source = EvidenceSource(0)
        if self.exit_code or self.signal:
            source |= EvidenceSource.PROCESS
        if self.scheduler_state or self.scheduler_word or self.scheduler_reason or self.hold_code:
            source |= EvidenceSource.SCHEDULER
        if self.lines or self.also:
            source |= EvidenceSource.LOG
        if self.compare:
            source |= EvidenceSource.MEASURES
        if self.transfer:
            source |= EvidenceSource.TRANSFER
        return source

    def facts_hold(self, seen: PreparedEvidence) -> bool:
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
        return all(comparison.holds(seen.measures) for comparison in self.compare)


@dataclass(frozen=True, slots=True)
class PatternMatch:
    """A pattern that holds, and the lines by which it does."""

    pattern: FailurePattern
    places: tuple[int, ...] = ()
    """Every line that matches, first to last; empty if the pattern asks for none."""
    beside: tuple[int, ...] = ()
    """The first line for each of the texts that had to be there too."""


@dataclass(frozen=True, slots=True)
class FailurePattern:
    """One pattern of a pack."""

    name: str
    cause: Cause
    retry: RetryNeed
    confidence: float
    weight: int
    """How near the root of the matter, 0 to 100."""
    when: PatternConditions
    words: str
    advice: str = ""
    pack: str = ""

    def match(self, seen: PreparedEvidence) -> PatternMatch | None:
        """Whether the evidence shows it."""
        when = self.when
        if not when.facts_hold(seen):
            return None
        places: list[int] = []
        if when.lines:
            for search in when.lines:
                places += seen.places(search, among=~seen.quoted)
            if places and when.not_lines:
                here = _bits(places)
                passed = {place for search in when.not_lines for place in seen.places(search, among=here)}
                places = [place for place in places if place not in passed]
            if not places:
                return None
        beside: list[int] = []
        for search in when.also:
            first = seen.places(search, 1)
            if not first:
                return None
            beside += first
        near = _bits(places, NEAR) if places else -1
        if any(_speaks_against(seen, seen.places(search, among=near), places) for search in when.unless):
            return None
        return PatternMatch(self, tuple(sorted(set(places))), tuple(sorted(set(beside))))


def _bits(places: list[int], around: int = 0) -> int:
    """Lines as bits, with so many around each: what a log says elsewhere is about something else."""
    bits = 0
    for place in places:
        bits |= ((1 << (2 * around + 1)) - 1) << place >> around
    return bits


def _speaks_against(seen: PreparedEvidence, numbers: list[int], places: list[int]) -> bool:
    """Whether one of these lines is one of those, or does not only warn."""
    return bool(numbers) and (
        not places or any(number in places or not warns(seen.lowered[number]) for number in numbers)
    )


def _any(searches: tuple[Search, ...], text: str) -> bool:
    line = shortened(text)
    lowered = line.lower()
    return bool(line) and any(search.finds(line, lowered) for search in searches)
