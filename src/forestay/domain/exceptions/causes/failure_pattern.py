"""A failure pattern: one thing that the evidence may contain, and the cause that it indicates.

All conditions of a pattern must hold. Matching is pure and returns what matched, since readings from different sources confirm each other.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntFlag

from forestay.domain.exceptions.causes.cause import Cause, RetryNeed
from forestay.domain.exceptions.evidence.evidence import (
    AttemptStage,
    PreparedEvidence,
    Scheduler,
    Search,
    behind_prefix,
    is_anchored,
    shortened,
    warns,
)
from forestay.domain.exceptions.evidence.linear_regex import ExpressionSet

MOST_LINES_SHOWN = 5
NEAR = 12
"""An `unless` counts only within this many lines of a line that matches."""


class EvidenceSource(IntFlag):
    """Where the evidence that a pattern matched came from."""

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
    tellers: EvidenceSource = field(init=False, compare=False)
    """The sources that must have evidence for this to hold."""

    def __post_init__(self) -> None:
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
        object.__setattr__(self, "tellers", source)

    def facts_hold(self, seen: PreparedEvidence) -> bool:
        """Whether all conditions but those on lines hold: cheap, so it is checked first."""
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
    """Every line that matches, first to last; empty if the pattern has no condition on lines."""
    beside: tuple[int, ...] = ()
    """The first line with each of the texts that are required in addition."""


@dataclass(frozen=True, slots=True)
class FailurePattern:
    """One pattern of a pack."""

    name: str
    cause: Cause
    retry: RetryNeed
    confidence: float
    weight: int
    """How near to the root cause, 0 to 100."""
    when: PatternConditions
    words: str
    advice: str = ""
    pack: str = ""

    def match(self, seen: PreparedEvidence) -> PatternMatch | None:
        """The match of this pattern in the evidence, if any."""
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
    """Lines as bits, with this many around each: what a log says elsewhere is about something else."""
    bits = 0
    for place in places:
        bits |= ((1 << (2 * around + 1)) - 1) << place >> around
    return bits


def _speaks_against(seen: PreparedEvidence, numbers: list[int], places: list[int]) -> bool:
    """Whether one of these lines is among those, or is more than a warning."""
    return bool(numbers) and (
        not places or any(number in places or not warns(seen.lowered[number]) for number in numbers)
    )


def _any(searches: tuple[Search, ...], text: str) -> bool:
    if not text:
        return False
    line = shortened(text)
    lowered = line.lower()
    return any(search.finds(line, lowered) for search in searches)


class PatternIndex:
    """Patterns by what they need, beside those of another index."""

    def __init__(self, patterns: Iterable[FailurePattern], others: PatternIndex | None = None) -> None:
        self._others = others
        self._by_line: dict[str, list[FailurePattern]] = {}
        self._by_fact: dict[Hashable, list[FailurePattern]] = {}
        self._always: list[FailurePattern] = []
        searches: set[Search] = set()
        for pattern in patterns:
            when = pattern.when
            searches.update((*when.lines, *when.not_lines, *when.also, *when.unless))
            for search in when.lines:
                self._by_line.setdefault(search.expression, []).append(pattern)
            if not when.lines:
                keys = _facts(when)
                for key in keys:
                    self._by_fact.setdefault(key, []).append(pattern)
                if not keys:
                    self._always.append(pattern)
        expressions = {text for search in searches for text in (search.expression, search.without) if text}
        self._expressions = ExpressionSet(expressions)
        self._anchored = ExpressionSet(filter(is_anchored, expressions))

    def candidates(self, seen: PreparedEvidence) -> Iterator[FailurePattern]:
        """Every pattern that can match, and some that do not; stores in the evidence which lines its expressions match."""
        if self._others is not None:
            yield from self._others.candidates(seen)
        matched = self._matched(seen)
        seen.matched = {**seen.matched, **matched} if seen.matched else matched
        patterns: dict[int, FailurePattern] = {}
        for expression in matched:
            for pattern in self._by_line.get(expression, ()):
                patterns[id(pattern)] = pattern
        for key in _told(seen):
            for pattern in self._by_fact.get(key, ()):
                patterns[id(pattern)] = pattern
        yield from patterns.values()
        yield from self._always

    def _matched(self, seen: PreparedEvidence) -> Mapping[str, int]:
        """The lines that each expression matches. Lines are bits of a number."""
        matched: defaultdict[str, int] = defaultdict(int)
        known, lines = seen.last, seen.lines
        if known is not None and known.matched is not None:
            before = seen.log_lines - known.log_lines
            lines = lines[:before]
            own = self._expressions.names
            matched.update((name, bits << before) for name, bits in known.matched.items() if name in own)
        bit = 1
        for line, lowered in zip(lines, seen.lowered, strict=False):
            expressions = self._expressions.found_in(line)
            if begins := behind_prefix(lowered):
                expressions += self._anchored.found_in(line[begins:])
            for expression in expressions:
                matched[expression] |= bit
            bit <<= 1
        return dict(matched)


def _facts(when: PatternConditions) -> list[Hashable]:
    """The facts of which one must be known for the pattern to hold; empty if it has no condition of these kinds."""
    kinds = (
        ("hold", when.hold_code), ("word", when.scheduler_word), ("state", when.scheduler_state), ("signal", when.signal), ("exit", when.exit_code),
    )  # fmt: skip
    return next(([(kind, entry) for entry in ones] for kind, ones in kinds if ones), [])


def _told(seen: PreparedEvidence) -> Iterator[Hashable]:
    if seen.evidence.hold_code is not None:
        yield "hold", seen.evidence.hold_code
    for word in seen.words:
        yield "word", word
    yield "state", seen.state
    for signal in seen.signals:
        yield "signal", signal
    for code in seen.exit_codes:
        yield "exit", code
