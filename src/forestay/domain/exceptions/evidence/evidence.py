"""The evidence of a failed attempt, as one bounded record.

It joins three sources: the pilot (exit code, signal, measures, log), the batch system (its state and reason) and the transfer. Each field may be
missing, and often is. `PreparedEvidence` is derived from it for the patterns. Nothing is decided here; ``classify`` does that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache

from forestay.domain.exceptions.evidence.linear_regex import compiled
from forestay.domain.exceptions.evidence.rank_log import log_of_failure
from forestay.domain.exceptions.evidence.redaction import redacted, redacted_lines
from forestay.domain.jobs.job_document import AttemptResult, JobDocument
from forestay.domain.jobs.lifecycle import Event

MOST_LINES = 400
MOST_CHARACTERS = 64 * 1024
LONGEST_LINE = 2_000
LONGEST_WORD = 4_000
"""Characters of a state, a reason, a transfer's result."""

_LOST = "lost"
_HEAD, _TAIL = 1_400, 590
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;:?]{0,32}[A-Za-z]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[()][A-Z0-9])")
_PLAIN = re.compile(r"[^A-Z0-9]")
_TOKEN = re.compile(r"[A-Za-z][A-Za-z0-9_]{2,}")
_NAME = re.compile(r"_|[A-Z].*[A-Z]")


class AttemptStage(StrEnum):
    """The stage that the attempt had reached."""

    STAGING_IN = "staging-in"
    EXECUTING = "executing"
    STAGING_OUT = "staging-out"
    CLEANUP = "cleanup"


class Scheduler(StrEnum):
    """The batch system that ran it."""

    SLURM = "slurm"
    HTCONDOR = "htcondor"
    PBS = "pbs"
    LSF = "lsf"
    KUBERNETES = "kubernetes"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One record. Sizes are bytes, times are seconds."""

    exit_code: int | None = None
    signal: int | None = None
    scheduler: Scheduler = Scheduler.NONE
    scheduler_state: str = ""
    scheduler_reason: str = ""
    hold_code: int | None = None
    """HTCondor's hold code, with its subcode."""
    hold_subcode: int | None = None
    log_tail: tuple[str, ...] = ()
    """The last lines, made by `bounded_lines`."""
    peak_memory: int | None = None
    memory_limit: int | None = None
    oom_kills: int | None = None
    disk_left: int | None = None
    wall_time: float | None = None
    time_limit: float | None = None
    node: str = ""
    transfer: str = ""
    """The error of the failed transfer."""
    stage: AttemptStage | None = None
    more: Mapping[str, object] = field(default_factory=dict)
    """Other reported fields; kept, but not interpreted."""

    @property
    def lost(self) -> bool:
        """Whether no result of the attempt arrived: the job was lost with its pilots."""
        return self.more.get("reason") == _LOST

    @property
    def signals(self) -> frozenset[int]:
        """The signals that it may have died of; a shell reports a signal as 128 plus its number."""
        signals = {self.signal} if self.signal else set()
        if self.exit_code is not None and 128 < self.exit_code <= 128 + 64:
            signals.add(self.exit_code - 128)
        return frozenset(signals)

    @property
    def exit_codes(self) -> frozenset[int]:
        """Its exit code; after a signal also the one that a shell would have reported."""
        codes = {self.exit_code} if self.exit_code is not None else set()
        if self.signal:
            codes.add(128 + self.signal)
        return frozenset(codes)

    @property
    def scheduler_words(self) -> frozenset[str]:
        """The state, and each word of the reason, without case and separators: schedulers put the reason sometimes in the one, sometimes in the other.

        Of a sentence only its first word and names such as ``OutOfMemory`` count: the timeout in "image pull timeout" is not a state.
        """
        reason = self.scheduler_reason.strip()
        tokens = _TOKEN.findall(reason)
        if " " in reason:
            tokens = [
                token for token in tokens if _NAME.search(token) or (token[0].isupper() and reason.startswith(token))
            ]
        words = {plain_word(token) for token in tokens}
        return frozenset(words | {plain_word(self.scheduler_state)}) - {""}

    @property
    def measures(self) -> dict[str, float]:
        """The numbers that a pattern may compare; only those that are known."""
        measures: dict[str, float | None] = {
            "peak_memory": self.peak_memory,
            "memory_limit": self.memory_limit,
            "oom_kills": self.oom_kills,
            "disk_left": self.disk_left,
            "wall_time": self.wall_time,
            "time_limit": self.time_limit,
            "time_left": _left(self.wall_time, self.time_limit),
            "peak_memory_of_limit": _share(self.peak_memory, self.memory_limit),
            "wall_time_of_limit": _share(self.wall_time, self.time_limit),
        }
        return {name: float(value) for name, value in measures.items() if value is not None}


MEASURES = (
    "peak_memory", "memory_limit", "oom_kills", "disk_left", "wall_time", "time_limit", "time_left", "peak_memory_of_limit", "wall_time_of_limit",
)  # fmt: skip


def _left(part: float | None, whole: float | None) -> float | None:
    return max(0.0, whole - part) if part is not None and whole else None


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def plain_word(text: str) -> str:
    """A state or reason without case and separators: ``OUT_OF_MEMORY`` and ``OutOfMemory`` become equal."""
    return _PLAIN.sub("", text.upper())


def bounded_lines(log: str | Iterable[str]) -> tuple[str, ...]:
    """The last lines of a log, without colour and cursor codes, bounded in number, in length each and in all."""
    text = log if isinstance(log, str) else "\n".join(log)
    if len(text) > 4 * MOST_CHARACTERS:
        text = text[-4 * MOST_CHARACTERS :]
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    # Not only at line feeds: a progress bar returns to the beginning of its line.
    lines = text.replace("\x00", "").splitlines()
    while lines and not lines[-1].rstrip():
        lines.pop()
    tail = [line.rstrip() for line in lines[-MOST_LINES:]]
    if len(text) < MOST_CHARACTERS and max(map(len, tail), default=0) <= LONGEST_LINE:
        return tuple(tail)
    kept: list[str] = []
    left = MOST_CHARACTERS
    for part in reversed(tail):
        line = shortened(part)
        left -= len(line) + 1
        if left < 0:
            break
        kept.append(line)
    return tuple(reversed(kept))


def shortened(line: str) -> str:
    """A line's beginning and end: one of them describes the error."""
    return line if len(line) <= LONGEST_LINE else f"{line[:_HEAD]} … {line[-_TAIL:]}"


_STAGES = {
    "data-missing": AttemptStage.STAGING_IN,
    "transfer": AttemptStage.STAGING_IN,
    "data-corrupt": AttemptStage.STAGING_IN,
    "image-failed": AttemptStage.STAGING_IN,
    "secret-failed": AttemptStage.STAGING_IN,
    "output-missing": AttemptStage.STAGING_OUT,
    "output-failed": AttemptStage.STAGING_OUT,
}
"""The stage of an attempt whose pilot does not report it, by the reason of its end; others were executing."""


def evidence_of(document: JobDocument, log_tail: str) -> Evidence:
    """The evidence of a faulted job's last attempt, with secrets redacted."""
    last = document.last
    if last is None or _lost(document):
        return Evidence(more={"reason": _LOST, "releases": document.releases})
    needs = document.resources
    return Evidence(
        exit_code=last.exit_code,
        signal=last.signal,
        log_tail=redacted_lines(bounded_lines(log_of_failure(log_tail, last.ranks))),
        peak_memory=last.peak_memory,
        memory_limit=needs.memory or None,
        oom_kills=last.oom_kills,
        disk_left=last.disk_left,
        wall_time=last.wall,
        time_limit=needs.wall,
        node=_host_of_failure(last),
        stage=_stage(last),
        more={"reason": last.reason, **_told(last)},
    )


def _lost(document: JobDocument) -> bool:
    """Whether it is faulted because it was lost too often; the result of an earlier attempt says nothing about that."""
    return bool(document.history) and document.history[-1].event == Event.QUARANTINE


def lost_with(document: JobDocument) -> tuple[str, ...]:
    """The pilots that held it, the newest first, as far back as its story goes."""
    held = (transition.by for transition in reversed(document.history) if transition.event == Event.CLAIM)
    return tuple(dict.fromkeys(held))


def with_batch_word(
    evidence: Evidence, *, word: str, reason: str, nodes: Sequence[str], pilot: str, batch_job: str
) -> Evidence:
    """The evidence with the batch system's state of the batch job in which the attempt's pilot ran."""
    return replace(
        evidence,
        scheduler_state=word[:LONGEST_WORD],
        scheduler_reason=redacted(reason[:LONGEST_WORD]),
        node=evidence.node or ",".join(nodes[:8]),
        more={**evidence.more, "pilot": pilot, "batch_job": batch_job},
    )


def cleanup_evidence(document: JobDocument, error: str, words: str) -> Evidence:
    """The evidence that the working folder of a job's last attempt could not be cleared."""
    before = evidence_of(document, "")
    line = redacted_lines(bounded_lines(words))
    return replace(before, stage=AttemptStage.CLEANUP, log_tail=line, more={"reason": "cleanup", "error": error})


def _stage(ending: AttemptResult) -> AttemptStage:
    try:
        return AttemptStage(ending.stage or "")
    except ValueError:
        return _STAGES.get(ending.reason, AttemptStage.EXECUTING)


def _host_of_failure(ending: AttemptResult) -> str:
    """The host of the rank that failed first; for a job of one node, and where no rank failed by itself, that of the pilot."""
    first = ending.ranks[0] if ending.ranks else None
    return first.host if first is not None and not first.stopped_for else ending.host


def _told(ending: AttemptResult) -> dict[str, object]:
    fields = {
        "error": ending.error,
        "file": redacted(ending.file) if ending.file else None,
        "ranks": [str(rank) for rank in ending.ranks],
    }
    return {name: value for name, value in fields.items() if value}


MOST_PLACES = 32


@dataclass(frozen=True, slots=True)
class Search:
    """A regular expression that a line must match somewhere; one with `^` also matches after a logger's prefix."""

    expression: str
    without: str = ""
    """Lines that this matches do not count; empty: all lines count."""

    def finds(self, line: str, lowered: str) -> bool:
        return _finds(self.expression, line, lowered) and not (self.without and _finds(self.without, line, lowered))


def is_anchored(expression: str) -> bool:
    """Whether an expression is anchored at the beginning of a line."""
    return "^" in expression


def _finds(expression: str, line: str, lowered: str) -> bool:
    regex = compiled(expression)
    if regex.search(line.encode("utf-8", "replace")) is not None:
        return True
    begins = behind_prefix(lowered) if is_anchored(expression) else 0
    return begins > 0 and regex.search(line[begins:].encode("utf-8", "replace")) is not None


class PreparedEvidence:
    """A record of evidence in the form that patterns are matched against."""

    __slots__ = (
        "evidence",
        "exit_codes",
        "last",
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

    def __init__(self, evidence: Evidence, last: PreparedEvidence | None = None) -> None:
        self.evidence = evidence
        self.last = last
        """The same with the last lines of the log only, where an index has looked already."""
        self.log_lines = len(evidence.log_tail)
        # A sentence as a reason or a transfer's result is read like a line of the log: it often quotes one.
        texts = [text for text in (evidence.transfer, evidence.scheduler_reason) if " " in text]
        self.lines: tuple[str, ...] = (*evidence.log_tail, *(shortened(text.replace("\n", " ")) for text in texts))
        self.lowered = [line.lower() for line in self.lines]
        self.quoted = quoted_lines(self.lowered)
        """Lines that quote a script or a program, as bits: nothing that failed printed these words."""
        self.matched: Mapping[str, int] | None = None
        """The lines that each expression of an index matches, as bits, once the index has been searched."""
        self.state = plain_word(evidence.scheduler_state)
        self.words = evidence.scheduler_words
        self.signals = evidence.signals
        self.exit_codes = evidence.exit_codes
        self.measures = evidence.measures

    def places(self, search: Search, most: int = MOST_PLACES, *, among: int = -1) -> list[int]:
        """The lines that an expression matches, among all lines or among those given as bits."""
        if self.matched is None:
            every = range(len(self.lines))
            left = sum(1 << place for place in every if search.finds(self.lines[place], self.lowered[place]))
        else:
            left = self.matched.get(search.expression, 0)
            if left and search.without:
                left &= ~self.matched.get(search.without, 0)
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
    """Where a line in lower case begins after its prefix; 0 if it has none. Cached, since several expressions need it for the same line."""
    match = _PREFIX.match(lowered)
    return match.end() if match is not None and match.end() < len(lowered) else 0


_WARNS = re.compile(
    # Kubernetes calls an event a warning even when it is the end of a pod; its reason is in a column of its own.
    r"\bwarn(?:ing|ings)?\b(?!\s{2,}[a-z]{4,40}\s)|\w(?:user|runtime|deprecation|future|settingwithcopy|resource)?warning: |\bdeprecat|^\[w\]"
    r"|\bre-?trying\b|\bwill (?:be )?retr|\bretry(?:ing)? (?:in|after|#?[0-9])|\bretry\(|\bretries left\b|\battempt [0-9]+ (?:of|/)"
    r"|\bignor(?:ed|ing)\b|\bnon-?fatal\b|\bskipping\b|\busing (?:builtin|default|fallback)s?\b|\bfall(?:ing|s)? ?back\b"
    r"|\b(?:0|no|without|zero) (?:errors?|failures?|problems?)\b|\berrors?: ?0\b|\bmight be corrupted:|\bsucceeded\b|\brecovered\b"
    r"|\berrors? (?:rate|correct|model|bars?|estimat|toleranc|threshold)|\bif (?:the|this) (?:problem|error|issue) persists"
)
_WARNING_WORDS = (
    "warn", "deprecat", "[w]", "try", "retr", "attempt", "ignor", "fatal", "skipping", "using ", "fall", "error", "failure", "problem", "corrupted",
    "succeeded", "recovered", "persists",
)  # fmt: skip
"""Each alternative of `_WARNS` needs one of these texts. Searching for them takes a tenth of its time, and most lines have none."""
_LEVEL = re.compile(r".{0,60}?(?:\b(?:info|debug|trace|notice|verbose)\b|\[[imd]\]|\[m::)")
_LEVEL_WORDS = ("info", "debug", "trace", "notice", "verbose", "[i]", "[m]", "[d]", "[m::")
"""`_LEVEL` needs one of these texts."""
_INFORMATION = re.compile(
    r"[\d\s\[\](){}<>:/.,tz|+-]{0,60}(?:info|debug|trace|notice|verbose)\b(?!\s*=)|[id]\d{4} \d\d:\d\d:\d\d"
)
_TROUBLE = (
    "error", "exception", "traceback", "fail", "fatal", "abort", "kill", "cannot", "can't", "could not", "unable", "denied", "no such", "not found", "terminat",
    "panic", "core dump", "refused", "invalid", "exceed", "exit", "signal",
)  # fmt: skip
_TROUBLE_BEGINS = re.compile(r"[\t\n\f\r ]+at |[\t\n\f\r ]*(?:file \"|caused by)")


@lru_cache(maxsize=1024)
def warns(line: str) -> bool:
    """Whether it only warns, reports a retry, or counts zero errors. Cached, since several patterns need it for the same line."""
    # A loop, since a generator takes twice as long, and every line of a log is checked.
    for word in _WARNING_WORDS:
        if word in line:
            return _WARNS.search(line) is not None
    return False


def tells_trouble(line: str) -> bool:
    """Whether its words indicate a problem."""
    for word in _TROUBLE:
        if word in line:
            return True
    return _TROUBLE_BEGINS.match(line) is not None


def is_information(line: str) -> bool:
    """Whether it begins with a level at which nothing is wrong, whatever its words."""
    return _INFORMATION.match(line) is not None


def only_informs(line: str) -> bool:
    """Whether its own level says that nothing is wrong, and none of its words disagrees."""
    for word in _LEVEL_WORDS:
        if word in line:
            return _LEVEL.match(line) is not None and not tells_trouble(line)
    return False


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
    """The lines that quote source, a script or a shell's trace, as bits: nothing that failed printed these words. Takes lines in lower case."""
    count = 0
    in_script = behind_frame = False
    for place, line in enumerate(lowered):
        # One line of source follows a frame; the exception itself is not indented like that.
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
