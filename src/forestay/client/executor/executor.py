"""A `concurrent.futures.Executor` whose functions run on the pilots of a Forestay installation.

Calls are sent many in one request, and their ends come over one event stream. Each call is a job: it is tried again by its
own policy, it outlives this program, and any program may `attach` to it.
"""

from __future__ import annotations

import os
import sys
import threading
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from forestay.client.api.answers import FINAL
from forestay.client.api.calls import new_key
from forestay.client.api.forestay_client import ForestayClient
from forestay.client.api.retrying_call import Patience
from forestay.client.executor.bundle import BundledCall, CallDurations, bundled
from forestay.client.executor.completion_watch import CompletionWatch
from forestay.client.executor.functions import checked_size, named_call, own_places, pickled_call
from forestay.client.executor.job_future import JobFuture
from forestay.client.transport.errors import BadRequest, ClientError, ConflictError
from forestay.client.transport.settings import find_settings
from forestay.formats.text.document_fields import duration_of, size_of
from forestay.formats.text.progress_html import progress_html

if TYPE_CHECKING:
    from forestay.client.api.schemas import InputJson, NewJob, SpecificationJson

T = TypeVar("T")
P = ParamSpec("P")

LABEL = "forestay/executor"
MOST_IN_A_REQUEST = 1000


@dataclass(frozen=True, slots=True)
class CallOptions:
    """How calls are run."""

    cpus: int = 1
    memory: int | str = 0
    """Bytes, or a text such as `4 GiB`."""
    disk: int | str = 0
    gpus: int = 0
    wall: int | str | None = None
    """Seconds, or a text such as `90 min`: a call that takes longer is stopped."""
    max_attempts: int = 1
    """How often a call is tried in all."""
    retry_wait: int = 0
    effects: str = "internal"
    """`external` for a function with effects that Forestay does not see: it is stopped when its pilot falls silent."""
    priority: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    inputs: Sequence[InputJson] = ()
    """Files that are staged into the function's folder before it is called."""
    outputs: Sequence[str] = ()
    """Patterns of files that the function leaves in its folder, which are then kept."""
    python: Sequence[str] = ()
    """The command that starts the interpreter; this program's own unless named."""
    environment: Mapping[str, str] = field(default_factory=dict)
    requires: str = ""
    """A condition over what pilots say of themselves, such as `gpu.model == "A100"`."""
    licences: Mapping[str, int] = field(default_factory=dict)
    """Seats that each call has while it runs, by licence."""
    cloudpickle: bool = False
    """Send functions as they are, closures too; see the how-to on the executor before you set it."""

    def specification(self, session: str) -> SpecificationJson:
        places = [*own_places(), *filter(None, [self.environment.get("PYTHONPATH")])]
        # A runner serves one session only, so that a program that was changed and started again finds its new self.
        environment = {**self.environment, "PYTHONPATH": os.pathsep.join(places), "FORESTAY_SESSION": session}
        return {
            "name": "functions",
            "command": list(self.python) or [sys.executable],
            "environment": environment,
            "resources": {
                "cpus": self.cpus,
                "memory": size_of(self.memory),
                "disk": size_of(self.disk),
                "gpus": self.gpus,
                "wall": None if self.wall is None else duration_of(self.wall),
            },
            "inputs": list(self.inputs),
            "outputs": list(self.outputs),
            "effects": self.effects,
            "runner": "warm",
            "max_attempts": self.max_attempts,
            "retry_wait": self.retry_wait,
            "requires": self.requires,
            "licences": dict(self.licences),
        }


class Executor(futures.Executor):
    """Runs functions as jobs; use it as you use `ProcessPoolExecutor`.

    Without `client` the server and token are found as the command line finds them. `with_options` gives the same executor with
    other needs for the calls that go through it.
    """

    def __init__(
        self,
        client: ForestayClient | None = None,
        *,
        server: str | None = None,
        token_file: Path | None = None,
        **options: Any,
    ) -> None:
        own = client is None
        if client is None:
            settings = find_settings(server=server, token_file=token_file)
            client = ForestayClient(settings.server.value, settings.token.value, patience=Patience(seconds=120))
        self._room = _SharedQueue(client, close_client=own)
        self._set(CallOptions(**options))

    def _set(self, options: CallOptions) -> None:
        self._options = options
        self._specification = options.specification(self._room.session)
        self._labels = {**options.labels, LABEL: self._room.session}

    def with_options(self, **options: Any) -> Executor:
        """The same executor with other options for what is submitted through it."""
        view = object.__new__(Executor)
        view._room = self._room
        view._set(replace(self._options, **options))
        return view

    @property
    def name(self) -> str:
        """The value of the label `forestay/executor` that all jobs of this executor have."""
        return self._room.session

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> JobFuture[T]:
        """Run a function with these arguments; returns at once. `NotCallable` if it cannot be sent."""
        call = pickled_call(fn, args, kwargs) if self._options.cloudpickle else named_call(fn, args, kwargs)
        checked_size(call)
        name = getattr(fn, "__qualname__", None) or type(fn).__name__
        job: NewJob = {"name": name[:200], "parameters": {"call": call}, "labels": self._labels}
        if self._options.priority:
            job["priority"] = self._options.priority
        return self._room.put(self._specification, job)

    def attach(self, job_id: str) -> JobFuture[Any]:
        """A future for a job that was submitted earlier, by this program or another. `NotFound` if there is none.

        The result of a job that is no function is the job itself. Of a call that shares its job with others the id names its place, `JOB/3`.
        """
        return self._room.attach(job_id)

    def _repr_html_(self) -> str:
        well, bad, cancelled, count = self._room.tally()
        words = f"{cancelled} cancelled" if cancelled else ""
        return progress_html(f"Executor {self.name[:12]}", well=well, bad=bad, count=count - cancelled, words=words)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - the library's own
        """Take no more calls. What was submitted runs on, also when this program ends; with `wait` it is awaited."""
        self._room.shut(wait=wait, cancel=cancel_futures)


class _SharedQueue:
    """What an executor and its views share: the queue to the server, and the ends that come back."""

    def __init__(self, client: ForestayClient, *, close_client: bool) -> None:
        self.session = uuid.uuid4().hex
        self._client = client
        self._close_client = close_client
        self._changed = threading.Condition()
        self._queue: deque[tuple[SpecificationJson, NewJob, JobFuture[Any]]] = deque()
        self._unfinished: set[futures.Future[Any]] = set()
        self._well = self._bad = self._cancelled = 0
        self._shut = False
        self._sender: threading.Thread | None = None
        self._lengths = CallDurations()
        self._ends = CompletionWatch(client, {"label": f"{LABEL}={self.session}"}, name="forestay-ends")
        self._attached: CompletionWatch | None = None

    def put(self, specification: SpecificationJson, job: NewJob) -> JobFuture[Any]:
        future: JobFuture[Any] = JobFuture(self._cancel)
        with self._changed:
            if self._shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._queue.append((specification, job, future))
            self._unfinished.add(future)
            if self._sender is None:
                self._sender = threading.Thread(target=self._send_all, name="forestay-submit", daemon=True)
                self._sender.start()
            if len(self._queue) == 1:
                self._changed.notify_all()
        future.add_done_callback(self._forget)
        return future

    def attach(self, job_id: str) -> JobFuture[Any]:
        name, shared, place = job_id.partition("/")
        job = self._client.job(name)
        future: JobFuture[Any] = JobFuture(self._cancel)
        future.accepted(job_id, alone=not shared)
        ends: JobFuture[Any] | BundledCall = BundledCall(future, int(place)) if shared else future
        if job["state"] in FINAL:
            ends.ended(job)
            return future
        with self._changed:
            if self._shut:
                raise RuntimeError("cannot attach after shutdown")
            self._unfinished.add(future)
            if self._attached is None:
                self._attached = CompletionWatch(self._client, {}, name="forestay-attached")
            watch = self._attached
        future.add_done_callback(self._forget)
        watch.add({job["id"]: ends})
        return future

    def tally(self) -> tuple[int, int, int, int]:
        """The number of calls that succeeded, failed and were cancelled, and of all calls."""
        with self._changed:
            return (
                self._well,
                self._bad,
                self._cancelled,
                self._well + self._bad + self._cancelled + len(self._unfinished),
            )

    def _forget(self, future: futures.Future[Any]) -> None:
        with self._changed:
            self._unfinished.discard(future)
            if future.cancelled():
                self._cancelled += 1
            elif future.exception() is None:
                self._well += 1
            else:
                self._bad += 1
            if not self._unfinished:
                self._changed.notify_all()

    def _cancel(self, job_id: str) -> bool:
        try:
            self._client.cancel(job_id, reason="cancelled through its future")
        except ConflictError:
            return False  # it has just ended
        self._ends.drop(job_id)
        if self._attached is not None:
            self._attached.drop(job_id)
        return True

    def _send_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._shut)
                if not self._queue:
                    return
                specification = self._queue[0][0]
                batch: list[tuple[NewJob, JobFuture[Any]]] = []
                while self._queue and self._queue[0][0] is specification and len(batch) < MOST_IN_A_REQUEST:
                    _, job, future = self._queue.popleft()
                    batch.append((job, future))
            self._send(specification, [(job, future) for job, future in batch if future.start_sending()])

    def _send(self, specification: SpecificationJson, calls: list[tuple[NewJob, JobFuture[Any]]]) -> None:
        batch = list(bundled(calls, self._lengths, may=_may_share(specification)))
        while batch:
            try:
                accepted = self._client.submit([entry.job for entry in batch], specification, key=new_key())
            except BadRequest as error:
                bad = _places(error)
                for place, entry in enumerate(batch):
                    if not bad or place in bad:
                        entry.refused(error)
                batch = [entry for place, entry in enumerate(batch) if bad and place not in bad]
            except ClientError as error:
                for entry in batch:
                    entry.refused(error)
                return
            else:
                known = {job["id"]: entry for job, entry in zip(accepted, batch, strict=True)}
                for name, entry in known.items():
                    entry.accepted(name)
                self._ends.add(known)
                return

    def shut(self, *, wait: bool, cancel: bool) -> None:
        with self._changed:
            self._shut = True
            self._changed.notify_all()
            unfinished = list(self._unfinished)
        if cancel:
            for future in unfinished:
                future.cancel()
        if not wait:
            # The watch stays until the last future is done, or the program ends.
            threading.Thread(target=self._finish, name="forestay-shutdown", daemon=True).start()
            return
        self._finish()

    def _finish(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._unfinished)
        if self._sender is not None:
            self._sender.join()
        self._ends.close()
        if self._attached is not None:
            self._attached.close()
        if self._close_client:
            self._client.close()


def _may_share(specification: SpecificationJson) -> bool:
    """Whether calls may share a job: not if they are retried, stopped, staged or stored individually."""
    return (
        specification["max_attempts"] == 1
        and specification["effects"] == "internal"
        and specification["resources"]["wall"] is None
        and not specification["inputs"]
        and not specification["outputs"]
    )


def _places(error: BadRequest) -> set[int]:
    """The positions of a request's invalid jobs; empty when they are unknown."""
    places: set[int] = set()
    for problem in error.problems:
        words = str(problem.get("at", "")).split(".")
        if words[:2] == ["body", "jobs"] and len(words) > 2 and words[2].isdigit():
            places.add(int(words[2]))
    return places
