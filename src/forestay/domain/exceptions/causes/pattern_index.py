"""Which of many patterns are worth a closer look, and on which lines, found without running their expressions.

An expression cannot match in a line where the texts that it needs are not there. Texts are looked up by the words of the line, and which texts a word can be part of is kept, since logs share most of
their words. What asks for no line is found by what it asks for first: an exit code, a signal, a word of the batch system.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from forestay.domain.exceptions.causes.failure_pattern import FailurePattern, PatternConditions
from forestay.domain.exceptions.evidence.prepared_evidence import PreparedEvidence, Search
from forestay.domain.exceptions.evidence.regex_texts import EDGE, Way, bare

_WORD = re.compile(r"[a-z0-9_]+")
_APART = bytes(code if code == 10 or _WORD.match(chr(code)) else 32 for code in range(256))
_GRAM = 4
_MOST_KNOWN = 200_000
"""Words that are kept; a stranger's log must not fill the memory."""
_SHORT = 30
"""What a short text counts when the rarest is looked for: it stands in many words."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A word of a text, with its edges as texts have them."""

    text: str
    word: str
    first: bool
    """A word of the log begins with it."""
    last: bool

    @classmethod
    def of(cls, text: str) -> _Part:
        return cls(text, bare(text), text.startswith(EDGE), text.endswith(EDGE))

    def stands_in(self, word: str) -> bool:
        if self.first:
            return word == self.word if self.last else word.startswith(self.word)
        return word.endswith(self.word) if self.last else self.word in word


class PatternIndex:
    """Patterns by what they need."""

    def __init__(self, patterns: Iterable[FailurePattern]) -> None:
        self._by_line: dict[str, list[FailurePattern]] = {}
        self._by_fact: dict[Hashable, list[FailurePattern]] = {}
        self._always: list[FailurePattern] = []
        searches: dict[str, Search] = {}
        for pattern in patterns:
            when = pattern.when
            for search in when.lines:
                self._by_line.setdefault(search.expression, []).append(pattern)
            searches |= {
                search.expression: search for search in (*when.lines, *when.not_lines, *when.also, *when.unless)
            }
            if not when.lines:
                keys = _facts(when)
                for key in keys:
                    self._by_fact.setdefault(key, []).append(pattern)
                if not keys:
                    self._always.append(pattern)
        self._anywhere = tuple(sorted(search.expression for search in searches.values() if not search.ways))
        self._ways: dict[str, list[tuple[str, tuple[int, ...]]]] = {}
        """By the text that is looked for first: the expression, and the numbers of the other sets that it needs."""
        self._sets: list[tuple[str, ...]] = []
        self._joined: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
        """By the rarest of their parts: texts of several words, and their other parts."""
        self._wordless: list[str] = []
        self._short: list[_Part] = []
        self._long: dict[str, list[_Part]] = {}
        self._known: dict[str, tuple[str, ...]] = {}
        self._sort_in_texts(self._sort_in_ways(searches.values()))

    def _sort_in_ways(self, searches: Iterable[Search]) -> Mapping[str, int]:
        ways = [(texts.expression, way) for texts in searches for way in texts.ways]
        times = Counter(text for _, way in ways for texts in way for text in texts)
        numbers: dict[tuple[str, ...], int] = {}
        for expression, way in ways:
            key = _rarest(way, times)
            others = tuple(numbers.setdefault(texts, len(numbers)) for texts in way if texts is not key)
            for text in key:
                self._ways.setdefault(text, []).append((expression, others))
        self._sets = list(numbers)
        return times

    def _sort_in_texts(self, texts: Mapping[str, int]) -> None:
        parts_of = {text: _parts(text) for text in texts}
        times = Counter(part for parts in parts_of.values() for part in parts)
        for text, parts in sorted(parts_of.items()):
            if not parts or (len(bare(text)) > 1 and max(len(bare(part)) for part in parts) == 1):
                # A single letter stands in every line; such a text is looked for as it is.
                self._wordless.append(text)
            elif parts != (text,):
                key = min(parts, key=lambda part: (len(bare(part)) < _GRAM, times[part], -len(part), part))
                others = sorted({*parts} - {key}, key=lambda part: (times[part], part))
                self._joined.setdefault(key, []).append((text, tuple(others)))
        for part in map(_Part.of, sorted(times)):
            if len(part.word) < _GRAM:
                self._short.append(part)
            else:
                self._long.setdefault(part.word[:_GRAM], []).append(part)

    def candidates(self, seen: PreparedEvidence) -> Iterator[FailurePattern]:
        """Every pattern that can match, and some that do not; tells the evidence which lines are worth a look."""
        worth = seen.worth = self._worth(seen)
        patterns: dict[int, FailurePattern] = {}
        for expression in worth:
            for pattern in self._by_line.get(expression, ()):
                patterns[id(pattern)] = pattern
        for key in _told(seen):
            for pattern in self._by_fact.get(key, ()):
                patterns[id(pattern)] = pattern
        yield from patterns.values()
        yield from self._always

    def _worth(self, seen: PreparedEvidence) -> Mapping[str, int]:
        """The lines that have all that an expression needs, by the expression. Lines are bits of a number."""
        everywhere = (1 << len(seen.lines)) - 1
        masks = self._masks(seen.lowered)
        whole = "\n".join(seen.lowered)
        for text in self._wordless:
            if bare(text) in whole:
                masks[text] = everywhere
        for part in masks.keys() & self._joined.keys():
            here = masks[part]
            for text, others in self._joined[part]:
                mask = here
                for other in others:
                    mask &= masks.get(other, 0)
                    if not mask:
                        break
                else:
                    masks[text] = mask
        worth = dict.fromkeys(self._anywhere, everywhere)
        unions: dict[int, int] = {}
        for text in masks.keys() & self._ways.keys():
            here = masks[text]
            for expression, sets in self._ways[text]:
                mask = here
                for number in sets:
                    union = unions.get(number)
                    if union is None:
                        union = 0
                        for other in self._sets[number]:
                            union |= masks.get(other, 0)
                        unions[number] = union
                    mask &= union
                    if not mask:
                        break
                else:
                    worth[expression] = worth.get(expression, 0) | mask
        return worth

    def _masks(self, lowered: list[str]) -> dict[str, int]:
        """The lines in which each part of a text stands."""
        apart = "\n".join(lowered).encode("ascii", "replace").translate(_APART).decode("ascii")
        lines: dict[str, int] = {}
        bit = 1
        for line in apart.split("\n"):
            for word in line.split():
                lines[word] = lines.get(word, 0) | bit
            bit <<= 1
        known = self._known
        if len(known) > _MOST_KNOWN:
            known = self._known = {}
        masks: dict[str, int] = {}
        for word, mask in lines.items():
            parts = known.get(word)
            if parts is None:
                parts = known[word] = self._parts_of(word)
            for part in parts:
                masks[part] = masks.get(part, 0) | mask
        return masks

    def _parts_of(self, word: str) -> tuple[str, ...]:
        texts = {part.text for part in self._short if part.stands_in(word)}
        for at in range(len(word) - _GRAM + 1):
            texts |= {part.text for part in self._long.get(word[at : at + _GRAM], ()) if part.stands_in(word)}
        return tuple(texts)


def _rarest(way: Way, times: Mapping[str, int]) -> tuple[str, ...]:
    """The set that the fewest lines will have."""
    return min(way, key=lambda texts: sum(times[text] + (_SHORT if len(bare(text)) < _GRAM else 0) for text in texts))


def _parts(text: str) -> tuple[str, ...]:
    """The words of a text: what stands at its edge may be a part of a longer word."""
    inner = bare(text)
    return tuple(
        ("" if match.start() == 0 and not text.startswith(EDGE) else EDGE)
        + match[0]
        + ("" if match.end() == len(inner) and not text.endswith(EDGE) else EDGE)
        for match in _WORD.finditer(inner)
    )


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
