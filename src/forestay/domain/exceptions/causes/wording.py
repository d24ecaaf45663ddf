"""The second classifier: the cause of failures whose wording resembles that of a log's last errors.

It is a logistic regression over the masked words, the pairs of words and the letters of the block that ends a log, with exit code, signal and state as words of their own. `just train-second` trains it from
labelled failures; its file and its card are in ``packs/wording``.

It never decides alone. On failures that it was not trained on it is right in two of three, patterns in nine of ten. But where both name the same cause, a weak pattern is nearly always right, and where they differ it often
is not: `calibrated` turns both into one confidence.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from zlib import crc32

from forestay.domain.exceptions.causes.cause import Cause
from forestay.domain.exceptions.causes.fingerprint import normalised_line
from forestay.domain.exceptions.evidence.evidence import PreparedEvidence

BUCKETS = 1 << 15
"""Features are identified by a hash alone."""
FACT = 0.3
"""The weight of an exit code or a state, where all words together weigh 1."""
MOST_LINES = 30
"""How many last lines of the block are read."""
LETTERS = (3, 4, 5)
SHORTEST = 4
"""The letters of shorter words are not used."""
LIKENESS = 0.3
"""What full likeness adds to the confidence of a pattern before both are calibrated."""
SAFE = 0.92
"""The fraction of right ones at which a weak reading is raised to `SURE`."""
UNSURE, SUREST = 0.79, 0.95
"""The highest confidence of a weak reading below that, and of any weak reading: two readers of one text may err together."""
REMEMBERED = 4_096
"""Words of which the weights are kept."""

_WORD = re.compile(r"<[a-z]+>|[a-z][a-z_']*[a-z]|[0-9]+|[a-z]")


def bucket(feature: str) -> int:
    return crc32(feature.encode("utf-8", "replace")) % BUCKETS


@dataclass(frozen=True, slots=True)
class Wording:
    """The features of a failure: each word and each pair of words once."""

    words: frozenset[str]
    pairs: frozenset[tuple[str, str]]
    facts: frozenset[str]


def wording(lines: Sequence[str], seen: PreparedEvidence) -> Wording:
    """The wording of some lines, with the other facts of the failure."""
    words: set[str] = set()
    pairs: set[tuple[str, str]] = set()
    for line in lines[-MOST_LINES:]:
        masked = _WORD.findall(normalised_line(line).lower())
        words.update(masked)
        pairs.update(pairwise(masked))
    facts = {f"exit {code}" for code in seen.exit_codes} | {f"signal {signal}" for signal in seen.signals}
    facts |= {f"state {word}" for word in seen.words}
    if seen.evidence.stage is not None:
        facts.add(f"stage {seen.evidence.stage}")
    return Wording(frozenset(words), frozenset(pairs), frozenset(facts))


def word_buckets(word: str) -> Iterator[int]:
    """The word itself, and its letters."""
    yield bucket(f"word {word}")
    if len(word) >= SHORTEST and word[0] != "<":
        bounded = f" {word} "
        for count in LETTERS:
            for place in range(len(bounded) - count + 1):
                yield bucket(f"letters {bounded[place : place + count]}")


def pair_bucket(pair: tuple[str, str]) -> int:
    return bucket(f"pair {pair[0]} {pair[1]}")


def fact_bucket(fact: str) -> int:
    return bucket(f"fact {fact}")


class WordingModel:
    """The trained weights; immutable except for its cache of words."""

    def __init__(
        self,
        causes: Sequence[Cause],
        weights: bytes,
        scales: Sequence[float],
        offsets: Sequence[float],
        steps: Sequence[tuple[float, float]],
        trained_on: str = "",
    ) -> None:
        """`weights`: one signed byte a bucket and cause, each to be multiplied by its cause's scale. `steps`: the strength from which on a weak reading has each confidence, ascending."""
        if len(weights) != BUCKETS * len(causes) or not len(causes) == len(scales) == len(offsets):
            raise ValueError(
                f"the weights of {len(causes)} causes are {BUCKETS * len(causes)} bytes, not {len(weights)}"
            )
        self.causes, self.scales, self.offsets = tuple(causes), tuple(scales), tuple(offsets)
        self.weights, self.steps, self.trained_on = weights, tuple(steps), trained_on
        self._rows = memoryview(weights).cast("b")
        self._remembered: dict[str, tuple[Sequence[int], int]] = {}

    def likeness(self, text: Wording) -> Mapping[Cause, float]:
        """The similarity of the wording to that of each cause; they add up to 1."""
        count, rows = 0, []
        for word in text.words:
            row, features = self._word(word)
            rows.append(row)
            count += features
        rows += [self._row(pair_bucket(pair)) for pair in text.pairs]
        by_words = _sums(rows, len(self.causes))
        by_facts = _sums([self._row(fact_bucket(fact)) for fact in text.facts], len(self.causes))
        length = math.sqrt(count + len(text.pairs)) or 1.0
        scores = [
            offset + scale * (words / length + FACT * facts)
            for offset, scale, words, facts in zip(self.offsets, self.scales, by_words, by_facts, strict=True)
        ]
        most = max(scores)
        shares = [math.exp(score - most) for score in scores]
        return dict(zip(self.causes, (share / sum(shares) for share in shares), strict=True))

    def calibrated(self, confidence: float, likeness: float) -> float:
        """The confidence in a weak reading of the patterns: how often such readings of labelled failures were right."""
        place = bisect_right(self.steps, (strength(confidence, likeness), math.inf))
        return self.steps[place - 1][1] if place else 0.0

    def _row(self, place: int) -> memoryview:
        width = len(self.causes)
        return self._rows[place * width : (place + 1) * width]

    def _word(self, word: str) -> tuple[Sequence[int], int]:
        known = self._remembered.get(word)
        if known is None:
            rows = [self._row(place) for place in word_buckets(word)]
            known = _sums(rows, len(self.causes)), len(rows)
            if len(self._remembered) >= REMEMBERED:
                self._remembered.clear()
            self._remembered[word] = known
        return known


def strength(confidence: float, likeness: float) -> float:
    """The support for a weak reading: its pattern, and the similarity of its wording to that of its cause."""
    return round(confidence + LIKENESS * likeness, 4)


def _sums(rows: Sequence[Sequence[int]], width: int) -> Sequence[int]:
    return [sum(column) for column in zip(*rows, strict=True)] if rows else [0] * width
