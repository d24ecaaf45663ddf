"""The queue as squeue shows it: its columns, its state codes, its format string.

Slurm's terms are used where they mean the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from forestay.apps.cli import neutral
from forestay.apps.cli.amounts import elapsed, read_moment, size, squeue_moment
from forestay.apps.cli.columns import Column, cells, padded, table
from forestay.apps.cli.ids import ShortIds

if TYPE_CHECKING:
    from forestay.client.api.schemas import Job

OPEN_STATES = ("running", "faulted", "available")
"""The states that the queue shows by default, in the order of interest."""

_BY_WORD: dict[str, tuple[str, ...]] = {
    "pd": ("available",), "pending": ("available",), "queued": ("available",),
    "h": ("available",), "held": ("available",),
    "r": ("running",), "cf": ("running",), "cg": ("running",), "configuring": ("running",), "completing": ("running",),
    "se": ("faulted",), "special_exit": ("faulted",), "failed_attempt": ("faulted",),
    "cd": ("completed", "forced_complete"), "completed": ("completed", "forced_complete"),
    "f": ("failed",), "to": ("failed",), "timeout": ("failed",),
    "ca": ("cancelled",), "canceled": ("cancelled",),
    "all": ("running", "faulted", "available", "completed", "forced_complete", "failed", "cancelled"),
}  # fmt: skip
_OURS = ("available", "running", "faulted", "forced_complete", "failed", "cancelled")


def states_named(words: str) -> tuple[str, ...]:
    """The states for squeue's codes or names, for our own names, or for those of the pages."""
    found_words: list[str] = []
    for word in words.lower().split(","):
        word = word.strip().replace(" ", "_").replace("-", "_")
        if word in _BY_WORD:
            found_words += _BY_WORD[word]
        elif word in _OURS:
            found_words.append(word)
        else:
            raise ValueError(
                f"{word!r} is not a state; there are PD, H, R, CF, CG, SE, CD, F, TO, CA, queued, all, and {', '.join(_OURS)}"
            )
    return tuple(dict.fromkeys(found_words))


def only_held(words: str) -> bool:
    """Whether only held jobs were requested."""
    return {word.strip() for word in words.lower().split(",")} <= {"h", "held"}


def code(job: Job) -> str:
    """The two letters of the ST column."""
    state = job["state"]
    if state == "available":
        return "H" if job["held"] else "PD"
    if state == "running":
        if job["claim"] is None:
            return "H"  # it has ended, and the end is kept until someone releases the job
        return {"staging-in": "CF", "staging-out": "CG"}.get(job["phase"] or "", "R")
    if state == "failed" and (job["last"] or {}).get("reason") == "wall-limit":
        return "TO"
    return {"faulted": "SE", "completed": "CD", "forced_complete": "CD", "failed": "F", "cancelled": "CA"}.get(
        state, "?"
    )


def long_code(job: Job) -> str:
    """The state in one word, as with squeue's %T."""
    words = {
        "PD": "PENDING", "H": "HELD", "R": "RUNNING", "CF": "CONFIGURING", "CG": "COMPLETING", "SE": "FAULTED",
        "CD": "COMPLETED", "F": "FAILED", "TO": "TIMEOUT", "CA": "CANCELLED",
    }  # fmt: skip
    return words.get(code(job), job["state"].upper())


def colour(short: str) -> str:
    """The colour of a state code."""
    return {"R": "green", "CF": "green", "CG": "green", "SE": "red", "F": "red", "TO": "red", "H": "yellow"}.get(
        short, ""
    )


def time_used(job: Job, now: datetime) -> float:
    """Seconds the job has run: in its present claim, or in the last attempt."""
    granted = read_moment(job["claim"]["granted"]) if job["claim"] else None
    if granted is not None:
        return (now - granted).total_seconds()
    return float((job["last"] or {}).get("wall") or 0) if job["state"] != "available" else 0.0


def reason(job: Job, now: datetime) -> str:
    """Why a job does not run: Slurm's term where there is one, and never a space."""
    if job["held"]:
        return "JobHeldUser" if job["holders"] == [job["owner"]] else "Held:" + "+".join(job["holders"])
    if job["state"] == "faulted":
        last = job["last"]
        return "Faulted:" + (cause(last) if last else "lost")
    if job["state"] == "available":
        begin = read_moment(job["not_before"])
        if begin is not None and begin > now:
            return "BeginTime"
        return waits_for(job) or "Resources"
    last = job["last"]
    if job["state"] == "failed" and last:
        return cause(last)
    return "None"


_NO_PILOT = {
    "no pilot is connected": "NoPilot",
    "no pilot is large enough": "NoPilotLargeEnough",
    "no pilot satisfies": "NoPilotSatisfies",
}
_QUOTA = re.compile(r"quota of (\w+) (\S+): (?:(\d+) of (\d+) )?")


def waits_for(job: Job) -> str:
    """Why no pilot gets a job although slots may be free, in one word."""
    waiting = str(job.get("waiting") or "")
    for words, reason in _NO_PILOT.items():
        if waiting.startswith(words):
            return reason
    if over := _QUOTA.match(waiting):
        kind, name, used, most = over.groups()
        return f"Quota:{kind}:{name}" + (f":{used}/{most}" if used else "")
    return "Licenses" if waiting else ""


def cause(last: object) -> str:
    """How an attempt ended, in one word."""
    if not isinstance(last, dict):
        return "unknown"
    if last.get("signal"):
        return f"signal-{last['signal']}"
    if last.get("reason") in {"exit", None} and last.get("exit_code") is not None:
        return f"exit-{last['exit_code']}"
    return str(last.get("reason") or "unknown")


def place(job: Job, now: datetime) -> str:
    """The NODELIST(REASON) column."""
    if job["claim"]:
        return job["claim"]["host"]
    if job["state"] in {"completed", "forced_complete", "cancelled"}:
        return (job["last"] or {}).get("host", "")
    return f"({reason(job, now)})"


class QueueEntry(NamedTuple):
    """The data from which the fields of a row are computed."""

    job: Job
    now: datetime
    names: ShortIds


_Field = Callable[[QueueEntry], str]
_FIELDS: dict[str, tuple[str, _Field]] = {
    "i": ("JOBID", lambda s: s.names.short(s.job["id"])),
    "A": ("JOBID", lambda s: s.names.short(s.job["id"])),
    "F": ("SPECIFICATION", lambda s: s.job["specification"]),
    "K": ("INDEX", lambda s: "N/A" if s.job["index"] is None else str(s.job["index"])),
    "P": ("PARTITION", lambda s: s.job["resource_class"]),
    "j": ("NAME", lambda s: s.job["name"]),
    "u": ("USER", lambda s: s.job["owner"]),
    "a": ("ACCOUNT", lambda s: s.job["team"] or "-"),
    "t": ("ST", lambda s: code(s.job)),
    "T": ("STATE", lambda s: long_code(s.job)),
    "M": ("TIME", lambda s: elapsed(time_used(s.job, s.now))),
    "l": ("TIME_LIMIT", lambda s: _limit(s.job)),
    "L": ("TIME_LEFT", lambda s: _left(s.job, s.now)),
    "D": ("NODES", lambda s: "1"),
    "C": ("CPUS", lambda s: str(s.job["resources"].get("cpus", 1))),
    "m": ("MIN_MEMORY", lambda s: size(s.job["resources"].get("memory", 0))),
    "d": ("MIN_TMP_DISK", lambda s: size(s.job["resources"].get("disk", 0))),
    "b": ("GPUS", lambda s: str(s.job["resources"].get("gpus", 0))),
    "Q": ("PRIORITY", lambda s: str(s.job["priority"])),
    "V": ("SUBMIT_TIME", lambda s: squeue_moment(s.job["created"])),
    "S": ("START_TIME", lambda s: squeue_moment(start(s.job, s.now))),
    "N": ("NODELIST", lambda s: s.job["claim"]["host"] if s.job["claim"] else ""),
    "r": ("REASON", lambda s: reason(s.job, s.now)),
    "R": ("NODELIST(REASON)", lambda s: place(s.job, s.now)),
    "x": ("ATTEMPT", lambda s: str(s.job["attempt"])),
    "%": ("%", lambda s: "%"),
}  # fmt: skip


def start(job: Job, now: datetime) -> str | None:
    """When a job started, or may start at the earliest."""
    if job["claim"]:
        return job["claim"]["granted"]
    begin = read_moment(job["not_before"])
    if job["state"] == "available":
        return job["not_before"] if begin is not None and begin > now else None
    return (job["last"] or {}).get("started")


def _limit(job: Job) -> str:
    wall = job["resources"].get("wall")
    return "UNLIMITED" if wall is None else elapsed(wall)


def _left(job: Job, now: datetime) -> str:
    wall = job["resources"].get("wall")
    return "UNLIMITED" if wall is None else elapsed(wall - time_used(job, now))


_SPEC = re.compile(r"%(\.?)(\d*)([a-zA-Z%])|([^%]+)|(%)")


def formatted(text: str, shown: Sequence[QueueEntry], *, heading: bool) -> list[str]:
    """Rows by a format string of squeue's: %i, %9P, %.18i (right), and other text as it is."""
    parts = []
    for match in _SPEC.finditer(text):
        right, width, letter, literal, bad = match.groups()
        if bad or (letter and letter not in _FIELDS):
            letters = " ".join(f"%{field}" for field in sorted(_FIELDS, key=str.lower) if field != "%")
            raise ValueError(f"{match.group()!r} is not a field; there are {letters}")
        parts.append((bool(right), int(width or 0), letter, literal))
    rows: list[QueueEntry | None] = [None, *shown] if heading else list(shown)
    lines = []
    for row in rows:
        pieces = []
        for right, width, letter, literal in parts:
            if literal is not None:
                pieces.append(literal)
                continue
            title, value = _FIELDS[letter]
            text = title if row is None else neutral.line(value(row))
            if width:
                while cells(text) > width:
                    text = text[:-1]
            pieces.append(padded(text, width, right=right))
        lines.append("".join(pieces).rstrip())
    return lines


def queue_table(
    shown: Sequence[QueueEntry],
    *,
    long: bool,
    starts: bool,
    heading: bool,
    paint: Callable[..., str],
    width: int | None = None,
) -> list[str]:
    """Rows in squeue's own columns."""
    state = Column("STATE", style=_long_colour) if long else Column("ST", style=colour)
    columns = [Column("JOBID", right=True), Column("PARTITION", right=True), Column("NAME", right=True, flexible=True), Column("USER", right=True, flexible=True), state]  # fmt: skip
    letters = ["i", "P", "j", "u", "T" if long else "t"]
    if starts:
        columns += [Column("START_TIME", right=True)]
        letters += ["S"]
    else:
        columns += [Column("TIME", right=True)]
        letters += ["M"]
        if long:
            columns += [Column("TIME_LIMIT", right=True)]
            letters += ["l"]
    columns += [Column("NODES", right=True), Column("NODELIST(REASON)", flexible=True)]
    letters += ["D", "R"]
    rows = [[_FIELDS[letter][1](entry) for letter in letters] for entry in shown]
    return table(columns, rows, paint=paint, heading=heading, width=width)


def _long_colour(word: str) -> str:
    return {"RUNNING": "green", "FAULTED": "red", "FAILED": "red", "TIMEOUT": "red", "HELD": "yellow"}.get(word, "")
