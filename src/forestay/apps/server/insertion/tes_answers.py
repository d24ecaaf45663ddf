"""Requests and responses of the TES endpoint, for the interface's description; the routes read and write tasks without these."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from forestay.apps.server.http.answers import Responses, Time
from forestay.apps.server.http.problems import TITLES

StateName = Literal[
    "UNKNOWN", "QUEUED", "INITIALIZING", "RUNNING", "PAUSED", "COMPLETE", "EXECUTOR_ERROR", "SYSTEM_ERROR", "CANCELED",
    "PREEMPTED", "CANCELING",
]  # fmt: skip
ALWAYS = (400, 401, 403, 503)


class Tes(BaseModel):
    """Clients may send fields unknown to TES; they are ignored."""

    model_config = ConfigDict(extra="ignore", defer_build=True)


class TesError(Tes):
    msg: str
    status_code: int


class TesInput(Tes):
    name: str | None = None
    description: str | None = None
    url: str | None = None
    path: str
    type: Literal["FILE", "DIRECTORY"] | None = None
    content: str | None = None
    streamable: bool | None = None


class TesOutput(Tes):
    name: str | None = None
    description: str | None = None
    url: str
    path: str
    path_prefix: str | None = None
    type: Literal["FILE", "DIRECTORY"] | None = None


class TesExecutor(Tes):
    image: str
    command: list[str]
    workdir: str | None = None
    stdin: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    env: dict[str, str] | None = None
    ignore_error: bool | None = None


class TesResources(Tes):
    cpu_cores: int | None = None
    preemptible: bool | None = None
    ram_gb: float | None = None
    disk_gb: float | None = None
    zones: list[str] | None = None
    backend_parameters: dict[str, str] | None = None
    backend_parameters_strict: bool | None = None


class TesExecutorLog(Tes):
    start_time: str | None = None
    end_time: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    exit_code: int


class TesOutputFile(Tes):
    url: str
    path: str
    size_bytes: str


class TesTaskLog(Tes):
    logs: list[TesExecutorLog]
    outputs: list[TesOutputFile]
    metadata: dict[str, str] | None = None
    start_time: str | None = None
    end_time: str | None = None
    system_logs: list[str] | None = None


class TesTask(Tes):
    """A task. Only `executors` is needed to make one; `id`, `state`, `logs` and `creation_time` are the server's own."""

    id: str | None = None
    state: StateName | None = None
    name: str | None = None
    description: str | None = None
    inputs: list[TesInput] | None = None
    outputs: list[TesOutput] | None = None
    resources: TesResources | None = None
    executors: list[TesExecutor] | None = None
    volumes: list[str] | None = None
    tags: dict[str, str] | None = None
    logs: list[TesTaskLog] | None = None
    creation_time: Time | None = None


class TesCreated(Tes):
    id: str


class TesList(Tes):
    tasks: list[TesTask]
    next_page_token: str | None = None


class TesNothing(Tes):
    pass


class TesServiceType(Tes):
    group: str
    artifact: str
    version: str


class TesOrganization(Tes):
    name: str
    url: str


class TesServiceInfo(Tes):
    id: str
    name: str
    type: TesServiceType
    description: str
    organization: TesOrganization
    version: str
    documentationUrl: str  # noqa: N815 - as GA4GH writes it
    storage: list[str]
    tesResources_backend_parameters: list[str]  # noqa: N815 - as GA4GH writes it


def tes_errors(*more: int, unchanged: bool = False) -> Responses:
    """The errors that a route of TES may return, in the form for GA4GH clients."""
    responses: Responses = {
        status: {"description": TITLES[status], "model": TesError} for status in sorted({*ALWAYS, *more})
    }
    if unchanged:
        responses[304] = {"description": "Not modified"}
    return responses


BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/TesTask"}}},
    }
}
