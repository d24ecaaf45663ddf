"""Past attempts from `condor_history -json` (one array, or one ad per line), read piece by piece."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from forestay.domain.exceptions.evidence.past_attempt import PastAttempt, PastState
from forestay.formats.accounting.past_log import LogPath
from forestay.formats.rules.evidence_json import read_evidence

ATTRIBUTES = (
    "ClusterId", "ProcId", "Owner", "JobStatus", "ExitCode", "ExitBySignal", "ExitSignal", "HoldReason", "HoldReasonCode", "HoldReasonSubCode",
    "LastHoldReason", "LastHoldReasonCode", "LastHoldReasonSubCode", "RemoveReason", "LastRemoteHost", "RequestCpus", "CpusProvisioned",
    "RemoteWallClockTime", "RequestMemory", "ResidentSetSize", "MemoryUsage", "NumJobStarts", "QDate", "JobCurrentStartDate", "CompletionDate",
    "EnteredCurrentStatus", "AllowedExecuteDuration", "JobBatchName", "Cmd", "Iwd", "Out", "Err",
)  # fmt: skip
REMOVED, COMPLETED, HELD = 3, 4, 5
_BY_USER = ("via condor_rm", "by user", "removed by")


def read_condor_history(
    chunks: Iterable[str], *, read_log: Callable[[Sequence[LogPath], str], str] = lambda *_: ""
) -> Iterator[PastAttempt]:
    """Every job that has left the queue, each as one attempt: the history has only the sum over the starts of a job."""
    for ad in _ads(chunks):
        attempt = _attempt(ad, read_log)
        if attempt is not None:
            yield attempt


def _ads(chunks: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    decoder = json.JSONDecoder()
    text = ""
    for chunk in chunks:
        text += chunk
        at = 0
        while True:
            while at < len(text) and text[at] in " \t\r\n,[]":
                at += 1
            if at >= len(text):
                break
            try:
                ad, at = decoder.raw_decode(text, at)
            except ValueError:
                break  # the rest of it is yet to come
            if isinstance(ad, dict):
                yield ad
        text = text[at:]


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _attempt(ad: Mapping[str, Any], read_log: Callable[[Sequence[LogPath], str], str]) -> PastAttempt | None:
    status = ad.get("JobStatus")
    if status not in (REMOVED, COMPLETED) or "ClusterId" not in ad:
        return None
    by_signal = ad.get("ExitBySignal") is True
    owner = str(ad.get("Owner") or "(unknown)")
    cores = _number(ad.get("CpusProvisioned")) or _number(ad.get("RequestCpus")) or 1.0
    seconds = _number(ad.get("RemoteWallClockTime")) or 0.0
    ended = _number(ad.get("CompletionDate")) or _number(ad.get("EnteredCurrentStatus"))
    reason = str(ad.get("HoldReason") or ad.get("LastHoldReason") or "") if status == REMOVED else ""
    removed = str(ad.get("RemoveReason") or "")
    if status == COMPLETED:
        good = not by_signal and ad.get("ExitCode") in (0, None)
        state = PastState.SUCCEEDED if good else PastState.FAILED
    else:
        # A job that was removed while held failed when it was held.
        by_user = not reason and any(words in removed for words in _BY_USER)
        state = PastState.CANCELLED if by_user else PastState.FAILED
    host = str(ad.get("LastRemoteHost") or "").rpartition("@")[2]
    evidence = None
    if state is PastState.FAILED:
        began = _number(ad.get("JobCurrentStartDate"))
        files = [str(ad[name]) for name in ("Err", "Out") if isinstance(ad.get(name), str) and ad[name] != "/dev/null"]
        paths = [
            LogPath(path if path.startswith("/") else f"{ad.get('Iwd', '')}/{path}", began, ended) for path in files
        ]
        memory = _number(ad.get("RequestMemory"))
        used = _number(ad.get("ResidentSetSize"))
        evidence = read_evidence(
            {
                "scheduler": "htcondor",
                "scheduler_state": "HELD" if reason else "COMPLETED" if status == COMPLETED else "REMOVED",
                "scheduler_reason": reason or removed,
                "hold_code": ad.get("HoldReasonCode", ad.get("LastHoldReasonCode")) if reason else None,
                "hold_subcode": ad.get("HoldReasonSubCode", ad.get("LastHoldReasonSubCode")) if reason else None,
                "exit_code": None if by_signal else ad.get("ExitCode"),
                "signal": ad.get("ExitSignal") if by_signal else None,
                "node": host,
                "log_tail": read_log(paths, owner) if paths else "",
                "peak_memory": int(used * 1024) if used else None,
                "memory_limit": int(memory * 1024 * 1024) if memory else None,
                "wall_time": seconds,
                "time_limit": _number(ad.get("AllowedExecuteDuration")),
            }
        )
    shown = f"{ad['ClusterId']}.{ad.get('ProcId', 0)}"
    name = str(ad.get("JobBatchName") or ad.get("Cmd") or "").rpartition("/")[2]
    starts = _number(ad.get("NumJobStarts"))
    return PastAttempt(
        "htcondor", shown, name, owner, (host,) if host else (), state, cores, seconds, max(1, int(starts or 1)), evidence,
        _number(ad.get("QDate")), ended, str(ad.get("ProcId", "")) if ad.get("ProcId") else "",
    )  # fmt: skip
