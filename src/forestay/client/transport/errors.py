"""The errors between a program and a Forestay server, one class for each reaction of a caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class ClientError(Exception):
    """A request failed. The message says what failed and what to do next."""


class BadSettings(ClientError):
    """No server or no token could be found, or one that must not be used."""


class Ambiguous(ClientError):
    """The beginning of a job's id that was given fits several jobs, or none for sure."""


class ApiError(ClientError):
    """The server refused the request. Carries its problem document."""

    def __init__(
        self,
        message: str,
        *,
        status: int,
        title: str = "",
        problems: Sequence[Mapping[str, object]] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.title = title
        self.problems = problems
        """One entry a bad field."""


class BadRequest(ApiError):
    """The request is wrong (400, 413, 422 and whatever else means so); sending it again cannot help."""


class NotAllowed(ApiError):
    """No or a bad token (401), or one that may not do this (403)."""


class NotFoundError(ApiError):
    """There is no such thing in this tenant."""


class ConflictError(ApiError):
    """The job moved on since it was looked at, or the idempotency key was used for something else."""


class WaitsForApproval(ClientError):
    """It was not done yet: it needs an approval, which is now requested. Nothing more has to be sent."""

    def __init__(self, request: str, words: str) -> None:
        super().__init__(f"needs an approval: forestay approvals approve {request}")
        self.request = request
        self.words = words


class Unavailable(ClientError):
    """The server or its store did not answer in the time that the caller was ready to wait."""

    def __init__(self, message: str, *, outcome_unknown: bool) -> None:
        super().__init__(message)
        self.outcome_unknown = outcome_unknown
        """True: the request may have taken effect nevertheless."""


class BadAnswer(ClientError):
    """The response is not of this interface: from a proxy, another program, or another version."""


class JobFailedError(ClientError):
    """A job did not succeed. The message says how it ended; its story says why."""

    def __init__(self, message: str, *, job: str, state: str, reason: str = "") -> None:
        super().__init__(message)
        self.job = job
        self.state = state
        self.reason = reason


class RemoteError(JobFailedError):
    """A function raised something that this program has no class for; the message names it."""


class ResultUnreachable(ClientError):
    """The result of a function is in a file that cannot be read from here, or is not the file that was committed."""


class TimedOut(ClientError):
    """What was waited for did not come in time."""
