"""What rules may ask about the failure of a job, as the typed context has it."""

from __future__ import annotations

from datetime import UTC, datetime

from forestay.domain.exceptions.causes.cause import CauseFinding
from forestay.domain.exceptions.evidence.evidence import Evidence, Scheduler
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.jobs.job_document import JobDocument
from forestay.domain.rules.context import LONGEST_TEXT, MOST_MEMBERS, NOTHING_KNOWN, Context

_OPTIONAL = (
    "exit_code", "signal", "hold_code", "hold_subcode", "peak_memory", "memory_limit", "oom_kills", "disk_left", "wall_time", "time_limit",
)  # fmt: skip


def failure_context(
    document: JobDocument, finding: CauseFinding, evidence: Evidence, *, flow: str, task: str, now: int
) -> Context:
    """The context of a job whose last attempt did not end well. `flow` is the flow's name; both are empty for a job that no run asked for."""
    needs, flow_ref, moment = document.resources, document.flow_ref, datetime.fromtimestamp(now / 1000, UTC)
    values: dict[str, object] = {
        "exception.type": ExceptionType.ABORT.value,
        "exception.task": task,
        "cause": finding.cause.value,
        "confidence": float(finding.confidence),
        "retry": finding.retry.value,
        "pattern": finding.pattern,
        "job.id": document.id,
        "job.name": document.name,
        "job.owner": document.owner,
        "job.team": document.team,
        "job.labels": dict(document.labels),
        "job.parameters": dict(document.parameters),
        "job.index": document.index,
        "job.priority": document.priority,
        "job.attempt": document.attempt,
        "job.generation": document.generation,
        "job.failures": document.failures,
        "job.releases": document.releases,
        "job.cpus": needs.cpus,
        "job.memory": needs.memory,
        "job.disk": needs.disk,
        "job.gpus": needs.gpus,
        "job.wall": needs.wall,
        "job.age": max(0.0, (now - document.created) / 1000),
        "evidence.scheduler": evidence.scheduler.value if evidence.scheduler is not Scheduler.NONE else "none",
        "evidence.scheduler_state": evidence.scheduler_state,
        "evidence.scheduler_reason": evidence.scheduler_reason,
        "evidence.log_tail": [line[:LONGEST_TEXT] for line in evidence.log_tail[-MOST_MEMBERS:]],
        "evidence.node": evidence.node,
        "evidence.transfer": evidence.transfer,
        "evidence.stage": evidence.stage.value if evidence.stage else "",
        "evidence.more": dict(evidence.more),
        "run.id": flow_ref.run if flow_ref is not None else "",
        "run.flow": flow,
        "run.version": flow_ref.flow if flow_ref is not None else "",
        "run.depth": len(flow_ref.above) if flow_ref is not None else 0,
        "task.name": task,
        "host.name": evidence.node,
        "now.hour": moment.hour,
        "now.weekday": moment.isoweekday(),
    }
    for name in _OPTIONAL:
        value = getattr(evidence, name)
        values[f"evidence.{name}"] = (
            float(value) if value is not None and name.endswith(("_time", "time_limit")) else value
        )
    return {**NOTHING_KNOWN, **values}
