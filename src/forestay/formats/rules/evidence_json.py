"""Evidence as JSON: parsed tolerantly, since batch systems and scripts write it in different ways.

A number may be a text, Slurm's ``137:9`` is an exit code and a signal, a signal may be ``SIGKILL``, ``KILL`` or 9, a log a text or a list, a state may have a
suffix. Unreadable values are left out and never a reason to refuse a record; unknown fields are kept.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from forestay.domain.exceptions.causes.cause import CauseFinding
from forestay.domain.exceptions.evidence.evidence import (
    LONGEST_WORD,
    AttemptStage,
    Evidence,
    Scheduler,
    bounded_lines,
    plain_word,
)
from forestay.domain.exceptions.evidence.redaction import redacted, redacted_lines, redacted_value
from forestay.domain.exceptions.evidence.signals import number_of

_ALIASES: dict[str, tuple[str, ...]] = {
    "exit_code": ("exit_code", "exitcode", "exit_status", "exitstatus", "return_code", "returncode", "rc", "status_code", "derivedexitcode"),
    "signal": ("signal", "term_signal", "termsig", "exit_signal", "exitsignal", "exitbysignal"),
    "scheduler": ("scheduler", "batch_system", "batch", "lrms", "executor", "resource_manager"),
    "scheduler_state": ("scheduler_state", "state", "job_state", "jobstate", "status", "phase", "jobstatus"),
    "scheduler_reason": ("scheduler_reason", "reason", "job_reason", "state_reason", "hold_reason", "holdreason", "termination_reason", "term_reason", "exit_reason", "removereason"),
    "hold_code": ("hold_code", "hold_reason_code", "holdreasoncode"),
    "hold_subcode": ("hold_subcode", "hold_reason_subcode", "holdreasonsubcode"),
    "log_tail": ("log_tail", "log", "logs", "tail", "output_tail", "lines"),
    "peak_memory": ("peak_memory", "max_rss", "maxrss", "peak_rss", "memory_used", "mem_used", "peak_mem", "rss", "memoryusage", "max_memory"),
    "memory_limit": ("memory_limit", "mem_limit", "limit_memory", "req_mem", "reqmem", "requested_memory", "memory_requested", "requestmemory", "alloc_mem", "memory"),
    "oom_kills": ("oom_kills", "oom_kill", "oom_kill_count", "oom"),
    "disk_left": ("disk_left", "disk_free", "free_disk", "disk_available", "scratch_free"),
    "wall_time": ("wall_time", "walltime", "elapsed", "elapsed_seconds", "wall", "runtime", "duration", "wall_seconds", "wall_clock"),
    "time_limit": ("time_limit", "timelimit", "wall_limit", "walltime_limit", "time_limit_seconds", "requested_walltime", "limit_seconds"),
    "node": ("node", "host", "hostname", "nodename", "node_name", "nodelist"),
    "transfer": ("transfer", "transfer_result", "transfer_error"),
    "stage": ("stage", "phase_of_job", "job_stage"),
}  # fmt: skip
_LOGS = ("stdout", "stdout_tail", "stderr", "stderr_tail", "output", "error", "error_message", "message", "msg", "traceback", "exception", "comment", "detail", "details")  # fmt: skip
_USED = frozenset(name for names in (*_ALIASES.values(), _LOGS) for name in names)

SLURM_STATES = {
    "BOOT_FAIL": "BF", "CANCELLED": "CA", "COMPLETED": "CD", "CONFIGURING": "CF", "COMPLETING": "CG", "DEADLINE": "DL", "FAILED": "F",
    "NODE_FAIL": "NF", "OUT_OF_MEMORY": "OOM", "PENDING": "PD", "PREEMPTED": "PR", "RUNNING": "R", "RESV_DEL_HOLD": "RD",
    "REQUEUE_FED": "RF", "REQUEUE_HOLD": "RH", "REQUEUED": "RQ", "RESIZING": "RS", "REVOKED": "RV", "SIGNALING": "SI",
    "SPECIAL_EXIT": "SE", "STAGE_OUT": "SO", "STOPPED": "ST", "SUSPENDED": "S", "TIMEOUT": "TO", "LAUNCH_FAILED": "LF",
    "RECONFIG_FAIL": "RC", "POWER_UP_NODE": "PU", "UPDATE_DB": "UD", "EXPEDITING": "EX",
}  # fmt: skip
_SHORT = {short: long for long, short in SLURM_STATES.items() if len(short) > 1}
_SCHEDULERS = {
    "slurm": Scheduler.SLURM, "sbatch": Scheduler.SLURM, "htcondor": Scheduler.HTCONDOR, "condor": Scheduler.HTCONDOR, "pbs": Scheduler.PBS,
    "torque": Scheduler.PBS, "openpbs": Scheduler.PBS, "pbspro": Scheduler.PBS, "lsf": Scheduler.LSF, "kubernetes": Scheduler.KUBERNETES,
    "k8s": Scheduler.KUBERNETES, "kube": Scheduler.KUBERNETES,
}  # fmt: skip
_NUMBER = re.compile(r"[-+]?[0-9]{1,15}(?:\.[0-9]{1,9})?(?:[eE][-+]?[0-9]{1,2})?")
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([KMGTP]?)(i?)(?:B|bytes|b)?(?:[nc]|/node|/cpu)?", re.I)
_CLOCK = re.compile(r"(?:([0-9]{1,5})-)?(?:([0-9]{1,6}):)?([0-9]{1,6}):([0-9]{1,2}(?:\.[0-9]{1,6})?)")
_SPAN = re.compile(
    r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?(ms|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?)", re.I
)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_BY = re.compile(r"\s+by\b.*$", re.I | re.S)
MOST_MORE = 200
DEEPEST = 8
LAST_SIGNAL = 127
"""Systems have fewer signals, but Slurm reports 0:125 when memory ran out."""


def read_evidence(plain: Mapping[str, Any]) -> Evidence:
    """Read one record, in whatever form its fields are."""
    values = {_key(name): value for name, value in plain.items()}
    known = {field: _first(values, names) for field, names in _ALIASES.items()}
    exit_code, signal = _exit(known["exit_code"])
    signal = _signal(known["signal"]) or signal
    if exit_code is not None:
        exit_code, signal = _wait_status(exit_code, signal)
    state, by = _state(known["scheduler_state"])
    reason = _text(known["scheduler_reason"])
    more = {
        str(name)[:200]: _shallow(value) for name, value in list(plain.items())[:MOST_MORE] if _key(name) not in _USED
    }
    if by:
        more["cancelled_by"] = by
    scheduler = _scheduler(known["scheduler"], state, reason, values)
    if scheduler is not Scheduler.PBS and exit_code is not None and -64 <= exit_code < 0:
        # Python's form of a death by a signal.
        signal, exit_code = signal or -exit_code, None
    return Evidence(
        exit_code=exit_code,
        signal=signal,
        scheduler=scheduler,
        scheduler_state=state,
        scheduler_reason="" if reason.lower() in ("none", "null", "n/a") else reason,
        hold_code=_whole(known["hold_code"]),
        hold_subcode=_whole(known["hold_subcode"]),
        log_tail=_log(known["log_tail"], [values[name] for name in _LOGS if name in values]),
        peak_memory=read_size(known["peak_memory"]),
        memory_limit=read_size(known["memory_limit"]),
        oom_kills=_count(known["oom_kills"]),
        disk_left=read_size(known["disk_left"]),
        wall_time=read_time(known["wall_time"]),
        time_limit=read_time(known["time_limit"]),
        node=_text(known["node"])[:255],
        transfer=_text(known["transfer"]),
        stage=_stage(known["stage"]),
        more=more,
    )


def finding_to_json(finding: CauseFinding) -> dict[str, Any]:
    """A finding, with the other readings in short."""
    return {
        "cause": str(finding.cause),
        "confidence": finding.confidence,
        "retry": str(finding.retry),
        "tries": finding.tries,
        "wait": finding.wait,
        "pattern": finding.pattern or None,
        "lines": list(finding.lines),
        "words": finding.words,
        "advice": finding.advice,
        "also": [
            {
                "cause": str(cause_finding.cause),
                "confidence": cause_finding.confidence,
                "pattern": cause_finding.pattern,
            }
            for cause_finding in finding.also
        ],
    }


def evidence_to_json(evidence: Evidence) -> dict[str, Any]:
    """The stored form of a record: without secrets and unknown values."""
    plain: dict[str, Any] = {
        "exit_code": evidence.exit_code,
        "signal": evidence.signal,
        "scheduler": str(evidence.scheduler) if evidence.scheduler is not Scheduler.NONE else None,
        "scheduler_state": evidence.scheduler_state or None,
        "scheduler_reason": redacted(evidence.scheduler_reason) or None,
        "hold_code": evidence.hold_code,
        "hold_subcode": evidence.hold_subcode,
        "log_tail": "\n".join(redacted_lines(evidence.log_tail)) or None,
        "peak_memory": evidence.peak_memory,
        "memory_limit": evidence.memory_limit,
        "oom_kills": evidence.oom_kills,
        "disk_left": evidence.disk_left,
        "wall_time": evidence.wall_time,
        "time_limit": evidence.time_limit,
        "node": evidence.node or None,
        "transfer": redacted(evidence.transfer) or None,
        "stage": str(evidence.stage) if evidence.stage else None,
    }
    known = {name: value for name, value in plain.items() if value is not None}
    more = redacted_value(dict(evidence.more))
    return {**(more if isinstance(more, dict) else {}), **known}


def _key(name: object) -> str:
    return (
        re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", str(name)).lower().replace("-", "_").replace(" ", "_")
        if not str(name).islower()
        else str(name).replace("-", "_")
    )


def _first(fields: Mapping[str, Any], names: Iterable[str]) -> Any:
    for name in names:
        value = fields.get(name)
        if value is not None and value != "":
            return value
    return None


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        # Kubernetes reports a reason and a message.
        return _text(
            " ".join(str(value[name]) for name in ("reason", "code", "message", "error", "status") if value.get(name))
            or json.dumps(_shallow(value))
        )
    if isinstance(value, list | tuple):
        return _text(" ".join(_text(entry) for entry in value[:50]))
    return str(value).strip().replace("\x00", "")[:LONGEST_WORD]


def _number(value: object) -> float | None:
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, int | float):
        return float(value) if abs(value) < 1e18 and math.isfinite(value) else None
    match = _NUMBER.search(value[:200]) if isinstance(value, str) else None
    return float(match[0]) if match else None


def _whole(value: object) -> int | None:
    number = _number(value)
    return int(number) if number is not None and abs(number) < 1 << 53 else None


def _count(value: object) -> int | None:
    if isinstance(value, str) and value.strip().lower() in ("true", "yes"):
        return 1
    if isinstance(value, str) and value.strip().lower() in ("false", "no"):
        return 0
    return _whole(value)


def _exit(value: object) -> tuple[int | None, int | None]:
    if isinstance(value, str):
        pair = re.fullmatch(r"\s*(-?[0-9]{1,9})\s*:\s*([0-9]{1,3})\s*", value)
        if pair:
            signal = int(pair[2])
            return int(pair[1]), signal if 0 < signal <= LAST_SIGNAL else None
        named = number_of(value) if not value.strip().lstrip("-").isdecimal() else None
        if named:
            return None, named
    if isinstance(value, Mapping):
        inner = _first(value, ("return_code", "exit_code", "code", "status"))
        number = inner.get("number") if isinstance(inner, Mapping) else inner
        return _whole(number), _signal(value.get("signal"))
    return (None if isinstance(value, bool) else _whole(value)), None


def _signal(value: object) -> int | None:
    if isinstance(value, Mapping):
        value = value.get("id", value.get("name", value.get("number")))
        if isinstance(value, Mapping):
            value = value.get("number")
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return int(value) if 0 < value <= LAST_SIGNAL else None
    text = str(value)[:60]
    whole = number_of(text)
    if whole is None:
        for word in re.findall(r"[A-Za-z]+[0-9]?|[0-9]+", text):
            whole = number_of(word) if word.upper().startswith("SIG") or word.isdecimal() else None
            if whole:
                return whole
    return whole


def _wait_status(code: int, signal: int | None) -> tuple[int, int | None]:
    """Codes above a byte: PBS adds 256 to a signal, others report the raw status of wait()."""
    if 256 < code <= 256 + 64:
        return code - 128, signal or code - 256
    if code > 255 and code % 256 == 0 and code <= 255 * 256:
        return code // 256, signal
    if 1 << 31 < code < 1 << 32:
        # A negative number that was read as an unsigned one.
        return code - (1 << 32), signal
    return code, signal


def _state(value: object) -> tuple[str, str]:
    if isinstance(value, list | tuple):
        value = next((entry for entry in value if entry), "")
    text = _text(value)
    match = _BY.search(text)
    by = match[0].strip()[2:].strip() if match else ""
    text = _BY.sub("", text).strip()
    if text.endswith("+"):
        stem = plain_word(text)
        full = [name for name in SLURM_STATES if plain_word(name).startswith(stem)]
        text = full[0] if stem and full else text.rstrip("+")
    return _SHORT.get(text, text)[:200], by[:100]


def _scheduler(value: object, state: str, reason: str, fields: Mapping[str, Any]) -> Scheduler:
    name = re.sub(r"[^a-z0-9]", "", _text(value).lower())
    for known, scheduler in _SCHEDULERS.items():
        if known in name:
            return scheduler
    if any(field.startswith(("hold_reason", "holdreason")) or field == "hold_code" for field in fields):
        return Scheduler.HTCONDOR
    if reason.startswith("TERM_") or state.startswith("TERM_") or state in ("EXIT", "PSUSP", "USUSP", "SSUSP"):
        return Scheduler.LSF
    if reason in _KUBERNETES or state in _KUBERNETES:
        return Scheduler.KUBERNETES
    return (
        Scheduler.SLURM
        if state in SLURM_STATES and state not in ("FAILED", "RUNNING", "PENDING", "COMPLETED", "SUSPENDED")
        else Scheduler.NONE
    )


_KUBERNETES = frozenset({
    "OOMKilled", "Evicted", "DeadlineExceeded", "ContainerCannotRun", "ErrImagePull", "ImagePullBackOff", "CrashLoopBackOff", "CreateContainerConfigError",
    "CreateContainerError", "InvalidImageName", "RunContainerError", "StartError", "NodeLost", "NodeShutdown", "Terminated", "BackoffLimitExceeded", "ContainerStatusUnknown",
    "FailedScheduling", "FailedMount", "Preempting", "NodeAffinity", "UnexpectedAdmissionError",
})  # fmt: skip


def _log(value: object, others: list[object]) -> tuple[str, ...]:
    parts = [_lines(entry) for entry in (value, *others)]
    kept: list[str] = []
    for part in parts:
        if part and part not in kept:
            kept.append(part)
    return bounded_lines("\n".join(kept))


def _lines(value: object) -> str:
    if value is None or isinstance(value, bool):
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return "\n".join(_lines(inner) for inner in value[-2_000:])
    return json.dumps(_shallow(value), ensure_ascii=False, default=str) if isinstance(value, Mapping) else str(value)


def read_size(value: object) -> int | None:
    """Bytes from a number or from texts such as `157M`."""
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip())
        if not match:
            return None
        power = " KMGTP".index((match[2] or " ").upper())
        return int(float(match[1]) * 1024**power)
    return None if isinstance(value, bool) else _positive(_whole(value))


def _positive(value: int | None) -> int | None:
    return value if value is not None and value >= 0 else None


def read_time(value: object) -> float | None:
    """Seconds from a number or from texts such as `1-02:03:04` and `90 s`."""
    if isinstance(value, str):
        text = value.strip()
        clock = _CLOCK.fullmatch(text)
        if clock:
            days, hours, minutes, seconds = (float(group or 0) for group in clock.groups())
            return days * 86_400 + hours * 3600 + minutes * 60 + seconds
        span = _SPAN.fullmatch(text)
        if span:
            unit = span[2].lower()
            return float(span[1]) * _SECONDS["ms" if unit == "ms" else unit[0]]
        if not _NUMBER.fullmatch(text):
            return None
    number = None if isinstance(value, bool) else _number(value)
    return number if number is not None and number >= 0 else None


def _stage(value: object) -> AttemptStage | None:
    text = re.sub(r"[ _]", "-", _text(value).lower())
    names = {"stage-in": "staging-in", "stagein": "staging-in", "stage-out": "staging-out", "stageout": "staging-out", "running": "executing", "execute": "executing", "execution": "executing", "clean-up": "cleanup"}  # fmt: skip
    text = names.get(text, text)
    return AttemptStage(text) if text in set(AttemptStage) else None


def _shallow(value: Any, depth: int = 0) -> Any:
    """A value limited in depth and length for storage."""
    if isinstance(value, str):
        return value[:LONGEST_WORD]
    if isinstance(value, Mapping):
        return (
            {str(key)[:200]: _shallow(entry, depth + 1) for key, entry in list(value.items())[:MOST_MORE]}
            if depth < DEEPEST
            else "…"
        )
    if isinstance(value, list | tuple):
        return [_shallow(entry, depth + 1) for entry in value[:MOST_MORE]] if depth < DEEPEST else "…"
    return value if value is None or isinstance(value, bool | int | float) else str(value)[:LONGEST_WORD]
