"""Past attempts from Nextflow: its trace (tab-separated, with a header) and `.nextflow.log`, which has fewer facts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from forestay.domain.exceptions.evidence.past_attempt import PastAttempt, PastState
from forestay.formats.accounting.past_log import LogPath
from forestay.formats.rules.evidence_json import read_evidence, read_size

ReadLog = Callable[[Sequence[LogPath], str], str]
_PART = re.compile(r"([0-9.]+)\s*(ms|s|m|h|d)\b")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DONE = re.compile(
    r"Task completed > TaskHandler\[(?:jobId: [^;]*; )?id: (\d+); name: (.+?); status: (\w+); exit: (-?\d+|-); error: (.*?); workDir: (\S+?)[ \]]"
)
_SENT = re.compile(r"\[([0-9a-f]{2}/[0-9a-f]{6})\] Submitted process > ")
_STAMP = re.compile(r"([A-Z][a-z]{2})-(\d{1,2}) (\d\d:\d\d:\d\d)\.(\d{3})")


def read_trace(lines: Iterable[str], owner: str, *, read_log: ReadLog = lambda *_: "") -> Iterator[PastAttempt]:
    """Every task that has run according to a trace."""
    coming = iter(lines)
    places = {name: place for place, name in enumerate(next(coming, "").rstrip("\n").split("\t"))}
    for line in coming:
        parts = line.rstrip("\n").split("\t")
        fields = {name: parts[place] for name, place in places.items() if place < len(parts) and parts[place] != "-"}
        attempt = _from_trace(fields, owner, read_log)
        if attempt is not None:
            yield attempt


def _from_trace(fields: Mapping[str, str], owner: str, read_log: ReadLog) -> PastAttempt | None:
    status = fields.get("status", "")
    if status not in ("COMPLETED", "FAILED", "ABORTED"):
        return None
    exit_code = fields.get("exit", "")
    failed = status == "FAILED" or (status == "COMPLETED" and exit_code not in ("0", ""))
    state = PastState.FAILED if failed else PastState.CANCELLED if status == "ABORTED" else PastState.SUCCEEDED
    seconds = duration(fields.get("realtime", "") or fields.get("duration", ""))
    submitted = _when(fields.get("submit", ""))
    ended = _when(fields.get("complete", ""))
    if ended is None and submitted is not None:
        ended = submitted + duration(fields.get("duration", ""))
    cpus = fields.get("cpus", "1")
    evidence = None
    if failed:
        folder = fields.get("workdir", "")
        # Names only: another run in the same folder would have another hash.
        paths = [LogPath(f"{folder}/.command.{end}", submitted, None) for end in ("err", "out")] if folder else []
        evidence = read_evidence(
            {
                "exit_code": exit_code or None,
                "log_tail": read_log(paths, owner) if paths else "",
                "peak_memory": read_size(fields.get("peak_rss")),
                "memory_limit": read_size(fields.get("memory")),
                "wall_time": seconds,
                "time_limit": duration(fields.get("time", "")) or None,
                "node": fields.get("hostname", ""),
            }
        )
    host = fields.get("hostname", "")
    return PastAttempt(
        "nextflow", fields.get("native_id") or fields.get("hash") or fields.get("task_id", ""), fields.get("name", ""), owner,
        (host,) if host else (), state, float(cpus) if cpus.isdigit() else 1.0, seconds, int(fields.get("attempt", "1") or 1), evidence,
        submitted, ended,
    )  # fmt: skip


def duration(text: str) -> float:
    """Seconds from `1h 2m 3s`; a bare number is milliseconds, as a trace with `raw` has them."""
    if text.isdigit():
        return int(text) / 1000
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))


def _when(text: str) -> float | None:
    if text.isdigit():
        return int(text) / 1000
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def read_log_file(
    lines: Iterable[str], owner: str, year: int, *, read_log: ReadLog = lambda *_: ""
) -> Iterator[PastAttempt]:
    """Every task whose completion is in a `.nextflow.log`. It does not record cores: each task counts as one. Its timestamps have no year."""
    sent: dict[str, float] = {}
    for line in lines:
        submission = _SENT.search(line)
        if submission is not None:
            sent[submission[1]] = _stamp(line, year) or 0.0
            continue
        done = _DONE.search(line) if "Task completed" in line else None
        if done is None:
            continue
        _, name, _, exit_code, error, folder = done.groups()
        ended = _stamp(line, year)
        parts = folder.rstrip("/").rsplit("/", 2)
        submitted = sent.get(f"{parts[-2]}/{parts[-1][:6]}") if len(parts) > 1 else None
        seconds = max(0.0, ended - submitted) if ended is not None and submitted else 0.0
        failed = exit_code not in ("0", "-") or error not in ("-", "null")
        evidence = None
        if failed:
            paths = [LogPath(f"{folder}/.command.{end}", submitted, None) for end in ("err", "out")]
            tail = read_log(paths, owner) or ("" if error in ("-", "null") else error)
            evidence = read_evidence({"exit_code": exit_code, "log_tail": tail, "wall_time": seconds})
        yield PastAttempt(
            "nextflow", "/".join(parts[-2:])[:9], name, owner, (), PastState.FAILED if failed else PastState.SUCCEEDED, 1.0, seconds, 1,
            evidence, submitted, ended,
        )  # fmt: skip


def _stamp(line: str, year: int) -> float | None:
    match = _STAMP.match(line)
    if match is None:
        return None
    try:
        moment = datetime.strptime(f"{year} {match[1]} {match[2]} {match[3]}", "%Y %b %d %H:%M:%S").astimezone()
    except ValueError:
        return None
    return moment.timestamp() + int(match[4]) / 1000
