"""What was seen of an attempt that did not end well, as one bounded record.

It joins three tellers: the pilot (exit code, signal, measures, log), the batch system (its state and reason) and the transfer. Each field may be
missing, and often is. Nothing here decides anything; ``classify`` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from forestay.domain.exceptions.evidence.redaction import redacted, redacted_lines
from forestay.domain.jobs.job_document import AttemptResult, JobDocument
from forestay.domain.jobs.lifecycle import Event

MOST_LINES = 400
MOST_CHARACTERS = 64 * 1024
LONGEST_LINE = 2_000
LONGEST_WORD = 4_000
"""Of a state, a reason, a transfer's result."""

_LOST = "lost"
_HEAD, _TAIL = 1_400, 590
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;:?]{0,32}[A-Za-z]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[()][A-Z0-9])")
_BREAKS = re.compile(r"\r\n|[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_PLAIN = re.compile(r"[^A-Z0-9]")
_TOKEN = re.compile(r"[A-Za-z][A-Za-z0-9_]{2,}")


class AttemptStage(StrEnum):
    """How far the attempt was."""

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
    """What the transfer said when it failed."""
    stage: AttemptStage | None = None
    more: Mapping[str, object] = field(default_factory=dict)
    """What else was told; kept, and not looked into."""

    @property
    def lost(self) -> bool:
        """Whether nothing of the attempt came back: the job was lost with its pilots."""
        return self.more.get("reason") == _LOST

    @property
    def signals(self) -> frozenset[int]:
        """The signal it died of; a shell tells it as 128 and more."""
        signals = {self.signal} if self.signal else set()
        if self.exit_code is not None and 128 < self.exit_code <= 128 + 64:
            signals.add(self.exit_code - 128)
        return frozenset(signals)

    @property
    def exit_codes(self) -> frozenset[int]:
        """Its exit code; after a signal also the one that a shell would have shown."""
        codes = {self.exit_code} if self.exit_code is not None else set()
        if self.signal:
            codes.add(128 + self.signal)
        return frozenset(codes)

    @property
    def scheduler_words(self) -> frozenset[str]:
        """The state, and each word of the reason, without run and separators: what a scheduler calls a reason stands now in the one, now in the other."""
        words = {plain_word(word) for word in _TOKEN.findall(self.scheduler_reason)}
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
    """A state or reason without run and separators: ``OUT_OF_MEMORY`` and ``OutOfMemory`` are one."""
    return _PLAIN.sub("", text.upper())


def bounded_lines(log: str | Iterable[str]) -> tuple[str, ...]:
    """The last lines of a log, without colour and cursor codes, bounded in number, in length each and in all."""
    text = log if isinstance(log, str) else "\n".join(log)
    if len(text) > 4 * MOST_CHARACTERS:
        text = text[-4 * MOST_CHARACTERS :]
    text = _ESCAPES.sub("", text).replace("\x00", "")
    lines = [shortened(part.rstrip()) for part in _BREAKS.split(text)]
    while lines and not lines[-1]:
        lines.pop()
    kept: list[str] = []
    left = MOST_CHARACTERS
    for line in reversed(lines[-MOST_LINES:]):
        left -= len(line) + 1
        if left < 0:
            break
        kept.append(line)
    return tuple(reversed(kept))


def shortened(line: str) -> str:
    """A line's beginning and end: what went wrong stands at the one or the other."""
    return line if len(line) <= LONGEST_LINE else f"{line[:_HEAD]} … {line[-_TAIL:]}"


_STAGES = {
    "data-missing": AttemptStage.STAGING_IN,
    "transfer": AttemptStage.STAGING_IN,
    "data-corrupt": AttemptStage.STAGING_IN,
    "output-missing": AttemptStage.STAGING_OUT,
    "output-failed": AttemptStage.STAGING_OUT,
}
"""How far an attempt was whose pilot does not say it, by the reason of its end; others were executing."""


def evidence_of(document: JobDocument, log_tail: str) -> Evidence:
    """The evidence of a faulted job's last attempt, with nothing in it that nobody may read."""
    last = document.last
    if last is None or _lost(document):
        return Evidence(more={"reason": _LOST, "releases": document.releases})
    needs = document.resources
    return Evidence(
        exit_code=last.exit_code,
        signal=last.signal,
        log_tail=redacted_lines(bounded_lines(log_tail)),
        peak_memory=last.peak_memory,
        memory_limit=needs.memory or None,
        oom_kills=last.oom_kills,
        disk_left=last.disk_left,
        wall_time=last.wall,
        time_limit=needs.wall,
        node=last.host,
        stage=_stage(last),
        more={"reason": last.reason, **_told(last)},
    )


def _lost(document: JobDocument) -> bool:
    """Whether it is faulted since it was lost too often; what an earlier attempt ended with says nothing of that."""
    return bool(document.history) and document.history[-1].event == Event.QUARANTINE


def lost_with(document: JobDocument) -> tuple[str, ...]:
    """The pilots that held it, the newest first, as far as its story goes back."""
    held = (transition.by for transition in reversed(document.history) if transition.event == Event.CLAIM)
    return tuple(dict.fromkeys(held))


def with_batch_word(
    evidence: Evidence, *, word: str, reason: str, nodes: Sequence[str], pilot: str, batch_job: str
) -> Evidence:
    """The evidence, with what a batch system said of the batch job that the attempt's pilot lived in."""
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


def _told(ending: AttemptResult) -> dict[str, object]:
    fields = {"error": ending.error, "file": redacted(ending.file) if ending.file else None}
    return {name: value for name, value in fields.items() if value}
