"""The log of a TES task: that of the deciding one of its attempts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from forestay.domain.jobs.claim import note_of
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, JobDocument
from forestay.formats.ga4gh.tes_task import ExecutorLog, OutputFile, TaskLog
from forestay.formats.jobs.job_public import time_text

_PILOT = re.compile(r"\[pilot: (.*?)\]\s*\Z", re.DOTALL)
"""The pilot's own message, at the end of the printed output."""


def task_log(
    document: JobDocument, warnings: Sequence[str], notes: Mapping[str, Any], brought: Mapping[str, Any]
) -> TaskLog | None:
    """The log entry for a job; None before there is anything to report. ``told`` and ``brought`` are the records of the deciding end, and of the output job's."""
    last = document.winner or document.last
    if last is None and document.claim is None and not warnings:
        return None
    report = notes.get("task")
    report = report if isinstance(report, dict) else {}
    sent = brought.get("task")
    sent = sent if isinstance(sent, dict) else {}
    system = [*warnings, *_system(last, notes, report), *_system(None, brought, sent)]
    metadata = {"job": document.id, "attempt": str(document.attempt)}
    if host := last.host if last is not None else document.claim.host if document.claim is not None else "":
        metadata["host"] = host
    started, ended = _times(document, last)
    return TaskLog(
        logs=tuple(_executor(record) for record in _records(report.get("logs"))),
        outputs=tuple(
            OutputFile(str(record.get("url")), str(record.get("path")), int(record.get("size_bytes") or 0))
            for record in _records(sent.get("outputs") or report.get("outputs"))
        ),
        metadata=metadata,
        start_time=started,
        end_time=ended,
        system_logs=tuple(system),
    )


def _times(document: JobDocument, last: AttemptResult | None) -> tuple[str, str]:
    if last is not None and last.started is not None:
        end = last.started + round(1000 * (last.wall or 0)) if document.final else None
        return time_text(last.started) or "", time_text(end) or ""
    started = document.claim.granted if document.claim is not None else None
    return time_text(started) or "", (time_text(document.changed) or "") if document.final else ""


def _system(last: AttemptResult | None, notes: Mapping[str, Any], report: Mapping[str, Any]) -> list[str]:
    """Forestay's own messages about an end."""
    words = [str(line) for line in report.get("system", ())]
    if last is not None and last.outcome is AttemptOutcome.FAILURE:
        words.append(f"attempt {last.token.attempt} ended by {note_of(last).partition('; claim')[0]}")
    tail = notes.get("log_tail")
    match = _PILOT.search(tail) if isinstance(tail, str) else None
    return [*words, match[1]] if match is not None else words


def _executor(data: Mapping[str, Any]) -> ExecutorLog:
    return ExecutorLog(
        exit_code=int(data.get("exit_code", 0)),
        start_time=str(data.get("start_time", "")),
        end_time=str(data.get("end_time", "")),
        stdout=str(data.get("stdout", "")),
        stderr=str(data.get("stderr", "")),
    )


def _records(data: object) -> list[Mapping[str, Any]]:
    return [record for record in data if isinstance(record, dict)] if isinstance(data, list) else []
