"""What users import to talk to a Holdfast server.

Each name is imported when it is first used: a program that only submits jobs does not pay for flows.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.client.async_client import AsyncHoldfastClient
    from holdfast.client.case_handle import CaseFailed, CaseHandle, start_flow
    from holdfast.client.errors import (
        Ambiguous,
        ApiError,
        BadAnswer,
        BadRequest,
        BadSettings,
        ClientError,
        Conflict,
        JobFailed,
        NotAllowed,
        NotFound,
        RemoteError,
        ResultUnreachable,
        TimedOut,
        Unavailable,
    )
    from holdfast.client.executor import CallOptions, Executor
    from holdfast.client.functions import NotCallable
    from holdfast.client.holdfast_client import HoldfastClient
    from holdfast.client.job_future import JobFuture
    from holdfast.client.running import fire, run
    from holdfast.client.script_case import CaseRemoved, ItemFailed, ScriptCase, case
    from holdfast.client.settings import find_settings
    from holdfast.client.submission import submit_many
    from holdfast.client.trial import Patience
    from holdfast.client.waiting import wait

__all__ = [
    "Ambiguous",
    "ApiError",
    "AsyncHoldfastClient",
    "BadAnswer",
    "BadRequest",
    "BadSettings",
    "CallOptions",
    "CaseFailed",
    "CaseHandle",
    "CaseRemoved",
    "ClientError",
    "Conflict",
    "Executor",
    "HoldfastClient",
    "ItemFailed",
    "JobFailed",
    "JobFuture",
    "NotAllowed",
    "NotCallable",
    "NotFound",
    "Patience",
    "RemoteError",
    "ResultUnreachable",
    "ScriptCase",
    "TimedOut",
    "Unavailable",
    "case",
    "find_settings",
    "fire",
    "run",
    "start_flow",
    "submit_many",
    "wait",
]

_MODULES = {
    "async_client": ("AsyncHoldfastClient",),
    "case_handle": (
        "CaseFailed",
        "CaseHandle",
        "start_flow",
    ),
    "errors": (
        "Ambiguous",
        "ApiError",
        "BadAnswer",
        "BadRequest",
        "BadSettings",
        "ClientError",
        "Conflict",
        "JobFailed",
        "NotAllowed",
        "NotFound",
        "RemoteError",
        "ResultUnreachable",
        "TimedOut",
        "Unavailable",
    ),
    "executor": (
        "CallOptions",
        "Executor",
    ),
    "functions": ("NotCallable",),
    "holdfast_client": ("HoldfastClient",),
    "job_future": ("JobFuture",),
    "running": (
        "fire",
        "run",
    ),
    "script_case": (
        "CaseRemoved",
        "ItemFailed",
        "ScriptCase",
        "case",
    ),
    "settings": ("find_settings",),
    "submission": ("submit_many",),
    "trial": ("Patience",),
    "waiting": ("wait",),
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
