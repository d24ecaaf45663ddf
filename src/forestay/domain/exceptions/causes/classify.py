"""Determines the cause from the evidence: every pattern that matches gives a reading, and the readings are weighed against each other.

How they are weighed:

- **Weight first.** A pattern's weight says how near to the root cause it is. That a task exited with 1 (10) is a consequence; that memory ran out
  (60) is the reason; that the kernel reports having killed the process for it (90) is proof. Its confidence makes it lighter or heavier.
- **The end of the log counts.** A log ends with a block of errors: a traceback, a chain of causes, a tool's own summary. An error with ordinary output between it and that block was survived: the program continued. It
  counts for much less, and if there is no other indication, the answer is ``unknown`` and names it. The same holds for a warning. A line that reports a retry or is only information counts for less.
  Lines that quote (source in a traceback, the script that ran) do not count at all.
- **Earlier before later, inside the block.** The first error is mostly the root cause and the others follow from it, so later lines lose points; most of all a missing file or an exception after an error of the disk, the memory, the network or
  the node. Never the reverse: a missing file fills no disk. In a Java trace, the text after ``Caused by:`` is the root cause, wherever it is.
- **Sources that agree.** When another source (the batch system, the log, the exit code, a measure) independently points to the same cause, confidence rises.
- **Sources that disagree.** When another cause is nearly as strong, confidence falls; when the two are practically equal, the stronger one is the answer, below the confidence at which a rule acts. When both are weak, the answer
  is ``unknown`` and names both. A wrong answer with high confidence costs more than no answer.
- **The wording.** A weak reading is compared with the second classifier (``wording``): if the errors that end the log are worded like other failures of that cause, its confidence rises. The cause stays.

The order in which patterns are given does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from forestay.domain.exceptions.causes.cause import SURE, Cause, CauseFinding, RetryNeed
from forestay.domain.exceptions.causes.failure_pattern import (
    MOST_LINES_SHOWN,
    FailurePattern,
    PatternIndex,
    PatternMatch,
)
from forestay.domain.exceptions.causes.wording import WordingModel, wording
from forestay.domain.exceptions.evidence.evidence import (
    Evidence,
    PreparedEvidence,
    is_information,
    only_informs,
    tells_trouble,
    warns,
)
from forestay.domain.exceptions.evidence.redaction import redacted

LATER = 14.0
"""The points that the last of several errors loses to the first; the one right after the first loses `NEXT`."""
NEXT = 2.0
ROOT = 14.0
"""The points that a line after ``Caused by:`` gains."""
WARNING = 0.2
"""The factor on the points of a warning."""
LAST, LAST_WARNING = 6, 0.6
"""The same in the last lines of the log."""
TOLD = 0.6
"""The same for a line that is only information."""
FEW = 4
"""Up to this many lines of ordinary output after an error are not significant."""
AGES, OLD = 0.5, 25.0
"""The points that an error loses for each such line, and at most."""
GAP = 3
"""This many ordinary lines in a row separate two blocks of errors."""
SURVIVED = 0.4
"""The factor on the points of an error with ordinary output between it and the block that ends the log."""
EXPLAINED, TELLING = 20.0, 0.7
"""The points that a missing file or an exception loses after an error of a resource, beyond what every later error loses; and the confidence that the earlier one must have."""
OUTPUT_FOLLOWS = "the output (if any) follows"
"""LSF's report comes before the output of the job, and is about its end."""
MISSING = frozenset({Cause.DATA_MISSING, Cause.OUTPUT_MISSING})
CONSEQUENCES = MISSING | {Cause.CODE, Cause.BAD_INPUT, Cause.DATA_CORRUPT}
RESOURCES = frozenset({Cause.DISK, Cause.MEMORY, Cause.NETWORK, Cause.NODE})
OUTSIDE = RESOURCES | {Cause.TRANSFER, Cause.TIME, Cause.PREEMPTED}
"""Causes outside the program: no error of the program leads to them."""
AGREE = 6.0
EQUAL, NEAR, CLOSE = 3.0, 12.0, 25.0
"""Up to this many points apart, two causes are equal (no answer), near (lower confidence), close (slightly lower confidence)."""
END, KNOWN = 40, 30
"""The number of last lines of a longer log that are read first; they suffice if an error there has more points than `KNOWN`."""
FALLBACK = 20
"""Patterns up to this weight count only if no heavier one matches."""
TIED = 0.6
"""The highest confidence in the stronger of two equal causes."""
WEAK = 0.5
"""Two equal causes below this confidence are no answer."""
SUREST = 0.99
UNFAILED = frozenset({"", "COMPLETED", "COMPLETING", "SUCCEEDED", "DONE", "RUNNING", "PENDING"})
"""States, in the form of `plain_word`, that indicate no failure."""
MOST_OTHERS = 5

_NEITHER = re.compile(r"\s*\S+$|\W+$|\s*(?:shutting down|tip: |complete log|feature: )")
"""Headings, rules, single words, and closing messages of engines: neither an error nor a sign that the program continued."""
_TABLE = re.compile(r"\s+[-+]?[0-9.]+(?:e[-+]?\d+)?\s+[-+]?[0-9.]")
_ROOT = re.compile(r"^\s*(?:Caused by|Root cause|caused by)\b")


@dataclass(frozen=True, slots=True)
class _PatternReading:
    match: PatternMatch
    place: int | None
    points: float
    confidence: float
    warned: bool = False
    """The line is only a warning, or reports a retry."""
    mild: bool = False
    """The line warns or informs, even where nothing shows that the program continued: it explains no other error."""
    survived: bool = False
    """There is ordinary output between it and the errors that end the log."""

    @property
    def pattern(self) -> FailurePattern:
        return self.match.pattern

    @property
    def strength(self) -> float:
        return self.points * (0.5 + 0.5 * self.confidence)

    @property
    def order(self) -> tuple[float, float, str, str]:
        """The strongest first; ties are broken by name, so that the order of patterns has no effect."""
        return (-self.strength, -self.confidence, self.pattern.name, self.pattern.pack)


class Classifier:
    """Patterns made ready to be asked often, and the second classifier beside them, if there is one."""

    def __init__(
        self,
        patterns: Iterable[FailurePattern],
        wording_model: WordingModel | None = None,
        index: PatternIndex | None = None,
    ) -> None:
        self.patterns = tuple(sorted(patterns, key=lambda pattern: (pattern.name, pattern.pack)))
        self._wording_model = wording_model
        self._index = index or PatternIndex(self.patterns)

    def with_patterns(self, patterns: Iterable[FailurePattern]) -> Classifier:
        """The classifier with additional patterns, such as those of one tenant. The large index is shared; only a small one is built."""
        more = tuple(patterns)
        return Classifier((*self.patterns, *more), self._wording_model, PatternIndex(more, self._index))

    def classify(self, evidence: Evidence) -> CauseFinding:
        """What the evidence points to; `unknown` rather than a guess."""
        last: PreparedEvidence | None = None
        if len(evidence.log_tail) > 2 * END and OUTPUT_FOLLOWS not in "\n".join(evidence.log_tail).lower():
            last = PreparedEvidence(replace(evidence, log_tail=evidence.log_tail[-END:]))
            finding = self._by_its_end(last)
            if finding is not None:
                return finding
        seen = PreparedEvidence(evidence, last)
        matches = self.matches(seen)
        return self._compared(weigh(seen, matches), seen, matches)

    def _by_its_end(self, seen: PreparedEvidence) -> CauseFinding | None:
        """What the last lines of a long log point to, if the errors that end it stand there whole and are known.

        Errors before them were survived and would not be the answer; searching for them would take most of the time.
        """
        matches = self.matches(seen)
        end = _log_end(seen, matches, first=0)
        if not end.between[0]:
            return None
        readings = _weighed(seen, matches, end)
        if not any(_ends_the_log(reading) for reading in readings):
            return None
        return self._compared(_chosen(seen, readings), seen, matches, end)

    def _compared(
        self, finding: CauseFinding, seen: PreparedEvidence, matches: Sequence[PatternMatch], end: _LogEnd | None = None
    ) -> CauseFinding:
        """The finding; a weak one with its confidence recalibrated by the second classifier. A finding without a line has no wording."""
        if self._wording_model is None or not finding.lines or not finding.pattern or finding.confidence >= SURE:
            return finding
        if finding.cause not in self._wording_model.causes:
            return finding
        likeness = self._wording_model.likeness(wording(terminal_lines(seen, matches, end), seen))[finding.cause]
        confidence = self._wording_model.calibrated(finding.confidence, likeness)
        words = finding.words
        if confidence >= SURE:
            words = f"{words} The wording is like that of other {finding.cause} failures."
        return replace(finding, confidence=confidence, words=words)

    def matches(self, seen: PreparedEvidence) -> list[PatternMatch]:
        """Every pattern that matches the evidence."""
        matches = (pattern.match(seen) for pattern in self._index.candidates(seen))
        return [match for match in matches if match is not None]


def weigh(seen: PreparedEvidence, matches: Sequence[PatternMatch]) -> CauseFinding:
    """The cause that the matches of one record of evidence point to together."""
    return _chosen(seen, _weighed(seen, matches, _log_end(seen, matches)))


def _ends_the_log(reading: _PatternReading) -> bool:
    return reading.place is not None and not reading.survived and not reading.mild and reading.points > KNOWN


def _chosen(seen: PreparedEvidence, readings: Sequence[_PatternReading]) -> CauseFinding:
    if not readings:
        return _nothing(seen)
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
    if best.readings[0].survived and chosen.cause is not Cause.UNKNOWN:
        return _only_survived(chosen, others)
    if apart < EQUAL and chosen.cause is not Cause.UNKNOWN:
        weak = best.readings[0].points <= FALLBACK or best.confidence < WEAK
        if weak and others[0].cause is Cause.UNKNOWN:
            return replace(others[0], also=(chosen, *others[1:]))
        return _two_readings(chosen, others) if weak else _stronger_of_two(chosen, others)
    factor = 0.8 if apart < NEAR else 0.93 if apart < CLOSE else 1.0
    return replace(chosen, confidence=round(min(SUREST, best.confidence * factor), 2), also=others)


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


def _weighed(seen: PreparedEvidence, matches: Sequence[PatternMatch], end: _LogEnd) -> list[_PatternReading]:
    readings = [_judged(seen, match, end) for match in matches]
    # Only errors that ended it are ordered: what the program survived is neither a root cause nor a consequence.
    strongest: dict[int, _PatternReading] = {}
    for reading in readings:
        place = reading.place
        if place is None or place >= seen.log_lines or reading.points <= FALLBACK or reading.survived or reading.mild:
            continue
        if place not in strongest or reading.order < strongest[place].order:
            strongest[place] = reading
    errors = sorted(strongest.items())
    if len(errors) < 2:
        return readings
    return [_put_in_order(seen, reading, errors) for reading in readings]


def _put_in_order(
    seen: PreparedEvidence, reading: _PatternReading, errors: Sequence[tuple[int, _PatternReading]]
) -> _PatternReading:
    place = reading.place
    if place is None or place >= seen.log_lines or reading.survived or reading.warned:
        return reading
    first, last = errors[0][0], errors[-1][0]
    if place > first and _ROOT.search(seen.lines[place]):
        return replace(reading, points=reading.points + ROOT)
    cause, head = reading.pattern.cause, _head(seen, place)
    earlier = [error for error in errors if error[0] < head and _may_explain(error[1].pattern.cause, cause)]
    if not earlier:
        return reading
    lost = NEXT + (LATER - NEXT) * min(1.0, (place - earlier[0][0]) / (last - first))
    if any(_surely_explains(error, cause) for _, error in earlier):
        lost += EXPLAINED
    return replace(reading, points=max(1.0, reading.points - lost))


def _head(seen: PreparedEvidence, place: int) -> int:
    """The line to which an indented line belongs."""
    while place and (not seen.lines[place] or seen.lines[place][0].isspace()):
        place -= 1
    return place


def _may_explain(earlier: Cause, later: Cause) -> bool:
    """Whether one error may have led to another: a full disk to a missing file, never a missing file to a full disk."""
    return later not in (OUTSIDE if earlier in CONSEQUENCES else RESOURCES) or earlier in RESOURCES


def _surely_explains(earlier: _PatternReading, later: Cause) -> bool:
    """Whether the later one would hardly have occurred without the earlier: whatever broke, its results are missing."""
    cause = earlier.pattern.cause
    return earlier.confidence >= TELLING and (
        (later in CONSEQUENCES and cause in RESOURCES) or (later in MISSING and cause not in MISSING)
    )


def _judged(seen: PreparedEvidence, match: PatternMatch, end: _LogEnd) -> _PatternReading:
    pattern = match.pattern
    if not match.places:
        return _PatternReading(match, match.beside[0] if match.beside else None, pattern.weight, pattern.confidence)
    best = None
    for place in match.places:
        points, confidence = float(pattern.weight), pattern.confidence
        survived = False
        if place < seen.log_lines:
            if end.between[place]:
                points, confidence, survived = points * SURVIVED, confidence * 0.6, True
            elif end.behind > FEW:
                points, confidence = points - min(OLD, AGES * end.behind), confidence * 0.85
        line = seen.lowered[place]
        mild = warned = warns(line)
        if warned and place >= seen.log_lines - LAST:
            # The last line: nothing shows that the program continued.
            points, confidence, warned = points * LAST_WARNING, confidence * 0.7, False
        elif warned:
            points, confidence = points * WARNING, confidence * 0.6
        elif only_informs(line) or ((survived or end.behind > FEW) and is_information(line)):
            points, confidence, mild = points * TOLD, confidence * 0.7, True
        # Of equals the first line is kept.
        if best is None or points > best.points:
            best = _PatternReading(match, place, max(points, 1.0), confidence, warned, mild, survived)
    assert best is not None  # noqa: S101 - there are places
    return best


@dataclass(frozen=True, slots=True)
class _LogEnd:
    """The block of errors that ends a log: a traceback, a chain of causes, a tool's own summary."""

    between: Sequence[bool]
    """Whether ordinary lines stand between each line and the block: behind an error they say that the program went on."""
    behind: int
    """How many ordinary lines follow the block."""


def _log_end(seen: PreparedEvidence, matches: Sequence[PatternMatch], first: int | None = None) -> _LogEnd:
    between = [False] * len(seen.lines)
    matched = 0
    begins = seen.log_lines
    for match in matches:
        if match.places:
            begins = min(begins, match.places[0])
            if match.pattern.weight > FALLBACK:
                for place in match.places:
                    matched |= 1 << place
    if first is None:
        first = begins
    behind = -1
    run = indented = 0
    parted = False
    two_parts = f"\n{OUTPUT_FOLLOWS}" in "\n".join(("", *seen.lowered))
    for place in range(seen.log_lines - 1, first - 1, -1):
        line = seen.lowered[place]
        if not line or seen.quoted >> place & 1:
            continue
        parted = parted or (run >= GAP and behind >= 0)
        between[place] = parted
        if parted and not two_parts:
            # Nothing before it makes this less true, nor says more of the block.
            continue
        if matched >> place & 1 or tells_trouble(line):
            if warns(line):
                continue
            if run and behind >= 0 and is_information(line):
                # The program continued after it, and its own level says that nothing was wrong.
                run += 1 + indented
                indented = 0
                continue
            if behind < 0:
                behind = run
            run = indented = 0
        elif is_heading(line):
            indented = 0
            if line.startswith(OUTPUT_FOLLOWS):
                parted, run = False, 0
        elif line[0].isspace() and not _TABLE.match(line):
            # It belongs to the line above it, ordinary or not.
            indented += 1
        else:
            run += 1 + indented
            indented = 0
    return _LogEnd(between, max(behind, 0))


def is_heading(lowered: str) -> bool:
    """Whether a line is neither an error nor a sign that the program continued."""
    return lowered.rstrip().endswith(":") or _NEITHER.match(lowered) is not None


def terminal_lines(seen: PreparedEvidence, matches: Sequence[PatternMatch], end: _LogEnd | None = None) -> list[str]:
    """The lines of the block that ends the log, with the messages of the batch system and the transfer; without quoted lines."""
    first = max(0, seen.log_lines - END)
    between = (end or _log_end(seen, matches, first)).between
    return [
        line
        for place, line in enumerate(seen.lines[first:], first)
        if line.strip() and not between[place] and not seen.quoted >> place & 1
    ]


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


def _only_survived(finding: CauseFinding, others: tuple[CauseFinding, ...]) -> CauseFinding:
    return CauseFinding(
        cause=Cause.UNKNOWN,
        confidence=0.3,
        retry=RetryNeed.NO,
        words=f"No pattern knows the errors at the end of the log; an earlier one indicates {finding.cause} ({finding.pattern}), but the program went on after it.",
        advice="Read the end of the log; a pattern written from it recognises the next such failure.",
        also=(finding, *others)[:MOST_OTHERS],
    )


def _stronger_of_two(finding: CauseFinding, others: tuple[CauseFinding, ...]) -> CauseFinding:
    other = others[0]
    return replace(
        finding,
        confidence=min(TIED, finding.confidence),
        retry=_retry_of_both(finding, other),
        lines=_lines_of_both(finding, other),
        words=f"{finding.words} {other.cause.capitalize()} ({other.pattern}) is almost as likely.",
        also=others,
    )


def _two_readings(finding: CauseFinding, others: tuple[CauseFinding, ...]) -> CauseFinding:
    other = others[0]
    return CauseFinding(
        cause=Cause.UNKNOWN,
        confidence=0.4,
        retry=_retry_of_both(finding, other),
        lines=_lines_of_both(finding, other),
        words=f"Two readings: the evidence indicates {finding.cause} ({finding.pattern}) and {other.cause} ({other.pattern}), both weakly.",
        advice="Read the log, and write a pattern that distinguishes them.",
        also=(finding, *others)[:MOST_OTHERS],
    )


def _retry_of_both(finding: CauseFinding, other: CauseFinding) -> RetryNeed:
    return finding.retry if finding.retry is other.retry else RetryNeed.NO


def _lines_of_both(finding: CauseFinding, other: CauseFinding) -> tuple[str, ...]:
    return (*finding.lines, *(line for line in other.lines if line not in finding.lines))[:MOST_LINES_SHOWN]


def _nothing(seen: PreparedEvidence) -> CauseFinding:
    evidence = seen.evidence
    if evidence.exit_code == 0 and not evidence.signal:
        words = (
            "The evidence shows no failure."
            if seen.state in UNFAILED
            else f"Its exit code is 0, and the batch system calls it {evidence.scheduler_state}; nothing says why."
        )
    elif not seen.lines and not evidence.scheduler_reason:
        words = "No words: it failed without output, and there is no log."
    else:
        words = "Words that nobody knows: no pattern matches what was said."
    return CauseFinding(
        Cause.UNKNOWN,
        0.2,
        RetryNeed.NO,
        words=words,
        advice="Read the log; a pattern written from it recognises the next such failure.",
    )
