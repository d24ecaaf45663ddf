"""A future for a job."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from forestay.client.executor.results import RaisedError, value_of
from forestay.client.transport.errors import ClientError, TimedOut
from forestay.formats.text.progress_html import facts_html

if TYPE_CHECKING:
    from forestay.client.api.schemas import Job

T = TypeVar("T")


class JobFuture(Future[T]):
    """A `concurrent.futures.Future` whose result comes from a job.

    It is pending until the job has ended, however often the job is tried. It may be cancelled all that time, also while the
    function runs: the job is then ended and its runner with it. Only a short call that shares its job with others cannot be cancelled once it was sent.
    """

    def __init__(self, cancel_job: Callable[[str], bool]) -> None:
        super().__init__()
        self._cancel_job = cancel_job
        self._known = threading.Event()
        self._job: str | None = None
        self._sent = False
        self._alone = True
        self._turn = threading.Lock()

    def job_id(self, timeout: float | None = None) -> str:
        """The id of the job, by which any process can `attach` to it; waits until the server has accepted the job."""
        if not self._known.wait(timeout):
            raise TimedOut("the server has not accepted the job yet")
        if self._job is None:
            raise ClientError("the job was never submitted") from (None if self.cancelled() else self.exception())
        return self._job

    def cancel(self) -> bool:
        """Cancel the job, if it has not ended; returns whether it counts as cancelled."""
        with self._turn:
            if not self._sent:
                return self.let_go()
        self._known.wait()
        if self.done() or self._job is None:
            return self.cancelled()
        if not self._alone:
            return False  # its job has the calls of others in it
        return self._cancel_job(self._job) and self.let_go()

    def let_go(self) -> bool:
        """Mark as cancelled, and notify all waiters."""
        if not super().cancel():
            return False
        with suppress(InvalidStateError, RuntimeError):  # another thread has done so already
            self.set_running_or_notify_cancel()
        self._known.set()
        return True

    def start_sending(self) -> bool:
        """Mark that the server may know the job from now on; False if it was cancelled before."""
        with self._turn:
            self._sent = not self.cancelled()
            return self._sent

    def accepted(self, job: str, *, alone: bool = True) -> None:
        """The server has the job; with other calls in it unless it is alone."""
        self._job = job
        self._alone = alone
        self._sent = True
        self._known.set()

    def refused(self, error: BaseException) -> None:
        """The job was not accepted."""
        with suppress(InvalidStateError):
            self.set_exception(error)
        self._known.set()

    def ended(self, job: Job) -> None:
        """The job has come to its end."""
        if job["state"] == "cancelled":
            self.let_go()
            return
        with suppress(InvalidStateError):  # cancelled at the same moment
            try:
                value: Any = value_of(job)
            except Exception as error:
                self.set_exception(error)
            else:
                self.set_result(value)

    def settled(self, outcome: Any) -> None:
        """Its call, one of several in a job, has come to this."""
        with suppress(InvalidStateError):  # cancelled at the same moment
            if isinstance(outcome, RaisedError):
                self.set_exception(outcome.error)
            else:
                self.set_result(outcome)

    def _repr_html_(self) -> str:
        facts: dict[str, object] = {"job": self._job or "not yet accepted", "state": self._state.lower()}
        if self.done() and not self.cancelled():
            error = self.exception()
            facts |= {"result": repr(self.result())[:500]} if error is None else {"error": repr(error)[:500]}
        return facts_html("a call", facts)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of job {self._job or 'not yet accepted'}: {self._state.lower()}>"
