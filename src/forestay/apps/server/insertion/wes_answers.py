"""Responses of the Workflow Execution Service, by its specification."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from forestay.formats.ga4gh.wes_run import WesRunState


class WesOut(BaseModel):
    model_config = ConfigDict(extra="allow", defer_build=True)


class ErrorOut(BaseModel):
    """Any error."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    msg: str
    status_code: int


class TypeVersionsOut(WesOut):
    workflow_type_version: list[str]


class EngineVersionsOut(WesOut):
    workflow_engine_version: list[str]


class ServiceTypeOut(WesOut):
    group: str
    artifact: str
    version: str


class OrganizationOut(WesOut):
    name: str
    url: str


class ServiceInfoOut(WesOut):
    id: str
    name: str
    type: ServiceTypeOut
    organization: OrganizationOut
    version: str
    workflow_type_versions: dict[str, TypeVersionsOut]
    supported_wes_versions: list[str]
    supported_filesystem_protocols: list[str]
    workflow_engine_versions: dict[str, EngineVersionsOut]
    default_workflow_engine_parameters: list[dict[str, str]]
    system_state_counts: dict[str, int]
    auth_instructions_url: str
    tags: dict[str, str]


class RunIdOut(WesOut):
    run_id: str


class RunStatusOut(WesOut):
    run_id: str
    state: WesRunState


class RunSummaryOut(RunStatusOut):
    start_time: str
    end_time: str | None = None
    tags: dict[str, str]


class WesRunsOut(WesOut):
    runs: list[RunSummaryOut]
    next_page_token: str
    """Empty: there are no more."""


class LogOut(WesOut):
    name: str
    cmd: list[str]
    start_time: str | None = None
    end_time: str | None = None
    stdout: str
    stderr: str
    exit_code: int | None = None
    system_logs: list[str]


class TaskLogOut(LogOut):
    id: str
    tes_uri: str | None = None


class TasksOut(WesOut):
    task_logs: list[TaskLogOut]
    next_page_token: str


class RunRequestOut(WesOut):
    workflow_params: dict[str, Any]
    workflow_type: str
    workflow_type_version: str
    workflow_url: str
    tags: dict[str, str]
    workflow_engine_parameters: dict[str, str]
    workflow_engine: str | None = None
    workflow_engine_version: str | None = None


class RunLogOut(WesOut):
    run_id: str
    request: RunRequestOut
    state: WesRunState
    run_log: LogOut
    task_logs_url: str
    task_logs: list[TaskLogOut] | None
    outputs: dict[str, Any]
