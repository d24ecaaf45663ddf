"""From evidence to a cause: every pattern that matches is a reading, and the readings are weighed against each other.

How they are weighed:

- **Weight first.** A pattern's weight says how near the root of the matter it is. That a task exited with 1 (10) is a consequence; that memory ran out
  (60) is why; that the kernel says it killed the process for it (90) is proof. Its confidence makes it lighter or heavier.
- **Earlier before later, among the errors that ended it.** Where several lines point to different causes, the first error is mostly the root and the others
  follow from it: no space left, then a file that cannot be parsed. So later lines lose a few points. In a Java trace it is the other way round: what stands behind
  ``Caused by:`` is the root, wherever it stands.
- **But not what did not stop anything.** A line that only warns, says that something is tried again or is only information counts for much less. So does an error with ordinary output behind it: the program
  went on. Lines that quote (source in a traceback, the script that ran) do not count at all. When nothing but a warning points anywhere, the answer is ``unknown`` and names it.
- **Tellers that agree.** When another teller (the batch system, the log, the exit code, a measure) points to the same cause on its own, confidence rises.
- **Tellers that do not.** When another cause is nearly as strong, confidence falls; when the two are as good as equal, the answer is ``unknown`` and names both. A wrong answer that is sure of
  itself costs more than none.

The order in which patterns are given does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from forestay.domain.exceptions.causes.cause import Cause, CauseFinding, RetryNeed
from forestay.domain.exceptions.causes.failure_pattern import (
    MOST_LINES_SHOWN,
    FailurePattern,
    PatternIndex,
    PatternMatch,
)
from forestay.domain.exceptions.evidence.evidence import Evidence, PreparedEvidence, only_informs, tells_trouble, warns
from forestay.domain.exceptions.evidence.redaction import redacted

LATER = 8.0
"""What the last of several errors loses to the first; one right behind it loses `NEXT`."""
NEXT = 2.0
ROOT = 8.0
"""What a line behind ``Caused by:`` gains."""
WARNING = 0.2
"""What is left of the points of a line that warns."""
LAST, LAST_WARNING = 6, 0.6
"""The same in the last lines of the log."""
TOLD = 0.6
"""The same for a line that is only information."""
FEW = 4
"""So many lines of ordinary output behind an error say nothing yet."""
AGES, OLD = 0.5, 25.0
"""What an error loses for each such line, and at most."""
AGREE = 6.0
EQUAL, NEAR, CLOSE = 3.0, 12.0, 25.0
"""Up to so many points apart, two causes are equal (no answer), near (less sure), close (a little less sure)."""
FALLBACK = 20
"""Patterns up to this weight speak only when no heavier one does."""
SUREST = 0.99
MOST_OTHERS = 5

_ROOT = re.compile(r"^\s*(?:Caused by|Root cause|caused by)\b")


@dataclass(frozen=True, slots=True)
class _PatternReading:
    match: PatternMatch
    place: int | None
    points: float
    confidence: float
    warned: bool = False
    """The line only warns, or says that it is tried again."""

    @property
    def pattern(self) -> FailurePattern:
        return self.match.pattern

    @property
    def strength(self) -> float:
        return self.points * (0.5 + 0.5 * self.confidence)

    @property
    def order(self) -> tuple[float, float, str, str]:
        """The strongest first; names settle what is equal, so that the order of patterns does not."""
        return (-self.strength, -self.confidence, self.pattern.name, self.pattern.pack)


class Classifier:
    """Patterns made ready to be asked often."""

    def __init__(self, patterns: Iterable[FailurePattern]) -> None:
        self.patterns = tuple(sorted(patterns, key=lambda pattern: (pattern.name, pattern.pack)))
        self._index = PatternIndex(self.patterns)

    def classify(self, evidence: Evidence) -> CauseFinding:
        """What the evidence points to; `unknown` rather than a guess."""
        seen = PreparedEvidence(evidence)
        readings = _weighed(seen, self.matches(seen))
        if not readings:
            return _nothing(evidence)
        groups = _by_cause(readings)
        best = groups[0]
        others = tuple(_finding(group.readings[0], seen, group.confidence) for group in groups[1 : 1 + MOST_OTHERS])
        rivals = (
            groups[1:]
            if best.readings[0].points <= FALLBACK
            else [group for group in groups[1:] if group.readings[0].points > FALLBACK]
        )
        apart = best.strength - rivals[0].strength if rivals else 100.0
        chosen = _finding(best.readings[0], seen, best.confidence)
        if best.readings[0].warned and chosen.cause is not Cause.UNKNOWN:
            return _only_warned(chosen, others)
        if apart < EQUAL and chosen.cause is not Cause.UNKNOWN:
            return _both(chosen, others)
        factor = 0.8 if apart < NEAR else 0.93 if apart < CLOSE else 1.0
        return replace(chosen, confidence=round(min(SUREST, best.confidence * factor), 2), also=others)

    def matches(self, seen: PreparedEvidence) -> list[PatternMatch]:
        """Every pattern that the evidence shows."""
        matches = (pattern.match(seen) for pattern in self._index.candidates(seen))
        return [match for match in matches if match is not None]


@dataclass(frozen=True, slots=True)
class _Group:
    """All readings that point to one cause, the strongest first."""

    readings: tuple[_PatternReading, ...]
    strength: float
    confidence: float


def _by_cause(readings: Sequence[_PatternReading]) -> list[_Group]:
    by_cause: dict[Cause, list[_PatternReading]] = {}
    for reading in sorted(readings, key=lambda pattern_reading: pattern_reading.order):
        by_cause.setdefault(reading.pattern.cause, []).append(reading)
    groups = [_group(ones) for ones in by_cause.values()]
    return sorted(groups, key=lambda group: (-group.strength, group.readings[0].order))


def _group(readings: list[_PatternReading]) -> _Group:
    first, *rest = readings
    heard = first.pattern.when.tellers
    strength, doubt = first.strength, 1.0 - first.confidence
    for reading in rest:
        tellers = reading.pattern.when.tellers
        if tellers and not tellers & heard:
            heard |= tellers
            strength += AGREE * reading.confidence
            doubt *= 1.0 - 0.5 * reading.confidence
    return _Group(tuple(readings), strength, 1.0 - doubt)


def _weighed(seen: PreparedEvidence, matches: Sequence[PatternMatch]) -> list[_PatternReading]:
    went_on = _ordinary_behind(seen, matches)
    readings = [_judged(seen, match, went_on) for match in matches]
    # Only errors that ended it are put in order: a warning is neither the root of anything nor its consequence.
    placed = [
        reading.place
        for reading in readings
        if reading.place is not None
        and reading.place < seen.log_lines
        and reading.points > FALLBACK
        and not went_on[reading.place] > FEW
    ]
    errors = sorted(set(placed))
    if len(errors) < 2:
        return readings
    first, span = errors[0], errors[-1] - errors[0]
    return [_put_in_order(seen, reading, first, span) for reading in readings]


def _put_in_order(seen: PreparedEvidence, reading: _PatternReading, first: int, span: int) -> _PatternReading:
    if reading.place is None or reading.place >= seen.log_lines or reading.place <= first:
        return reading
    if _ROOT.search(seen.lines[reading.place]):
        return replace(reading, points=reading.points + ROOT)
    return replace(reading, points=reading.points - NEXT - (LATER - NEXT) * min(1.0, (reading.place - first) / span))


def _judged(seen: PreparedEvidence, match: PatternMatch, went_on: Sequence[int]) -> _PatternReading:
    pattern = match.pattern
    if not match.places:
        return _PatternReading(match, match.beside[0] if match.beside else None, pattern.weight, pattern.confidence)
    best = None
    for place in match.places:
        points, confidence = float(pattern.weight), pattern.confidence
        if place < seen.log_lines and went_on[place] > FEW:
            points, confidence = points - min(OLD, AGES * went_on[place]), confidence * 0.85
        line = seen.lowered[place]
        warned = warns(line)
        if warned and place >= seen.log_lines - LAST:
            # The last that was said: nothing shows that it went on.
            points, confidence, warned = points * LAST_WARNING, confidence * 0.7, False
        elif warned:
            points, confidence = points * WARNING, confidence * 0.6
        elif only_informs(line):
            points, confidence = points * TOLD, confidence * 0.7
        # Of equals the first line stands.
        if best is None or points > best.points:
            best = _PatternReading(match, place, max(points, 1.0), confidence, warned)
    assert best is not None  # noqa: S101 - there are places
    return best


def _ordinary_behind(seen: PreparedEvidence, matches: Sequence[PatternMatch]) -> Sequence[int]:
    """How many lines of ordinary output stand behind each line of the log: behind an error they say that the program went on."""
    counts = [0] * len(seen.lines)
    first = min((match.places[0] for match in matches if match.places), default=len(counts))
    behind = 0
    for place in range(seen.log_lines - 1, first - 1, -1):
        counts[place] = behind
        line = seen.lowered[place]
        if line and not line[0].isspace() and not seen.quoted >> place & 1 and not tells_trouble(line):
            behind += 1
    return counts


def _finding(reading: _PatternReading, seen: PreparedEvidence, confidence: float) -> CauseFinding:
    pattern = reading.pattern
    places = sorted(
        {
            *([reading.place] if reading.place is not None else []),
            *reading.match.beside,
            *reading.match.places[:MOST_LINES_SHOWN],
        }
    )
    shown = places[:MOST_LINES_SHOWN]
    if reading.place is not None and reading.place not in shown:
        shown = [*shown[:-1], reading.place]
    return CauseFinding(
        cause=pattern.cause,
        confidence=round(min(SUREST, confidence), 2),
        retry=pattern.retry,
        pattern=pattern.name,
        lines=tuple(redacted(seen.lines[place].strip()) for place in shown),
        words=pattern.words,
        advice=pattern.advice,
    )


def _only_warned(finding: CauseFinding, others: tuple[CauseFinding, ...]) -> CauseFinding:
    return CauseFinding(
        cause=Cause.UNKNOWN,
        confidence=0.3,
        retry=RetryNeed.NO,
        lines=finding.lines,
        words=f"The evidence does not show why it failed; a warning indicates {finding.cause} ({finding.pattern}).",
        advice="Read the log; a warning alone does not stop a job.",
        also=(finding, *others)[:MOST_OTHERS],
    )


def _both(finding: CauseFinding, others: tuple[CauseFinding, ...]) -> CauseFinding:
    other = others[0]
    return CauseFinding(
        cause=Cause.UNKNOWN,
        confidence=0.4,
        retry=finding.retry if finding.retry is other.retry else RetryNeed.NO,
        lines=(*finding.lines, *(line for line in other.lines if line not in finding.lines))[:MOST_LINES_SHOWN],
        words=f"The evidence indicates two different causes: {finding.cause} ({finding.pattern}) and {other.cause} ({other.pattern}).",
        advice="Read the log, and write a pattern that distinguishes them.",
        also=(finding, *others)[:MOST_OTHERS],
    )


def _nothing(evidence: Evidence) -> CauseFinding:
    silent = not evidence.log_tail and not evidence.scheduler_reason
    failed = bool(evidence.exit_code or evidence.signal)
    if evidence.exit_code == 0 and not failed:
        words = "The evidence shows no failure."
    elif silent:
        words = "It failed without output: there is no log."
    else:
        words = "No pattern matches."
    return CauseFinding(
        Cause.UNKNOWN,
        0.2,
        RetryNeed.NO,
        words=words,
        advice="Read the log; a pattern written from it recognises the next such failure.",
    )
