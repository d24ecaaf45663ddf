"""Runs as GA4GH's Workflow Execution Service 1.1 describes them: its tasks are jobs or runs of sub-flows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

import orjson

from forestay.domain.jobs.job_document import FINAL, JobDocument, State
from forestay.formats.jobs.job_json import Json

VERSION = "1.1.0"
MAX_TEXT = 2000
MAX_TAGS = 100
PARAMETERS = "workflow_params"
TEXTS = ("workflow_type", "workflow_type_version", "workflow_url", "workflow_engine", "workflow_engine_version")
OBJECTS = (PARAMETERS, "tags", "workflow_engine_parameters")
"""Fields that contain JSON as text."""
NEEDED = ("workflow_type", "workflow_type_version", "workflow_url")


class WesRunState(StrEnum):
    """The state of a run. Two states of the interface are never used: clients take them for final, or wait for ever."""

    UNKNOWN = "UNKNOWN"
    """The engine no longer has the run, and its end was not recorded."""
    QUEUED = "QUEUED"
    INITIALIZING = "INITIALIZING"
    RUNNING = "RUNNING"
    """Also during recovery, holds and compensation after a failure: it has not ended."""
    COMPLETE = "COMPLETE"
    EXECUTOR_ERROR = "EXECUTOR_ERROR"
    SYSTEM_ERROR = "SYSTEM_ERROR"
    """The run itself was interrupted, not by its jobs."""
    CANCELED = "CANCELED"
    CANCELING = "CANCELING"


ENDED = frozenset({WesRunState.COMPLETE, WesRunState.EXECUTOR_ERROR, WesRunState.SYSTEM_ERROR, WesRunState.CANCELED})
_OF_RUNS: Mapping[str, WesRunState] = {
    "running": WesRunState.RUNNING,
    "suspended": WesRunState.RUNNING,
    "held": WesRunState.RUNNING,
    "asking": WesRunState.RUNNING,
    "stopping": WesRunState.RUNNING,
    "compensating": WesRunState.RUNNING,
    "finished": WesRunState.COMPLETE,
    "completed": WesRunState.COMPLETE,
    "forced_complete": WesRunState.COMPLETE,
    "failed": WesRunState.EXECUTOR_ERROR,
    "undone": WesRunState.EXECUTOR_ERROR,
    "removed": WesRunState.CANCELED,
    "terminated": WesRunState.SYSTEM_ERROR,
    "broken": WesRunState.SYSTEM_ERROR,
}
RUN_STATES = tuple(_OF_RUNS)
_OF_JOBS: Mapping[State, WesRunState] = {
    State.AVAILABLE: WesRunState.QUEUED,
    State.COMPLETED: WesRunState.COMPLETE,
    State.FORCED_COMPLETE: WesRunState.COMPLETE,
    State.FAILED: WesRunState.EXECUTOR_ERROR,
    State.CANCELLED: WesRunState.CANCELED,
}


def state_of(run_state: str, *, cancelled: bool = False) -> WesRunState:
    """The state of a run in the interface's terms, given whether its cancellation was requested."""
    state = _OF_RUNS.get(run_state, WesRunState.UNKNOWN)
    if cancelled and state is WesRunState.EXECUTOR_ERROR:
        return WesRunState.CANCELED
    if cancelled and state is WesRunState.RUNNING:
        return WesRunState.CANCELING
    return state


class RequestError(NamedTuple):
    """An error in a request."""

    at: str
    detail: str


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A client's request."""

    type: str
    type_version: str
    url: str
    params: Mapping[str, object] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    engine: str = ""
    engine_version: str = ""
    engine_parameters: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> Json:
        """The request in the form of a run's log."""
        out: Json = {
            "workflow_params": dict(self.params),
            "workflow_type": self.type,
            "workflow_type_version": self.type_version,
            "workflow_url": self.url,
            "tags": dict(self.tags),
            "workflow_engine_parameters": dict(self.engine_parameters),
        }
        if self.engine:
            out["workflow_engine"] = self.engine
        if self.engine_version:
            out["workflow_engine_version"] = self.engine_version
        return out


def request_from_json(known: Mapping[str, Any]) -> RunRequest:
    """Read the stored form of a request."""
    return RunRequest(
        known["workflow_type"],
        known["workflow_type_version"],
        known["workflow_url"],
        known["workflow_params"],
        known["tags"],
        known.get("workflow_engine", ""),
        known.get("workflow_engine_version", ""),
        known["workflow_engine_parameters"],
    )


def read_request(fields: Mapping[str, str]) -> tuple[RunRequest | None, Sequence[RequestError]]:
    """Read a request from a form; returns it, or all errors."""
    wrong = [RequestError(name, "unknown field") for name in sorted(fields.keys() - {*TEXTS, *OBJECTS})[:20]]
    wrong += [RequestError(name, "it is required") for name in NEEDED if not fields.get(name)]
    wrong += [
        RequestError(name, f"it has at most {MAX_TEXT} characters")
        for name in TEXTS
        if len(fields.get(name, "")) > MAX_TEXT
    ]
    objects: dict[str, Mapping[str, Any]] = {}
    for name in OBJECTS:
        objects[name], problems = _object(name, fields.get(name, ""), texts=name != PARAMETERS)
        wrong += problems
    if fields.get("workflow_engine_version") and not fields.get("workflow_engine"):
        wrong.append(RequestError("workflow_engine", "it is required together with its version"))
    if wrong:
        return None, wrong
    known = {name: fields.get(name, "") for name in TEXTS}
    return request_from_json(known | objects), ()


def _object(name: str, text: str, *, texts: bool) -> tuple[Mapping[str, Any], list[RequestError]]:
    if not text.strip():
        return {}, []
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return {}, [RequestError(name, f"invalid JSON: {error}")]
    if value is None:
        return {}, []
    if not isinstance(value, dict):
        return {}, [RequestError(name, "expected an object")]
    if not texts:
        return value, []
    if len(value) > MAX_TAGS:
        return {}, [RequestError(name, f"it has at most {MAX_TAGS} members")]
    bad = [key for key, entry in value.items() if not isinstance(entry, str) or len(key) + len(entry) > MAX_TEXT]
    return value, [RequestError(f"{name}.{key[:100]}", "expected a text of limited length") for key in bad[:20]]


def with_places(value: object, places: Mapping[str, str]) -> object:
    """The parameters with names of attachments replaced by the places where these were stored."""
    if isinstance(value, str):
        return places.get(value, value)
    if isinstance(value, Mapping):
        return {name: with_places(single, places) for name, single in value.items()}
    if isinstance(value, Sequence):
        return [with_places(entry, places) for entry in value]
    return value


def wes_time(millis: int | None) -> str | None:
    """A time in whole seconds, as the interface writes it."""
    return None if millis is None else datetime.fromtimestamp(millis / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def summary_json(run: str, state: WesRunState, started: int, ended: int | None, tags: Mapping[str, str]) -> Json:
    """A run in a list."""
    times = {"start_time": wes_time(started), "end_time": wes_time(ended)}
    known = {name: at for name, at in times.items() if at is not None}
    return {"run_id": run, "state": state.value, "tags": dict(tags), **known}


def run_log_json(
    run: str,
    request: RunRequest,
    state: WesRunState,
    *,
    name: str,
    started: int,
    ended: int | None,
    outputs: Mapping[str, Any],
    reason: str,
    url: str,
) -> Json:
    """A whole run; `url` is its own."""
    log: Json = {"name": name, "cmd": [], "start_time": wes_time(started), "system_logs": [reason] if reason else []}
    if ended is not None:
        log["end_time"] = wes_time(ended)
    if state in ENDED:
        log["exit_code"] = 0 if state is WesRunState.COMPLETE else 1
    log |= {"stdout": f"{url}/stdout", "stderr": f"{url}/stderr"}
    return {
        "run_id": run,
        "request": request.as_json(),
        "state": state.value,
        "run_log": log,
        "task_logs_url": f"{url}/tasks",
        "task_logs": None,
        "outputs": dict(outputs),
    }


def task_json(document: JobDocument, command: Sequence[str], *, run_url: str, tes_url: str) -> Json:
    """A job of a run. Its standard output and error are one log."""
    last = document.last
    out: Json = {
        "id": document.id,
        "name": document.name or (document.flow_ref.work if document.flow_ref else document.id),
        "cmd": list(command),
        "stdout": f"{run_url}/tasks/{document.id}/stdout",
        "stderr": f"{run_url}/tasks/{document.id}/stderr",
        "system_logs": [f"state: {_job_state(document)}"],
        "tes_uri": f"{tes_url}/tasks/{document.id}",
    }
    if last is not None and last.host:
        out["system_logs"].append(f"host: {last.host}")
    if last is not None and last.started is not None:
        out["start_time"] = wes_time(last.started)
    if document.state in FINAL:
        out["end_time"] = wes_time(document.changed)
        if last is not None and last.exit_code is not None:
            out["exit_code"] = last.exit_code
    return out


def _job_state(document: JobDocument) -> str:
    return _OF_JOBS.get(document.state, WesRunState.RUNNING).value


def sub_run_json(run: str, name: str, *, run_url: str) -> Json:
    """A sub-flow of a run, whose run can be read as a run of its own."""
    return {
        "id": run,
        "name": name,
        "cmd": [],
        "stdout": f"{run_url}/stdout",
        "stderr": f"{run_url}/stderr",
        "system_logs": [f"a sub-flow, which is a run of its own: {run_url}"],
    }


def service_info_json(
    *,
    name: str,
    version: str,
    url: str,
    protocols: Iterable[str],
    types: Mapping[str, Sequence[str]],
    counts: Mapping[str, int],
    tags: Mapping[str, str],
) -> Json:
    """The service's description and capabilities."""
    return {
        "id": name,
        "name": "Forestay",
        "type": {"group": "org.ga4gh", "artifact": "wes", "version": VERSION},
        "description": "Flows that continue when jobs, nodes, data, networks and schedulers fail.",
        "organization": {"name": name, "url": url},
        "version": version,
        "workflow_type_versions": {kind: {"workflow_type_version": list(known)} for kind, known in types.items()},
        "supported_wes_versions": ["1.0.0", VERSION],
        "supported_filesystem_protocols": sorted(protocols),
        "workflow_engine_versions": {"forestay": {"workflow_engine_version": [version]}},
        "default_workflow_engine_parameters": [],
        "system_state_counts": {state.value: counts.get(state.value, 0) for state in WesRunState},
        "auth_instructions_url": f"{url}/",
        "tags": dict(tags),
    }
