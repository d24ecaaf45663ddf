"""Which of many patterns may hold: the expressions of all of them are looked for in each line at once.

What asks for no line is found by what it asks for first: an exit code, a signal, a word of the batch system.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping

from forestay.domain.exceptions.causes.failure_pattern import FailurePattern, PatternConditions
from forestay.domain.exceptions.evidence.line_prefix import behind_prefix
from forestay.domain.exceptions.evidence.linear_regex import ExpressionSet
from forestay.domain.exceptions.evidence.prepared_evidence import PreparedEvidence, Search, is_anchored


class PatternIndex:
    """Patterns by what they need."""

    def __init__(self, patterns: Iterable[FailurePattern]) -> None:
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
        """Every pattern that can match, and some that do not; tells the evidence which lines its expressions match."""
        matched = seen.matched = self._matched(seen)
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
        matched: dict[str, int] = {}
        bit = 1
        for line, lowered in zip(seen.lines, seen.lowered, strict=True):
            expressions = self._expressions.found_in(line)
            if begins := behind_prefix(lowered):
                expressions += self._anchored.found_in(line[begins:])
            for expression in expressions:
                matched[expression] = matched.get(expression, 0) | bit
            bit <<= 1
        return matched


def _facts(when: PatternConditions) -> list[Hashable]:
    """One of these must be told for the pattern to hold; empty if none of these kinds is asked for."""
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
