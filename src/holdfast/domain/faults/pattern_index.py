"""Which of many patterns are worth a closer look, found without running their expressions.

An expression cannot match where the text that it needs is not there. A needed text with a whole word in it is looked up among the words of the log; of one that may be a part of a word, four letters are. What
asks for no line is found by what it asks for first: an exit code, a signal, a word of the batch system.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator

from holdfast.domain.faults.fault_pattern import FaultPattern, Search, Seen, When

_WORD = re.compile(r"[a-z0-9_]*[a-z][a-z0-9_]*")
_GRAM = 4


class PatternIndex:
    """Patterns by what they need."""

    def __init__(self, patterns: Iterable[FaultPattern]) -> None:
        self._by_line: dict[str, list[FaultPattern]] = {}
        self._by_fact: dict[Hashable, list[FaultPattern]] = {}
        self._always: list[FaultPattern] = []
        self._searches: dict[str, list[Search]] = {}
        self._unneeding: set[str] = set()
        texts: set[str] = set()
        known: set[str] = set()
        for pattern in patterns:
            when = pattern.when
            for search in when.lines:
                self._by_line.setdefault(search.expression, []).append(pattern)
            for search in (*when.lines, *when.also, *when.unless):
                if search.expression in known:
                    continue
                known.add(search.expression)
                texts |= {text for way in search.ways for one in way for text in one}
                for text in search.needed:
                    self._searches.setdefault(text, []).append(search)
                if not search.needed:
                    self._unneeding.add(search.expression)
            if not when.lines:
                keys = _facts(when)
                for key in keys:
                    self._by_fact.setdefault(key, []).append(pattern)
                if not keys:
                    self._always.append(pattern)
        self._whole: dict[str, list[tuple[frozenset[str], str]]] = {}
        self._part: dict[str, list[tuple[str, str]]] = {}
        self._short: list[tuple[str, str]] = []
        self._other: list[str] = []
        times = Counter(word for text in texts for word in set(_WORD.findall(text)))
        for text in texts:
            self._sort_in(text, times)

    def _sort_in(self, text: str, times: Counter[str]) -> None:
        words = [(found.start() > 0 and found.end() < len(text), found[0]) for found in _WORD.finditer(text)]
        inner = frozenset(word for whole, word in words if whole)
        if inner:
            # The word that stands in the fewest texts is the one that logs are the least full of.
            rarest = min(inner, key=lambda word: (times[word], -len(word), word))
            self._whole.setdefault(rarest, []).append((inner - {rarest}, text))
            return
        word = min((word for _, word in words), key=lambda word: (times[word], -len(word), word), default="")
        if not word:
            self._other.append(text)
        elif len(word) < _GRAM:
            self._short.append((word, text))
        else:
            self._part.setdefault(word[:_GRAM], []).append((word, text))

    def candidates(self, seen: Seen) -> Iterator[FaultPattern]:
        """Every pattern that can match, and some that do not; tells the evidence what is possible in it."""
        possible = self._possible(seen.lowered)
        seen.possible = possible
        given: dict[int, FaultPattern] = {}
        for expression in possible:
            for pattern in self._by_line.get(expression, ()):
                given[id(pattern)] = pattern
        for key in _told(seen):
            for pattern in self._by_fact.get(key, ()):
                given[id(pattern)] = pattern
        yield from given.values()
        yield from self._always

    def _possible(self, lowered: str) -> set[str]:
        found = set(self._unneeding)
        if not lowered:
            return found
        words = set(_WORD.findall(lowered))
        texts: list[str] = []
        for word in words & self._whole.keys():
            texts += [text for others, text in self._whole[word] if others <= words]
        joined = " ".join(words)
        grams = {word[at : at + _GRAM] for word in words for at in range(len(word) - _GRAM + 1)}
        for gram in grams & self._part.keys():
            texts += [text for word, text in self._part[gram] if word in joined]
        texts += [text for word, text in self._short if word in joined]
        present = {text for text in (*texts, *self._other) if text in lowered}
        for text in present & self._searches.keys():
            for search in self._searches[text]:
                if search.expression not in found and search.possible(present):
                    found.add(search.expression)
        return found


def _facts(when: When) -> list[Hashable]:
    """One of these must be told for the pattern to hold; empty if none of these kinds is asked for."""
    kinds = (
        ("hold", when.hold_code), ("word", when.scheduler_word), ("state", when.scheduler_state), ("signal", when.signal), ("exit", when.exit_code),
    )  # fmt: skip
    return next(([(kind, one) for one in ones] for kind, ones in kinds if ones), [])


def _told(seen: Seen) -> Iterator[Hashable]:
    if seen.evidence.hold_code is not None:
        yield "hold", seen.evidence.hold_code
    for word in seen.words:
        yield "word", word
    yield "state", seen.state
    for signal in seen.signals:
        yield "signal", signal
    for code in seen.exit_codes:
        yield "exit", code
