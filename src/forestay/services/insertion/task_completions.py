"""The request sent to a task server for a job, and the conversion of the task's final state to the result of the job's attempt."""

from __future__ import annotations

from typing import Any

from forestay.domain.jobs.conversation import DOWNSTREAM_TAG, tags_of
from forestay.domain.jobs.inputs import filled_text
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, Claim, JobDocument
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import Specification
from forestay.formats.ga4gh.tes_job import PARAMETERS, TES
from forestay.formats.ga4gh.tes_task import TaskDocument, TaskLog, TaskState, task_json
from forestay.formats.jobs.job_public import time_millis
from forestay.services.jobs.job_completions import CompletionReport

Json = dict[str, Any]

GIB = 1 << 30
MOST_LOG = 64 * 1024
LIVE = (TaskState.QUEUED, TaskState.INITIALIZING, TaskState.RUNNING)
"""States for which tasks are listed: those in which tasks spend their time."""
_REASONS = {
    TaskState.COMPLETE: "exit",
    TaskState.EXECUTOR_ERROR: "exit",
    TaskState.SYSTEM_ERROR: "downstream-error",
    TaskState.PREEMPTED: "downstream-preempted",
    TaskState.CANCELED: "downstream-cancelled",
}
LOST = "downstream-lost"
REFUSED = "downstream-refused"


def body_of(document: JobDocument, spec: Specification, image: str) -> Json:
    """The task that is created for a job's attempt: its client's request, with the job's present resources and the tags of the conversation.

    A job that was not submitted as a task becomes its command in an image.
    """
    kept = spec.extra.get(TES)
    asked = kept.get("task") if isinstance(kept, dict) else None
    body = dict(asked) if asked is not None else _command_task(document, spec, image)
    tags = {name: value for name, value in body.get("tags", {}).items() if name != DOWNSTREAM_TAG}
    body["tags"] = tags | tags_of(document)
    resources = body.get("resources")
    if isinstance(resources, dict) and isinstance(parameters := resources.get("backend_parameters"), dict):
        # Parameters for this server are not passed on to the next.
        kept = {name: value for name, value in parameters.items() if name.lower() not in PARAMETERS}
        body["resources"] = {**resources, "backend_parameters": kept}
    # Changes made by rules since the request are included.
    if document.resources != spec.resources or asked is None:
        body["resources"] = dict(body.get("resources", {})) | _resources(document.resources)
    return body


def _command_task(document: JobDocument, spec: Specification, image: str) -> Json:
    environment = {
        name: filled_text(value, document.parameters, document.index) for name, value in spec.environment.items()
    }
    executor: Json = {
        "image": spec.container or image,
        "command": [filled_text(word, document.parameters, document.index) for word in spec.command],
    }
    if environment:
        executor["env"] = environment
    return {"name": document.name, "executors": [executor], "tags": dict(document.labels)}


def _resources(need: Resources) -> Json:
    resources: Json = {"cpu_cores": need.cpus}
    if need.memory:
        resources["ram_gb"] = need.memory / GIB
    if need.disk:
        resources["disk_gb"] = need.disk / GIB
    return resources


def end_of(document: JobDocument, claim: Claim, task: TaskDocument, *, where: str, now: int) -> CompletionReport:
    """The completion of an attempt, as reported by the server that ran its task."""
    log = task.logs[-1] if task.logs else TaskLog()
    well = task.state is TaskState.COMPLETE
    ran = log.logs[-1] if log.logs else None
    executed = task.state in (TaskState.COMPLETE, TaskState.EXECUTOR_ERROR)
    started, ended = _time(log.start_time), _time(log.end_time)
    ending = AttemptResult(
        token=document.token,
        claim=claim.id,
        outcome=AttemptOutcome.OK if well else AttemptOutcome.FAILURE,
        reason=_REASONS.get(task.state, "downstream-error"),
        exit_code=(ran.exit_code if ran is not None else 0 if well else None) if executed else None,
        started=started,
        wall=(ended - started) / 1000 if started is not None and ended is not None and ended >= started else None,
        host=where,
        stage=None if well or executed else "executing",
    )
    text = _words(log)
    shown = task_json(TaskDocument(executors=(), logs=(log,)))["logs"][0] if task.logs else {}
    task_data = {"logs": shown.get("logs", []), "outputs": shown.get("outputs", []), "system": list(log.system_logs)}
    return CompletionReport(document.id, ending, text[-MOST_LOG:], len(text), task=task_data)


def failure_of(document: JobDocument, claim: Claim, reason: str, words: str, *, where: str) -> CompletionReport:
    """The completion of an attempt whose server reports nothing, or a failure."""
    ending = AttemptResult(
        document.token, claim.id, AttemptOutcome.FAILURE, reason=reason, host=where, stage="executing"
    )
    return CompletionReport(document.id, ending, words[-MOST_LOG:], len(words))


def _words(log: TaskLog) -> str:
    """The output of the executors and the notes of the server, in chronological order as far as that is known."""
    texts = [text for executor_log in log.logs for text in (executor_log.stdout, executor_log.stderr) if text]
    texts += [text for text in log.system_logs if text]
    return "".join(text if text.endswith("\n") else f"{text}\n" for text in texts)


def _time(text: str) -> int | None:
    try:
        return time_millis(text) if text else None
    except (ValueError, OverflowError):
        return None
