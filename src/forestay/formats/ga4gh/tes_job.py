"""A TES task as a Forestay job: its specification, its labels, and the instructions for its pilot.

A task with outputs becomes two jobs. The first runs its executors and commits their outputs, as every job does. The second waits, held, until the
first has ended, and then transfers the committed files to the addresses that the client named: so only committed outputs ever appear there, and a failed
transfer is recovered without running anything again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from uuid import NAMESPACE_URL, uuid5

from forestay.domain.jobs import inputs as job_inputs
from forestay.domain.jobs.amounts import duration_of
from forestay.domain.jobs.job_document import HIGHEST_PRIORITY
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import RetryPolicy, Specification
from forestay.formats.ga4gh.tes_reading import read_shown_task
from forestay.formats.ga4gh.tes_task import FileType, Json, TaskDocument, TaskInput, TaskOutput, asked_json

TES = "tes"
"""The field of a specification for the task."""
MARK = "forestay.tes"
"""The label that marks jobs of tasks: `task`, or `outputs` for a job that transfers outputs."""
BRINGS = "forestay.tes.outputs"
"""The label of a task's job that has another for its outputs."""
KEY = "forestay.key"
"""The idempotency key as a tag, for clients that cannot send headers."""
TASK, OUTPUTS = "task", "outputs"
HOLDER = "its task"
"""The holder of an output job until the task has ended."""
MAX_TAGS = 28
"""In addition a job has labels of ours, and at most 32 in all."""
PARAMETERS = ("max_attempts", "priority", "wall")
"""The supported backend parameters."""
GIB = 1 << 30
_FIT_KEY = re.compile(r"[A-Za-z0-9._/-]{1,63}")
_ODD = re.compile(r"[\x00-\x1f\x7f]")
_YEAR = 31_536_000
_SOON = 100
"""An output job precedes others of its priority: its task's work is done."""


class Asked(NamedTuple):
    """The requests in backend parameters."""

    wall: int | None = None
    max_attempts: int = 1
    priority: int = 0
    downstream: str = ""
    """The task server that it is forwarded to; empty: pilots run it."""
    callback: str = ""
    """The address that is notified of the end."""


class ParameterRefused(ValueError):
    """A backend parameter that cannot be applied."""


def known_parameters(task: TaskDocument) -> tuple[TaskDocument, Asked, tuple[str, ...]]:
    """The task without unsupported backend parameters, the requests of the others, and a warning for each that was left out.

    `ParameterRefused` for an invalid value, and for any unknown parameter if the client requires all to be applied.
    """
    resources = task.resources
    if resources is None or not resources.backend_parameters:
        return task, Asked(), ()
    values = {name.lower(): value for name, value in resources.backend_parameters.items()}
    unknown = sorted(set(values) - set(PARAMETERS))
    if unknown and resources.backend_parameters_strict:
        raise ParameterRefused(
            f"backend parameters that are not known here: {', '.join(unknown)}; there is {', '.join(PARAMETERS)}"
        )
    kept = {name: value for name, value in resources.backend_parameters.items() if name.lower() in PARAMETERS}
    warnings = tuple(f"the backend parameter {name} is not known here and was ignored" for name in unknown)
    changed = replace(task, resources=replace(resources, backend_parameters=kept))
    return changed, _asked(values), warnings


def asked_on(task: TaskDocument, downstream: str) -> Asked:
    """The requests to us for a forwarded task: unknown parameters are left to the other server."""
    backend_parameters = task.resources.backend_parameters if task.resources is not None else {}
    return _asked({name.lower(): value for name, value in backend_parameters.items()})._replace(downstream=downstream)


def _asked(fields: Mapping[str, str]) -> Asked:
    try:
        wall = _seconds(fields["wall"]) if "wall" in fields else None
        attempts = int(fields.get("max_attempts", "1"))
        priority = int(fields.get("priority", "0"))
    except ValueError as error:
        raise ParameterRefused(f"invalid backend parameter: {error}") from error
    if not 1 <= attempts <= 100 or abs(priority) > HIGHEST_PRIORITY or not 0 < (wall or 1) <= _YEAR:
        raise ParameterRefused(
            "max_attempts is from 1 to 100, priority from -1000 to 1000, wall a time of at most a year"
        )
    return Asked(wall, attempts, priority)


def _seconds(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else duration_of(text)


def specification_of(task: TaskDocument, tenant: str, asked: Asked, warnings: Sequence[str]) -> Specification:
    """The specification of a task's job, still without an id."""
    first = task.executors[0]
    # A forwarded task is staged where it runs.
    inputs = () if asked.downstream else task.inputs
    kept: Json = {"task": asked_json(task)}
    if warnings:
        kept["warnings"] = list(warnings)
    return Specification(
        id="",
        tenant=tenant,
        name=job_name(task),
        command=first.command,
        resources=resources_of(task, asked),
        inputs=tuple(
            job_inputs.JobInput(staged_name(place), task_input.url)
            for place, task_input in enumerate(inputs)
            if is_staged(task_input)
        ),
        retry=RetryPolicy(asked.max_attempts),
        extra={TES: kept},
    )


def outputs_specification(tenant: str) -> Specification:
    """The specification of all output jobs; the outputs are a parameter."""
    return Specification(
        id="",
        tenant=tenant,
        name="outputs of a task",
        command=("bring-outputs",),
        retry=RetryPolicy(3, 10),
        extra={TES: {"outputs": True}},
    )


def outputs_priority(priority: int) -> int:
    return min(HIGHEST_PRIORITY, priority + _SOON)


def outputs_job(job: str) -> str:
    """The id of the job that transfers the outputs of a task."""
    return str(uuid5(NAMESPACE_URL, f"forestay:tes-outputs:{job}"))


def job_name(task: TaskDocument) -> str:
    """A valid name for a job."""
    return _ODD.sub(" ", task.name)[:200].strip() or "task"


def resources_of(task: TaskDocument, asked: Asked) -> Resources:
    wanted = task.resources
    if wanted is None:
        return Resources(wall=asked.wall)
    return Resources(
        cpus=max(1, wanted.cpu_cores or 1),
        memory=round((wanted.ram_gb or 0) * GIB),
        disk=round((wanted.disk_gb or 0) * GIB),
        wall=asked.wall,
    )


def labels_of(task: TaskDocument, downstream: str = "") -> dict[str, str]:
    """The labels of a job: the tags that are valid labels, so that rules and searches see them, and our own marks."""
    labels = {key: value for key, value in task.tags.items() if fits(key, value)}
    labels[MARK] = TASK
    if task.outputs and not downstream:
        labels[BRINGS] = "yes"
    return labels


def fits(key: str, value: str) -> bool:
    """Whether a tag can be a label."""
    ours = key in (MARK, BRINGS)
    return not ours and _FIT_KEY.fullmatch(key) is not None and len(value) <= 200 and not _ODD.search(value)


def staged_name(place: int) -> str:
    """The name under which the pilot stages an input before it is moved to the path that the task requires."""
    return f"in/{place}"


def is_staged(task_input: TaskInput) -> bool:
    """Whether an input is staged like those of any job."""
    return bool(task_input.url) and not task_input.content and task_input.type is FileType.FILE


def task_of(spec: Specification) -> TaskDocument | None:
    """The task in a specification; None for other jobs."""
    kept = spec.extra.get(TES)
    return read_shown_task(kept["task"]) if isinstance(kept, dict) and "task" in kept else None


def warnings_of(spec: Specification) -> list[str]:
    kept = spec.extra.get(TES)
    return [str(warning) for warning in kept.get("warnings", ())] if isinstance(kept, dict) else []


def plan_of(task: TaskDocument, containers: str) -> Json:
    """The plan that the pilot needs to run a task."""
    return {
        "executors": asked_json(task)["executors"],
        "files": [
            {"path": task_input.path, "name": staged_name(place)}
            for place, task_input in enumerate(task.inputs)
            if is_staged(task_input)
        ],
        "contents": [
            {"path": task_input.path, "content": task_input.content} for task_input in task.inputs if not task_input.url
        ],
        "folders": [
            {"path": task_input.path, "source": job_inputs.local_path(task_input.url)}
            for task_input in task.inputs
            if task_input.url and task_input.type is FileType.DIRECTORY
        ],
        "volumes": list(task.volumes),
        "outputs": [{"path": output.path, "type": output.type.value} for output in task.outputs],
        "containers": containers,
    }


def output_json(output: TaskOutput) -> dict[str, Any]:
    """An output in the form that the transfer needs."""
    return {"path": output.path, "url": output.url, "path_prefix": output.path_prefix, "type": output.type.value}


def bucket_of(url: str) -> tuple[str, str] | None:
    """The bucket and the key of an S3 address; None for any other."""
    parts = urlsplit(url) if url.startswith("s3://") else None
    return (parts.netloc, parts.path.lstrip("/")) if parts is not None and parts.netloc else None
