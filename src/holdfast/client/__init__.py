"""What users import to talk to a Holdfast server."""

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
