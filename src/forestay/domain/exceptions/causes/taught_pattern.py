"""Patterns that operators teach: this error has that cause. Together they are the site's own pack, which is kept in the store and not in a file.

A pattern is drafted from a line of the error: what varies between its failures becomes a gap, the rest must match. It is stored only if it classifies the
failures that it was taught from with its cause, and no example of another cause differently than before; the service that stores it tests this.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from forestay.domain.exceptions.causes.cause import Cause, RetryNeed
from forestay.domain.exceptions.causes.failure_pattern import FailurePattern, PatternConditions
from forestay.domain.exceptions.causes.fingerprint import normalised_line
from forestay.domain.exceptions.evidence.evidence import PreparedEvidence, Search
from forestay.domain.exceptions.evidence.linear_regex import LONGEST, compiled, problem_of
from forestay.domain.exceptions.evidence.redaction import redacted

PACK = "taught"
"""The name of the site's own pack; the names of its patterns begin with it."""
MOST = 100
"""The most patterns of one tenant."""
MOST_CORRECTED = 200
"""The newest failures whose cause people corrected; patterns are tested against them."""
CONFIDENCE = 0.9
WEIGHTS = (60, 80, 100)
"""Tried in this order: a pattern gets the lowest weight with which it decides."""
MOST_EXAMPLES = 3
LONGEST_EXAMPLE = 300
FEWEST_LETTERS = 8
"""A line with fewer letters outside its gaps is too short to identify an error."""
LAST_LINES = 20
"""Lines at the end of a log that are compared where no line reports a problem."""
LONGEST_LINE = 240
"""The most characters of a line, with its gaps, in a draft."""

RETRIES: Mapping[Cause, RetryNeed] = {
    Cause.NODE: RetryNeed.ELSEWHERE,
    Cause.NETWORK: RetryNeed.SAME,
    Cause.SCHEDULER: RetryNeed.SAME,
    Cause.MEMORY: RetryNeed.CHANGED,
    Cause.DISK: RetryNeed.ELSEWHERE,
    Cause.TIME: RetryNeed.CHANGED,
    Cause.TRANSFER: RetryNeed.SAME,
    Cause.PREEMPTED: RetryNeed.SAME,
}
"""What another try needs unless the person states it; for other causes it is `no`."""


@dataclass(frozen=True, slots=True)
class TaughtPattern:
    """One pattern, and who taught it from what. Times are milliseconds since 1970."""

    name: str
    expression: str
    cause: Cause
    retry: RetryNeed
    weight: int
    fingerprint: str
    """The fingerprint, at that time, of the error that it was taught from."""
    title: str
    examples: tuple[str, ...]
    """Lines that it matches."""
    by: str
    at: int
    why: str = ""

    def pattern(self) -> FailurePattern:
        """The pattern in the classifier's form."""
        return FailurePattern(
            self.name,
            self.cause,
            self.retry,
            CONFIDENCE,
            self.weight,
            PatternConditions(lines=(Search(self.expression),)),
            f"Taught at this site: {self.why.rstrip('.')}." if self.why else "Taught at this site.",
            pack=PACK,
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "expression": self.expression,
            "cause": self.cause.value,
            "retry": self.retry.value,
            "weight": self.weight,
            "fingerprint": self.fingerprint,
            "title": self.title,
            "examples": list(self.examples),
            "by": self.by,
            "at": self.at,
            "why": self.why,
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> TaughtPattern:
        return cls(
            name=plain["name"],
            expression=plain["expression"],
            cause=Cause(plain["cause"]),
            retry=RetryNeed(plain["retry"]),
            weight=plain["weight"],
            fingerprint=plain["fingerprint"],
            title=plain["title"],
            examples=tuple(plain["examples"]),
            by=plain["by"],
            at=plain["at"],
            why=plain["why"],
        )


class CorrectedCause(NamedTuple):
    """A person's correction of the cause of one failure: no pattern may contradict it."""

    incident: str
    cause: Cause
    by: str
    at: int


@dataclass(frozen=True, slots=True)
class TaughtPack:
    """All taught patterns of a tenant, and the corrections of single failures. Every change makes the next version."""

    version: int = 0
    patterns: tuple[TaughtPattern, ...] = ()
    corrected: tuple[CorrectedCause, ...] = ()
    """The newest first."""

    def get(self, name: str) -> TaughtPattern | None:
        return next((pattern for pattern in self.patterns if pattern.name == name), None)

    def with_pattern(self, pattern: TaughtPattern, *, instead_of: Iterable[str] = ()) -> TaughtPack:
        """The pack with another pattern, or with a new one of the same name; the patterns that it replaces are removed."""
        gone = {pattern.name, *instead_of}
        kept = tuple(known for known in self.patterns if known.name not in gone)
        return replace(self, version=self.version + 1, patterns=(*kept, pattern))

    def without(self, name: str) -> TaughtPack:
        kept = tuple(pattern for pattern in self.patterns if pattern.name != name)
        return replace(self, version=self.version + 1, patterns=kept)

    def with_correction(self, correction: CorrectedCause) -> TaughtPack:
        """The pack with another correction; only the newest are kept."""
        others = (known for known in self.corrected if known.incident != correction.incident)
        return replace(self, version=self.version + 1, corrected=(correction, *others)[:MOST_CORRECTED])

    def to_dict(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "patterns": [pattern.to_dict() for pattern in self.patterns],
            "corrected": [[*correction] for correction in self.corrected],
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> TaughtPack:
        return cls(
            plain["version"],
            tuple(TaughtPattern.from_dict(pattern) for pattern in plain["patterns"]),
            tuple(CorrectedCause(incident, Cause(cause), by, at) for incident, cause, by, at in plain["corrected"]),
        )


def is_taught(pattern: str) -> bool:
    """Whether a pattern's name says that a person taught it."""
    return pattern.startswith(f"{PACK}-")


def taught_pattern(
    fingerprint: str,
    title: str,
    expression: str,
    cause: Cause,
    retry: RetryNeed | None,
    examples: Sequence[str],
    *,
    by: str,
    at: int,
    why: str = "",
) -> TaughtPattern:
    """A pattern for an error; the same error gets the same name, so that teaching it again replaces it."""
    shown = dict.fromkeys(example.strip()[:LONGEST_EXAMPLE] for example in examples)
    return TaughtPattern(
        name=f"{PACK}-{fingerprint}",
        expression=expression,
        cause=cause,
        retry=retry or RETRIES.get(cause, RetryNeed.NO),
        weight=WEIGHTS[0],
        fingerprint=fingerprint,
        title=title,
        examples=tuple(shown)[:MOST_EXAMPLES],
        by=by,
        at=at,
        why=why,
    )


_GAP = re.compile(r"<path>/([\w.+-]+)|<(?:n|id|name|path|host|time|size|hex|url)>")
_SPECIAL = re.compile(r"([\\.+*?()|\[\]{}^$])")
_WAYS = ((" ", r"\S+"), (r"\s+", r"\S+"), (r"\s+", ".+"))
"""How a space and a gap are written, the simplest first."""


def drafted(lines: Sequence[str]) -> str:
    """An expression that matches the deciding lines of an error: what varies between failures of one kind is a gap. Empty: they have too little in common."""
    first = next((line for line in lines if line.strip()), "")
    expression = ""
    for space, gap in _WAYS:
        expression = _expression(normalised_line(first)[:LONGEST_LINE], space, gap)
        if not expression or problem_of(expression):
            return ""
        if all(matches(expression, line) for line in lines):
            break
    return expression


def matches(expression: str, line: str) -> bool:
    return compiled(expression).search(line.encode("utf-8", "replace")) is not None


def _expression(line: str, space: str, gap: str) -> str:
    parts: list[str] = []
    letters = end = 0
    for match in _GAP.finditer(line):
        # The name of a source file stays, wherever it is installed and whatever the line number is.
        kept = rf"\S*{_escaped(match[1], space)}(?::\d+)*" if match[1] else gap
        parts += [_escaped(line[end : match.start()], space), kept]
        letters += _letters(line[end : match.start()]) + _letters(match[1] or "")
        end = match.end()
    parts.append(_escaped(line[end:], space))
    letters += _letters(line[end:])
    if letters < FEWEST_LETTERS:
        return ""
    while parts[0] in ("", gap, space):
        parts.pop(0)
    while parts[-1] in ("", gap, space):
        parts.pop()
    text = "".join(parts).removeprefix(space).removesuffix(space)
    return f"(?i){text}" if len(text) <= LONGEST - len("(?i)") else ""


def _escaped(text: str, space: str) -> str:
    return space.join(_SPECIAL.sub(r"\\\1", part) for part in re.split(r"\s+", text))


def _letters(text: str) -> int:
    return sum(map(str.isalpha, text))


def last_shared_line(members: Sequence[PreparedEvidence]) -> str:
    """The last line of the newest failure's log that all of them have, but for what varies; empty: none is specific enough."""
    ends = [[line for line in seen.lines[: seen.log_lines][-LAST_LINES:] if line.strip()] for seen in members]
    shared = [{normalised_line(line).lower() for line in end} for end in ends]
    for line in reversed(ends[0] if ends else ()):
        masked = normalised_line(line).lower()
        if all(masked in some for some in shared) and _expression(masked, " ", r"\S+"):
            return line
    return ""


def telling_line(deciding: str, evidence: PreparedEvidence) -> str:
    """The line of the evidence that was the fingerprint's deciding line; empty: it was not a line, but an exit code or a message of the batch system."""
    wanted = deciding.strip()
    for place in range(len(evidence.lines) - 1, -1, -1):
        line = evidence.lines[place].strip()
        if line and (line == wanted or redacted(line) == wanted or (" " in line and wanted.endswith(f": {line}"))):
            return line
    return ""
