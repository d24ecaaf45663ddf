"""Tasks of GA4GH TES 1.1: their values, and the three views in which they are shown.

A task is read by `tes_reading` and shown here. Missing texts are empty, missing numbers are None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

Json = dict[str, Any]


class TaskState(StrEnum):
    """The eleven states of the specification; Forestay itself never shows PAUSED and PREEMPTED."""

    UNKNOWN = "UNKNOWN"
    QUEUED = "QUEUED"
    INITIALIZING = "INITIALIZING"
    """Its inputs are being staged."""
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    COMPLETE = "COMPLETE"
    """Its executors succeeded, and its outputs are at their requested addresses."""
    EXECUTOR_ERROR = "EXECUTOR_ERROR"
    SYSTEM_ERROR = "SYSTEM_ERROR"
    CANCELED = "CANCELED"
    PREEMPTED = "PREEMPTED"
    """Some clients poll such a task for ever."""
    CANCELING = "CANCELING"


ENDED = frozenset(
    {
        TaskState.COMPLETE,
        TaskState.EXECUTOR_ERROR,
        TaskState.SYSTEM_ERROR,
        TaskState.CANCELED,
        TaskState.PREEMPTED,
    }
)
"""States that no task leaves."""


class TaskView(StrEnum):
    """How much of a task is shown."""

    MINIMAL = "MINIMAL"
    """Its id and its state, nothing else."""
    BASIC = "BASIC"
    """All but potentially long fields: the contents of inputs, the output of executors, system logs."""
    FULL = "FULL"


class FileType(StrEnum):
    """The type of an input or output."""

    FILE = "FILE"
    DIRECTORY = "DIRECTORY"


@dataclass(frozen=True, slots=True)
class TaskInput:
    """A file or folder that exists before the first executor starts."""

    path: str
    """The absolute path at which executors find it in the container."""
    url: str = ""
    content: str = ""
    """The file itself; the address is then ignored."""
    type: FileType = FileType.FILE
    name: str = ""
    description: str = ""
    streamable: bool | None = None


@dataclass(frozen=True, slots=True)
class TaskOutput:
    """A file, folder or pattern of files that is transferred after the last executor."""

    path: str
    url: str
    path_prefix: str = ""
    """The prefix that is removed from the path of each file that matches, before the rest is appended to the address."""
    type: FileType = FileType.FILE
    name: str = ""
    description: str = ""

    @property
    def wildcard(self) -> bool:
        """Whether the path is a shell pattern."""
        return has_wildcard(self.path)


@dataclass(frozen=True, slots=True)
class TaskExecutor:
    """One command in one image."""

    image: str
    command: tuple[str, ...]
    workdir: str = ""
    stdin: str = ""
    stdout: str = ""
    stderr: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    ignore_error: bool = False
    """Whether the next executor starts even if this one failed."""


@dataclass(frozen=True, slots=True)
class TaskResources:
    """The resources that a task needs; None where the server may choose."""

    cpu_cores: int | None = None
    preemptible: bool | None = None
    ram_gb: float | None = None
    disk_gb: float | None = None
    zones: tuple[str, ...] = ()
    backend_parameters: Mapping[str, str] = field(default_factory=dict)
    backend_parameters_strict: bool = False


@dataclass(frozen=True, slots=True)
class ExecutorLog:
    """The result of one executor."""

    exit_code: int
    start_time: str = ""
    end_time: str = ""
    stdout: str = ""
    """The end of its standard output."""
    stderr: str = ""


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file that was transferred."""

    url: str
    path: str
    size_bytes: int = 0
    """Shown as text: JSON readers lose digits of large numbers."""


@dataclass(frozen=True, slots=True)
class TaskLog:
    """One attempt at a task."""

    logs: tuple[ExecutorLog, ...] = ()
    outputs: tuple[OutputFile, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    start_time: str = ""
    end_time: str = ""
    system_logs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskDocument:
    """A task as requested, with what the server adds to it."""

    executors: tuple[TaskExecutor, ...]
    inputs: tuple[TaskInput, ...] = ()
    outputs: tuple[TaskOutput, ...] = ()
    resources: TaskResources | None = None
    volumes: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    description: str = ""
    id: str = ""
    state: TaskState = TaskState.UNKNOWN
    creation_time: str = ""
    logs: tuple[TaskLog, ...] = ()


def has_wildcard(path: str) -> bool:
    """Whether a path contains a wildcard (POSIX, section 2.13)."""
    return any(sign in path for sign in "*?[")


def asked_json(task: TaskDocument) -> Json:
    """The client's request, without fields that only a server sets."""
    resources = _given(asdict(task.resources)) if task.resources is not None else {}
    return _given(
        {
            "name": task.name,
            "description": task.description,
            "inputs": [_given(asdict(task_input)) for task_input in task.inputs],
            "outputs": [_given(asdict(output)) for output in task.outputs],
            "resources": resources,
            "executors": [_given(asdict(executor)) for executor in task.executors],
            "volumes": list(task.volumes),
            "tags": dict(task.tags),
        }
    )


def task_json(task: TaskDocument, view: TaskView = TaskView.FULL) -> Json:
    """A task in one of its views."""
    shown: Json = {"id": task.id, "state": task.state.value}
    if view is TaskView.MINIMAL:
        return shown
    shown |= asked_json(task)
    if view is TaskView.BASIC:
        for input_ in shown.get("inputs", ()):
            input_.pop("content", None)
    if task.creation_time:
        shown["creation_time"] = task.creation_time
    if task.logs:
        shown["logs"] = [_log_json(log, view) for log in task.logs]
    return shown


def _log_json(log: TaskLog, view: TaskView) -> Json:
    """A log as JSON. Its two lists are always present: the specification requires them."""
    hidden = () if view is TaskView.FULL else ("stdout", "stderr")
    shown: Json = {
        "logs": [_executor_json(executor_log, hidden) for executor_log in log.logs],
        "outputs": [
            {"url": output.url, "path": output.path, "size_bytes": str(output.size_bytes)} for output in log.outputs
        ],
    }
    values = {"metadata": dict(log.metadata), "start_time": log.start_time, "end_time": log.end_time}
    if view is TaskView.FULL:
        values["system_logs"] = list(log.system_logs)
    return shown | _given(values)


def _executor_json(log: ExecutorLog, hidden: Iterable[str]) -> Json:
    shown = _given({name: value for name, value in asdict(log).items() if name not in hidden})
    return shown | {"exit_code": log.exit_code}


def _given(values: Mapping[str, Any]) -> Json:
    """A record without missing values: None, and empty texts, lists and records."""
    return {
        name: _plain(value)
        for name, value in values.items()
        if value is not None and not (isinstance(value, str | tuple | list | dict) and not value)
    }


def _plain(value: Any) -> Any:
    if isinstance(value, StrEnum):
        return value.value
    return list(value) if isinstance(value, tuple) else value


def tags_match(tags: Mapping[str, str], wanted: Iterable[tuple[str, str]]) -> bool:
    """Whether a task has all these tags; an empty value matches any value of that key."""
    return all(key in tags and value in ("", tags[key]) for key, value in wanted)
