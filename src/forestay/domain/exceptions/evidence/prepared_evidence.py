"""Evidence made ready for many patterns: its lines, and what kind of line each is.

Whether a line tells of trouble, only warns or only quotes. Quoted lines are the source beside a frame of a traceback, the script that an engine ran,
directives of a job script, a shell's trace. Their words were not said by anything that failed: a program that has ``raise TimeoutError("…")`` in its
source did not run out of time because a traceback shows that line. The functions about kinds take lines in lower case.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from forestay.domain.exceptions.evidence.evidence import Evidence, plain_word, shortened
from forestay.domain.exceptions.evidence.linear_regex import compiled

MOST_PLACES = 32


@dataclass(frozen=True, slots=True)
class Search:
    """A regular expression that a line must match somewhere; one with `^` also behind what loggers put before a line."""

    expression: str
    without: str = ""
    """A line that this matches does not count; empty: every line counts."""

    def finds(self, line: str, lowered: str) -> bool:
        return _finds(self.expression, line, lowered) and not (self.without and _finds(self.without, line, lowered))


def is_anchored(expression: str) -> bool:
    """Whether an expression wants the beginning of a line."""
    return "^" in expression


def _finds(expression: str, line: str, lowered: str) -> bool:
    regex = compiled(expression)
    if regex.search(line.encode("utf-8", "replace")) is not None:
        return True
    begins = behind_prefix(lowered) if is_anchored(expression) else 0
    return begins > 0 and regex.search(line[begins:].encode("utf-8", "replace")) is not None


class PreparedEvidence:
    """One record of evidence, as patterns look at it."""

    __slots__ = (
        "evidence",
        "exit_codes",
        "lines",
        "log_lines",
        "lowered",
        "matched",
        "measures",
        "quoted",
        "signals",
        "state",
        "words",
    )

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.log_lines = len(evidence.log_tail)
        # A reason or a transfer's result in a sentence is read like a line of the log: it often quotes one.
        texts = [text for text in (evidence.transfer, evidence.scheduler_reason) if " " in text]
        self.lines: tuple[str, ...] = (*evidence.log_tail, *(shortened(text.replace("\n", " ")) for text in texts))
        self.lowered = [line.lower() for line in self.lines]
        self.quoted = quoted_lines(self.lowered)
        """Lines that quote a script or a program, as bits: what stands there was not said by anything that failed."""
        self.matched: Mapping[str, int] | None = None
        """The lines that each expression of an index matches, as bits, once the index has looked."""
        self.state = plain_word(evidence.scheduler_state)
        self.words = evidence.scheduler_words
        self.signals = evidence.signals
        self.exit_codes = evidence.exit_codes
        self.measures = evidence.measures

    def places(self, search: Search, most: int = MOST_PLACES, *, among: int = -1) -> list[int]:
        """The lines that an expression matches, of all or among some, which are given as bits."""
        if self.matched is None:
            every = range(len(self.lines))
            left = sum(1 << place for place in every if search.finds(self.lines[place], self.lowered[place]))
        else:
            left = self.matched.get(search.expression, 0) & ~self.matched.get(search.without, 0)
        left &= among
        places: list[int] = []
        while left and len(places) < most:
            lowest = left & -left
            left ^= lowest
            places.append(lowest.bit_length() - 1)
        return places


_PREFIX = re.compile(
    r"(?:\s*(?:"
    r"\[?\d{4}[-/]\d\d[-/]\d\d[t ,]{0,2}(?:\d\d:\d\d(?::\d\d)?(?:[.,]\d{1,9})?)?(?:z|[+-]\d\d:?\d\d)?\]?"
    r"|\[?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]?"
    r"|(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[- ]{1,2}\d{1,2} \d\d:\d\d:\d\d(?:\.\d{1,9})?(?: \S{1,60} \S{1,40}\[\d{1,7}\]:)?"
    r"|\[?(?:info|error|warn|warning|debug|severe|fatal|critical|notice|stderr|stdout)\]?(?=[\s:|-]):?"
    r"|(?:npm|gyp) err!(?: stack)?"
    r"|\[\d{1,6}(?:,\d{1,6})?\](?:<std\w{3}>)?:?"
    r"|\[?rank ?\d{1,6}\]?:|\([\w.]{1,40} pid=\d{1,8}[^)]{0,60}\)"
    r"|[\w.]{1,40}::[\w.:+]{0,60}(?=\s)|\{[\w.]{1,60}:\d{1,6}\}|\[[\w .-]{1,40}\]|\d{1,6}:(?=\s)|[\u2502|>-]"
    r")(?:\s*[|:-])?\s*){1,8}"
)


@lru_cache(maxsize=1024)
def behind_prefix(lowered: str) -> int:
    """Where a line in lower case really begins; 0 if nothing stands before it. Kept, since several expressions ask for the same line."""
    match = _PREFIX.match(lowered)
    return match.end() if match is not None and match.end() < len(lowered) else 0


_WARNS = re.compile(
    # An event of Kubernetes is called a warning also when it is the end of a pod; its reason stands in a column of its own.
    r"\bwarn(?:ing|ings)?\b(?!\s{2,}[a-z]{4,40}\s)|\w(?:user|runtime|deprecation|future|settingwithcopy|resource)?warning: |\bdeprecat|^\[w\]"
    r"|\bre-?trying\b|\bwill (?:be )?retr|\bretry(?:ing)? (?:in|after|#?[0-9])|\bretry\(|\bretries left\b|\battempt [0-9]+ (?:of|/)"
    r"|\bignor(?:ed|ing)\b|\bnon-?fatal\b|\bskipping\b|\busing (?:builtin|default|fallback)s?\b|\bfall(?:ing|s)? ?back\b"
    r"|\b(?:0|no|without|zero) (?:errors?|failures?|problems?)\b|\berrors?: ?0\b|\bmight be corrupted:|\bsucceeded\b|\brecovered\b"
    r"|\berrors? (?:rate|correct|model|bars?|estimat|toleranc|threshold)|\bif (?:the|this) (?:problem|error|issue) persists"
)
_LEVEL = re.compile(r"^.{0,60}?(?:\b(?:info|debug|trace|notice|verbose)\b|\[[imd]\]|\[m::)")
_TROUBLE = re.compile(
    r"error|exception|traceback|fail|fatal|abort|kill|cannot|can't|could not|unable|denied|no such|not found|terminat|panic|core dump|refused|invalid|exceed|exit|signal|^\s+at |^\s*file \"|^\s*caused by"
)


def warns(line: str) -> bool:
    """Whether it only warns, says that something is tried again, or counts errors that were none."""
    return _WARNS.search(line) is not None


def tells_trouble(line: str) -> bool:
    """Whether its words are those of something that went wrong."""
    return _TROUBLE.search(line) is not None


def only_informs(line: str) -> bool:
    """Whether its own level says that nothing is wrong, and none of its words disagrees."""
    return _LEVEL.search(line) is not None and not tells_trouble(line)


_FRAME = re.compile(r"^\s*(?:e {1,4})?file \"[^\"]{1,400}\", line \d")
_SCRIPT_BEGINS = re.compile(r"^\s*command executed\b.{0,40}:\s*$")
_SCRIPT_ENDS = re.compile(r"^\s*(?:command (?:exit status|output|error|wrapper)|work dir)\b")
_DIRECTIVE = re.compile(r"^\s*#\s?(?:sbatch|pbs|bsub|flux:|cobalt|oar)\b|^\s*#\$ -")
_TRACE = re.compile(r"^\+{1,4} (?!exit\b)\S")
_CARETS = re.compile(r"^\s*[\^~]+\s*$")
_SOURCE = re.compile(
    r"^(?:e {1,4}|>\s?)?\s{2,}(?!file \"|traceback|\w[\w.]{0,80}(?:error|exception|warning|interrupt|exit)\b)\S"
)


def quoted_lines(lowered: Sequence[str]) -> int:
    """Which lines quote, as bits. Takes lines in lower case."""
    count = 0
    in_script = behind_frame = False
    for place, line in enumerate(lowered):
        # One line of source stands behind a frame; the exception itself is not indented so.
        quotes = in_script or (behind_frame and _SOURCE.match(line) is not None)
        behind_frame = 'file "' in line and _FRAME.match(line) is not None
        if "command" in line or "work dir" in line:
            if _SCRIPT_BEGINS.match(line):
                in_script = True
            elif _SCRIPT_ENDS.match(line):
                in_script = quotes = False
        if line.startswith(("+", "#", " ", "\t")):
            quotes = quotes or any(pattern.match(line) for pattern in (_TRACE, _DIRECTIVE, _CARETS))
        if quotes:
            count |= 1 << place
    return count
