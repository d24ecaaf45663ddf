"""What users import to talk to a Holdfast server."""

from holdfast.client.async_client import AsyncHoldfastClient
from holdfast.client.errors import (
    Ambiguous,
    ApiError,
    BadAnswer,
    BadRequest,
    BadSettings,
    ClientError,
    Conflict,
    NotAllowed,
    NotFound,
    TimedOut,
    Unavailable,
)
from holdfast.client.holdfast_client import HoldfastClient
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
    "ClientError",
    "Conflict",
    "HoldfastClient",
    "NotAllowed",
    "NotFound",
    "Patience",
    "TimedOut",
    "Unavailable",
    "find_settings",
    "submit_many",
    "wait",
]
