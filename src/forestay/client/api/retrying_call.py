"""Whether and when a call is sent again: decided here, carried out by the clients.

Every call of the interface may be repeated without harm: reading changes nothing, submitting carries a key, and steering
names what it expects or does nothing the second time. What differs is how an answer to a repeat is read.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import httpx
import orjson

from forestay.client.api.calls import Call
from forestay.client.transport.errors import (
    ApiError,
    BadAnswer,
    BadRequest,
    BadSettings,
    ConflictError,
    NotAllowed,
    NotFoundError,
    Unavailable,
)

if TYPE_CHECKING:
    from forestay.client.api.schemas import Job

T = TypeVar("T")

_LATER = frozenset({429, 502, 503, 504})
_BY_STATUS: dict[int, type[ApiError]] = {
    401: NotAllowed,
    403: NotAllowed,
    404: NotFoundError,
    409: ConflictError,
    412: ConflictError,
}


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a caller is ready to wait for a server that does not answer, and how the tries are spread."""

    seconds: float = 30.0
    first: float = 0.25
    longest: float = 8.0

    def pause(self, tries: int, *, spent: float, asked: float | None, chance: float) -> float | None:
        """Seconds before the next try; None when it would come too late to be worth it.

        A server's own retry time takes precedence. The waits of many clients are spread by chance, so that they
        do not all come back at once.
        """
        if asked is not None:
            wait = asked + chance * min(1.0, asked / 4)
        else:
            wait = min(self.longest, self.first * 2**tries) * (0.5 + chance / 2)
        return wait if spent + wait <= self.seconds else None


class CallAnswered(NamedTuple, Generic[T]):
    """The call is done."""

    value: T


class RetryLater(NamedTuple):
    """Send it again after this many seconds."""

    seconds: float
    why: str


class ReadBack(NamedTuple):
    """A repeat was refused, perhaps because the first sending took place: read the job, then decide."""

    error: ApiError
    job: str


@dataclass(slots=True)
class RetryingCall(Generic[T]):
    """One call and its repeats."""

    call: Call[T]
    patience: Patience
    clock: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random
    tries: int = 0
    outcome_unknown: bool = False
    _since: float = field(init=False)

    def __post_init__(self) -> None:
        self._since = self.clock()

    def failed(self, error: httpx.TransportError) -> RetryLater:
        """No answer came."""
        if isinstance(error, httpx.UnsupportedProtocol):
            raise BadSettings(f"{error}: the server's address must start with http:// or https://") from error
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            raise BadSettings(
                f"the server's certificate is not trusted ({error}); set FORESTAY_CA_FILE, or ca_file in your config.toml, to the certificate of your site's CA"
            ) from error
        if not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout):
            self.outcome_unknown = True
        return self._again(str(error) or type(error).__name__, None, error)

    def answered(self, answer: httpx.Response) -> CallAnswered[T] | RetryLater | ReadBack:
        """An answer came: it is the end, or a request to come back."""
        if answer.is_success:
            return CallAnswered(self.call.read(answer))
        error = problem(answer)
        if answer.status_code in _LATER:
            if answer.status_code != 429:
                self.outcome_unknown = True
            return self._again(str(error), retry_after(answer), error)
        call = self.call
        if (
            isinstance(error, ConflictError)
            and self.outcome_unknown
            and call.settled is not None
            and call.job is not None
        ):
            return ReadBack(error, call.job)
        raise error

    def settled(self, settle: ReadBack, job: Job) -> T:
        """The job was read: it is the answer if it shows that the first sending took place."""
        if self.call.settled is None or not self.call.settled(job):
            raise settle.error
        return job  # type: ignore[return-value]  # only calls that answer a job can be settled by one

    def _again(self, why: str, asked: float | None, cause: Exception) -> RetryLater:
        pause = self.patience.pause(self.tries, spent=self.clock() - self._since, asked=asked, chance=self.chance())
        if pause is None:
            unknown = self.outcome_unknown and self.call.method != "GET"
            raise Unavailable(f"the server is not available: {why}", outcome_unknown=unknown) from cause
        self.tries += 1
        return RetryLater(pause, why)


def retry_after(answer: httpx.Response) -> float | None:
    """The wait that the server requests, given as seconds or as a date."""
    text = answer.headers.get("retry-after", "").strip()
    if not text:
        return None
    if text.isdigit():
        return float(text)
    try:
        then = parsedate_to_datetime(text).timestamp()
    except ValueError:
        return None
    return max(0.0, then - time.time())


def problem(answer: httpx.Response) -> ApiError:
    """The error in a response."""
    status = answer.status_code
    try:
        whole = orjson.loads(answer.content)
    except orjson.JSONDecodeError:
        whole = None
    if not isinstance(whole, dict):
        if not (400 <= status < 600):
            raise BadAnswer(
                f"the server answered {status}, which is not a response of a Forestay server; check the address"
            )
        whole = {}
    title = str(whole.get("title") or answer.reason_phrase or f"status {status}")
    detail = whole.get("detail")
    problems = [error for error in whole.get("errors") or [] if isinstance(error, dict)]
    kind = _BY_STATUS.get(status, BadRequest if status < 500 else ApiError)
    return kind(str(detail) if detail else title, status=status, title=title, problems=problems)
