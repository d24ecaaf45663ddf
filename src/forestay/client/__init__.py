"""What users import to talk to a Forestay server.

Each name is imported when it is first used: a program that only submits jobs does not pay for flows.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forestay.client.api.async_client import AsyncForestayClient
    from forestay.client.api.forestay_client import ForestayClient
    from forestay.client.api.retrying_call import Patience
    from forestay.client.api.run_handle import RunFailed, RunHandle, start_flow
    from forestay.client.api.submission import submit_many
    from forestay.client.api.waiting import wait
    from forestay.client.executor.executor import CallOptions, Executor
    from forestay.client.executor.functions import NotCallable
    from forestay.client.executor.job_future import JobFuture
    from forestay.client.executor.running import fire, run
    from forestay.client.script.script_run import RunRemoved, ScriptRun, TaskFailed, script_run
    from forestay.client.transport.errors import (
        Ambiguous,
        ApiError,
        BadAnswer,
        BadRequest,
        BadSettings,
        ClientError,
        ConflictError,
        JobFailedError,
        NotAllowed,
        NotFoundError,
        RemoteError,
        ResultUnreachable,
        TimedOut,
        Unavailable,
    )
    from forestay.client.transport.settings import find_settings

__all__ = [
    "Ambiguous",
    "ApiError",
    "AsyncForestayClient",
    "BadAnswer",
    "BadRequest",
    "BadSettings",
    "CallOptions",
    "ClientError",
    "ConflictError",
    "Executor",
    "ForestayClient",
    "JobFailedError",
    "JobFuture",
    "NotAllowed",
    "NotCallable",
    "NotFoundError",
    "Patience",
    "RemoteError",
    "ResultUnreachable",
    "RunFailed",
    "RunHandle",
    "RunRemoved",
    "ScriptRun",
    "TaskFailed",
    "TimedOut",
    "Unavailable",
    "find_settings",
    "fire",
    "run",
    "script_run",
    "start_flow",
    "submit_many",
    "wait",
]

_MODULES = {
    "api.async_client": ("AsyncForestayClient",),
    "api.run_handle": (
        "RunFailed",
        "RunHandle",
        "start_flow",
    ),
    "transport.errors": (
        "Ambiguous",
        "ApiError",
        "BadAnswer",
        "BadRequest",
        "BadSettings",
        "ClientError",
        "ConflictError",
        "JobFailedError",
        "NotAllowed",
        "NotFoundError",
        "RemoteError",
        "ResultUnreachable",
        "TimedOut",
        "Unavailable",
    ),
    "executor.executor": (
        "CallOptions",
        "Executor",
    ),
    "executor.functions": ("NotCallable",),
    "api.forestay_client": ("ForestayClient",),
    "executor.job_future": ("JobFuture",),
    "executor.running": (
        "fire",
        "run",
    ),
    "script.script_run": (
        "RunRemoved",
        "TaskFailed",
        "ScriptRun",
        "script_run",
    ),
    "transport.settings": ("find_settings",),
    "api.submission": ("submit_many",),
    "api.retrying_call": ("Patience",),
    "api.waiting": ("wait",),
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
