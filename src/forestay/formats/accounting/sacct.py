"""Past attempts from `sacct --parsable2`: Slurm's accounting, queried here or saved to a file.

The columns are identified by the names in the heading, in any order. A job comes before its steps, which alone have the peak memory.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache

from forestay.domain.exceptions.evidence.past_attempt import PastAttempt, PastState
from forestay.formats.accounting.past_log import LogPath
from forestay.formats.rules.evidence_json import read_evidence, read_size, read_time
from forestay.formats.text.host_list import nodes_of

COLUMNS = (
    "JobID", "JobIDRaw", "User", "State", "ExitCode", "Reason", "NodeList", "AllocCPUS", "ElapsedRaw", "TimelimitRaw", "ReqMem", "MaxRSS",
    "Submit", "Start", "End", "WorkDir", "JobName", "SubmitLine", "StdErr", "StdOut",
)  # fmt: skip
"""The requested columns. The last ones contain users' texts: a line end in one of them damages only the rest of its record."""
NEEDED = ("JobID", "State")
GOING = frozenset({
    "PENDING", "RUNNING", "REQUEUED", "RESIZING", "SUSPENDED", "CONFIGURING", "COMPLETING", "STAGE_OUT", "SIGNALING", "STOPPED", "REQUEUE_FED",
    "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT",
})  # fmt: skip
"""States of jobs that have not ended."""
NO_REASON = frozenset({"", "None", "Unknown"})
_STEP = re.compile(r"\.(?:batch|extern|interactive|\d+)(?:\+|$)")


class NotSacct(ValueError):
    """The heading is not one of sacct's, or lacks a column that is needed."""


def read_sacct(
    lines: Iterable[str], *, delimiter: str = "|", read_log: Callable[[Sequence[LogPath], str], str] = lambda *_: ""
) -> Iterator[PastAttempt]:
    """Every attempt that has ended. ``read_log`` gets the files that a failed job may have written to, and its owner."""
    coming = iter(lines)
    heading = next(coming, "").rstrip("\n").split(delimiter)
    places = {name: place for place, name in enumerate(heading)}
    if any(name not in places for name in NEEDED):
        raise NotSacct(f"a heading with {', '.join(NEEDED)} is needed, as `sacct --parsable2` prints it")
    shown = places["JobID"]
    last = len(heading) - 1
    starts: dict[str, int] = {}
    job: list[str] | None = None
    peak = ""
    for line in coming:
        parts = line.rstrip("\n").split(delimiter, last)
        if len(parts) <= last:
            continue
        name = parts[shown]
        if _STEP.search(name):
            used = parts[places["MaxRSS"]] if "MaxRSS" in places else ""
            if used and job is not None and name.startswith(job[shown]):
                peak = used if not peak or (read_size(used) or 0) > (read_size(peak) or 0) else peak
            continue
        if job is not None:
            attempt = _attempt(job, places, peak, starts, read_log)
            if attempt is not None:
                yield attempt
        job, peak = parts, parts[places["MaxRSS"]] if "MaxRSS" in places else ""
    if job is not None:
        attempt = _attempt(job, places, peak, starts, read_log)
        if attempt is not None:
            yield attempt


def _attempt(
    parts: list[str],
    places: Mapping[str, int],
    peak: str,
    starts: dict[str, int],
    read_log: Callable[[Sequence[LogPath], str], str],
) -> PastAttempt | None:
    def value(*names: str) -> str:
        for name in names:
            if name in places:
                return parts[places[name]]
        return ""

    word = parts[places["State"]]
    state = word.partition(" ")[0].rstrip("+")
    if state in GOING or not state:
        return None
    shown = parts[places["JobID"]]
    base, _, element = shown.partition("_")
    raw = value("ElapsedRaw")
    seconds = float(raw) if raw.isdigit() else read_time(value("Elapsed")) or 0.0
    cpus = value("AllocCPUS", "NCPUS", "ReqCPUS")
    cores = float(cpus) if cpus.isdigit() else 1.0
    owner = value("User") or "(unknown)"
    name = value("JobName")
    ended, began = _moment(value("End")), _moment(value("Start"))
    past = _state(state)
    nodes = _nodes(value("NodeList"))
    attempt = starts.get(shown, 0) + 1
    evidence = None
    if past is PastState.FAILED:
        starts[shown] = attempt
        limit = value("TimelimitRaw")
        reason = value("Reason")
        named = [path for path in (value("StdErr"), value("StdOut")) if path] or options_of(value("SubmitLine"))
        files = log_files(named, value("WorkDir"), shown, value("JobIDRaw") or base, name, owner)
        paths = [LogPath(path, began, ended) for path in files]
        evidence = read_evidence(
            {
                "scheduler": "slurm",
                "scheduler_state": word,
                "scheduler_reason": "" if reason in NO_REASON else reason,
                "exit_code": value("ExitCode") or None,
                "node": ",".join(nodes[:8]),
                "log_tail": read_log(paths, owner) if paths else "",
                "peak_memory": peak or None,
                "memory_limit": _memory(value("ReqMem"), cores, max(1, len(nodes))),
                "wall_time": seconds,
                "time_limit": int(limit) * 60 if limit.isdigit() else None,
            }
        )
    return PastAttempt(
        "slurm", shown, name, owner, nodes, past, cores, seconds, attempt, evidence, _moment(value("Submit")), ended, element
    )  # fmt: skip


def _state(state: str) -> PastState:
    if state == "COMPLETED":
        return PastState.SUCCEEDED
    return PastState.CANCELLED if state in ("CANCELLED", "REVOKED") else PastState.FAILED


@lru_cache(maxsize=4096)
def _nodes(text: str) -> tuple[str, ...]:
    return nodes_of(text, 64)


def _memory(text: str, cores: float, nodes: int) -> int | None:
    """The limit of a job; older releases write it for each node (`4Gn`) or core (`4Gc`)."""
    size = read_size(text)
    return int(size * (cores if text.endswith("c") else nodes if text.endswith("n") else 1)) if size else None


@lru_cache(maxsize=65_536)
def _moment(text: str) -> float | None:
    """Slurm's local time in seconds since 1970."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def log_files(named: Sequence[str], folder: str, shown: str, raw: str, name: str, owner: str) -> list[str]:
    """The files that a job wrote to, by the patterns of its submission; without these, by Slurm's default."""
    if not folder:
        return []
    base, _, element = shown.partition("_")
    patterns = named or [f"slurm-{'%A_%a' if element else '%j'}.out"]
    words = {"j": raw, "A": base, "a": element, "x": name, "u": owner, "J": raw, "%": "%"}

    def fill(match: re.Match[str]) -> str:
        width, letter = match[1], match[2]
        text = words.get(letter)
        if text is None:
            return "\0"  # a node's or a step's: not known here
        return text.zfill(int(width)) if width and text.isdigit() else text

    paths = []
    for pattern in dict.fromkeys(patterns):
        path = re.sub(r"%(\d{0,2})([A-Za-z%])", fill, pattern)
        if "\0" not in path and path != "/dev/null":
            paths.append(path if path.startswith("/") else f"{folder}/{path}")
    return paths


def options_of(submitted: str) -> list[str]:
    """The files that the options of a command line name, the error's first."""
    try:
        words = shlex.split(submitted)
    except ValueError:
        return []
    named: dict[str, str] = {}
    for place, word in enumerate(words):
        for option, short in (("output", "-o"), ("error", "-e")):
            if word.startswith(f"--{option}="):
                named[option] = word.partition("=")[2]
            elif word in (f"--{option}", short) and place + 1 < len(words):
                named[option] = words[place + 1]
            elif word.startswith(short) and len(word) > 2 and not word.startswith("--"):
                named[option] = word[2:].removeprefix("=")
    return [named[option] for option in ("error", "output") if option in named]
