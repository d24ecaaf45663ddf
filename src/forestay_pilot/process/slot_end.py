"""The completion of a claim, as the servers expect it."""

from __future__ import annotations

import errno
import signal
from typing import TYPE_CHECKING, Any

from forestay_pilot.clock import stamp
from forestay_pilot.process.guard_link import NO_GUARD
from forestay_pilot.process.guarded_payload import DEVICE_HELD

if TYPE_CHECKING:
    from forestay_pilot.process.payload import ClaimedJob, PayloadOutcome

# What an end says when the pilot stopped a payload. Everything else that was stopped died by a signal, and
# its log says why: only a real cancel may be called one, since the servers close the job for it.
TOLD_TO_STOP = "the pilot was stopped"
TIME_OVER = "the pilot's time is over"
LEASE_LOST = "lease-lost"
STOPPED = {
    "cancelled": "cancelled",
    "wall-limit": "wall-limit",
    TOLD_TO_STOP: "pilot-stopped",
    TIME_OVER: "pilot-stopped",
    # No server answered for as long as the lease: the job is not the cause.
    LEASE_LOST: "pilot-stopped",
    NO_GUARD: "not-started",
    DEVICE_HELD: "not-started",
}
# Why a pilot had to go, as the error of the end.
WENT_FOR = {TOLD_TO_STOP: "told-to-stop", TIME_OVER: "time-over", LEASE_LOST: LEASE_LOST}


_FROM_OUTSIDE = (signal.SIGTERM, signal.SIGKILL)

# How far an attempt was.
STAGING_IN = "staging-in"
EXECUTING = "executing"
STAGING_OUT = "staging-out"


def killed_from_outside(outcome: PayloadOutcome) -> bool:
    """Whether a process was ended from outside: neither by the pilot, nor by the kernel for lack of memory."""
    number = outcome.signal
    if number is None and outcome.exit_code is not None:
        number = outcome.exit_code - 128  # what a shell answers whose child was killed first
    return number in _FROM_OUTSIDE and not outcome.stopped_for and not outcome.oom_kills


def symbol(error: OSError) -> str:
    """What the system calls an error, such as ``ENOSPC``; empty for what has no number."""
    return errno.errorcode.get(error.errno or 0, "")


def unbegun(why: str) -> str:
    """The reason in the completion of a job that was stopped before it began."""
    return "cancelled" if why == "cancelled" else "not-started"


def make_completion(
    job: ClaimedJob,
    outcome: PayloadOutcome,
    *,
    reason: str,
    host: str,
    manifest: dict[str, object] | None = None,
    words: str = "",
    result: str | None = None,
    stage: str = "",
    error: str = "",
    file: str = "",
) -> dict[str, Any]:
    """The completion of a claim in the form that the servers expect; ``ok`` only for reason ``ok``.

    Of a failure it says how far the attempt was, the system's own word for what went wrong, and with which file.
    """
    ok = reason == "ok"
    document: dict[str, Any] = {
        "job": job.job,
        "generation": job.generation,
        "attempt": job.attempt,
        "claim": job.claim,
        "outcome": "ok" if ok else "failure",
        "reason": "exit" if ok else reason,
        "exit_code": outcome.exit_code,
        "signal": outcome.signal,
        "started": stamp(outcome.started) if outcome.started else None,
        "wall": round(outcome.wall, 6),
        "cpu": round(outcome.cpu, 6),
        "peak_memory": outcome.peak_memory,
        "log_tail": outcome.log_tail + (f"\n[pilot: {words[:2000]}]\n" if words else ""),
        "log_bytes": outcome.log_bytes,
        "manifest": manifest,
        "host": host,
    }
    if outcome.ranks:
        document["ranks"] = outcome.ranks
    if outcome.left_running:
        document["left_running"] = outcome.left_running
    if not ok:
        seen = {"oom_kills": outcome.oom_kills, "disk_left": outcome.disk_left}
        document.update({name: value for name, value in seen.items() if value is not None})
        stage = stage or (EXECUTING if outcome.started else "")
        body = {"stage": stage, "error": error[:64], "file": file[-500:]}
        document.update({name: value for name, value in body.items() if value})
    if result is not None:
        document["result"] = result
    return document


def with_cleanup(end: dict[str, Any], error: OSError) -> dict[str, Any]:
    """The same completion again, with the error from removing its working folder. Its outcome does not change."""
    return {**end, "cleanup": {"error": symbol(error), "words": str(error)[:1000]}}
