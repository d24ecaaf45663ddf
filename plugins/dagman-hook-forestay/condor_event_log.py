"""Reads from the event log of HTCondor jobs why a job failed. Standard library only, Python 3.9: it runs on access points."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

_HEAD = re.compile(r"^(\d{3}) \((\d+)\.(\d+)\.(\d+)\) (\S+ [0-9:.]+(?:[-+]\d{2}:?\d{2}|Z)?) ?(.*)$")
_RESOURCE = re.compile(r"^\s*(Cpus|Memory \(MB\)|Disk \(KB\))\s*:\s*([\d.]*)\s+([\d.]+)\s+([\d.]+)")
_RETURN = re.compile(r"\(1\) Normal termination \(return value (-?\d+)\)")
_SIGNAL = re.compile(r"\(0\) Abnormal termination \(signal (\d+)\)")
_CODE = re.compile(r"Code (\d+) Subcode (-?\d+)")
_MEMORY = re.compile(r"^\s*(\d+)\s+-\s+MemoryUsage of job \(MB\)")
_SLOT = re.compile(r"^\s*SlotName: (?:[^@\s]*@)?(\S+)")
MOST = 64 << 20
"""The most bytes at the end of a log that are read."""
LINES = 60
KIB, MIB = 1 << 10, 1 << 20

SUBMITTED, EXECUTING, EVICTED, TERMINATED, SIZE, SHADOW = 0, 1, 4, 5, 6, 7
ABORTED, HELD, DISCONNECTED, RECONNECT_FAILED = 9, 12, 22, 24
WORDS = {
    EVICTED: "evicted", SHADOW: "shadow exception", ABORTED: "removed", HELD: "held", DISCONNECTED: "disconnected",
    RECONNECT_FAILED: "reconnection failed",
}  # fmt: skip


@dataclass
class JobEvents:
    """The facts about one job in the log."""

    exit_code: int | None = None
    signal: int | None = None
    state: str = ""
    reason: str = ""
    hold_code: int | None = None
    hold_subcode: int | None = None
    node: str = ""
    peak_memory: int | None = None
    memory: int | None = None
    disk: int | None = None
    """Requested bytes."""
    tail: list[str] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)

    def evidence(self) -> dict[str, object]:
        """The evidence in the form that `forestay classify` reads."""
        known: dict[str, object] = {
            "scheduler": "htcondor",
            "exit_code": self.exit_code,
            "signal": self.signal,
            "scheduler_state": self.state,
            "scheduler_reason": self.reason,
            "hold_code": self.hold_code,
            "hold_subcode": self.hold_subcode,
            "node": self.node,
            "peak_memory": self.peak_memory,
            "memory_limit": self.memory,
            "log_tail": "\n".join(self.tail[-LINES:]),
        }
        return {name: value for name, value in known.items() if value not in (None, "")}


def events_of(text: str) -> list[tuple[int, int, str, list[str]]]:
    """Each whole event: its number, its cluster, the words of its first line, and its other lines."""
    events: list[tuple[int, int, str, list[str]]] = []
    now: tuple[int, int, str, list[str]] | None = None
    for line in text.splitlines():
        if line.startswith("..."):
            if now is not None:
                events.append(now)
            now = None
            continue
        head = _HEAD.match(line)
        if head is not None:
            now = (int(head[1]), int(head[2]), head[6], [])
        elif now is not None:
            now[3].append(line)
    return events  # an event without its end is still being written


def read_job(text: str, cluster: int) -> JobEvents:
    """The facts about a cluster's last run."""
    job = JobEvents()
    for number, of, words, lines in events_of(text):
        if of != cluster:
            continue
        job.seen.append(number)
        _take(job, number, words, lines)
    return job


def _take(job: JobEvents, number: int, words: str, lines: list[str]) -> None:
    body = "\n".join(lines)
    if number == EXECUTING:
        slot = next((match[1] for match in map(_SLOT.match, lines) if match), "")
        job.node = slot or words.rpartition(": ")[2]
        job.state = job.reason = ""  # it was restarted: earlier events explain nothing
        job.hold_code = job.hold_subcode = None
    elif number == SIZE:
        sizes = [int(match[1]) * MIB for match in map(_MEMORY.match, lines) if match]
        job.peak_memory = max([job.peak_memory or 0, *sizes]) or job.peak_memory
    elif number == TERMINATED:
        code, signal = _RETURN.search(body), _SIGNAL.search(body)
        job.exit_code = int(code[1]) if code else None
        job.signal = int(signal[1]) if signal else None
        job.state = "completed"
        _resources(job, lines)
    elif number in WORDS:
        job.state = WORDS[number]
        # The removal of a held job (periodic_remove) says only that it was held; the hold event says why.
        if not (number == ABORTED and job.hold_code is not None):
            job.reason = (
                " ".join(line.strip() for line in lines if line.strip() and not _CODE.search(line))[:1000] or words
            )
        code = _CODE.search(body)
        if number == HELD and code:
            job.hold_code, job.hold_subcode = int(code[1]), int(code[2])
        _resources(job, lines)
    else:
        return
    job.tail.append(words)
    job.tail.extend(line.strip() for line in lines if line.strip())


def _resources(job: JobEvents, lines: list[str]) -> None:
    for match in filter(None, map(_RESOURCE.match, lines)):
        used, asked = match[2], float(match[3])
        if match[1].startswith("Memory"):
            job.memory = int(asked * MIB)
            if used:
                job.peak_memory = max(job.peak_memory or 0, int(float(used) * MIB))
        elif match[1].startswith("Disk"):
            job.disk = int(asked * KIB)


def read_end(path: Path) -> str:
    """The end of a log; logs of large DAGs are long, and the newest events are at the end."""
    with path.open("rb") as log:
        size = log.seek(0, 2)
        log.seek(max(0, size - MOST))
        return log.read().decode("utf-8", errors="replace")


def find_log(folder: Path, cluster: int) -> Path | None:
    """The nodes' log of the DAG that runs this cluster, among the logs in a folder: the newest that contains it."""
    logs = sorted(folder.glob("*.nodes.log"), key=lambda path: path.stat().st_mtime, reverse=True)
    return next((log for log in logs if f" ({cluster:03d}." in read_end(log) or f"({cluster}." in read_end(log)), None)
