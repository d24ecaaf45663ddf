"""A script as a run: its steps are tasks, failures are reported, and the script carries out the reply.

::

    from forestay.client import script_run

    with script_run("nightly") as nightly:
        rows = nightly.task("load", load, "input.csv")
        nightly.task("publish", publish, rows)

A step that fails waits while a rule or a person deals with it; then it is tried again, counts as done, or fails as it would have without Forestay. Without a server, and without a rule, nothing is
different from the bare script.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, cast, overload

from forestay.client.api import engine_calls
from forestay.client.api.forestay_client import ForestayClient
from forestay.client.api.retrying_call import Patience
from forestay.client.script.command_state import CommandState, Complete, Fail, GoOn, Remove, Retry, Verdict
from forestay.client.script.error_evidence import evidence_of_error
from forestay.client.transport.errors import BadSettings, ClientError, Unavailable
from forestay.client.transport.settings import find_settings

if TYPE_CHECKING:
    from forestay.client.api.schemas import NewEvent, ToldIncident

P = ParamSpec("P")
R = TypeVar("R")
log = logging.getLogger("forestay.script")

POLL = 20.0
"""Seconds that one question for orders waits at the server."""
AWAY = 60.0
"""Seconds for which a server that did not answer is not bothered with what only rules for other types could answer."""


class TaskFailed(ClientError):
    """A task failed because it was ordered to; the error that it had raised is the cause."""


class RunRemoved(ClientError):
    """A rule or a person has stopped the run, or the task."""


class ScriptRun:
    """One run of a script. Made by `run`; use it by ``with``."""

    def __init__(
        self,
        name: str,
        *,
        client: ForestayClient | None,
        engine: str = "script",
        key: str | None = None,
        data: Mapping[str, object] | None = None,
        hold: bool = False,
        patience: float = 86_400.0,
        closes: bool = False,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.name = name
        self.key = key or f"{name}-{uuid.uuid4().hex[:12]}"
        self.engine = engine
        self.id = ""
        """Our id of the run, known after the first report; `forestay runs history` shows its event log."""
        self._client, self._hold, self._patience, self._sleep = client, hold, patience, sleep
        self._closes = closes
        self._commands = CommandState(dict(data or {}))
        self._lock = threading.RLock()
        self._run_id = uuid.uuid4().hex[:12]
        """Two runs under one key are one run, and their events are not repeats of each other."""
        self._count = 0
        self._away = 0.0
        self._started = False

    @property
    def data(self) -> dict[str, object]:
        """The data of the run: what it was given, and what orders have changed."""
        return self._commands.data

    # -- the run ----------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            if kind is None:
                verdict = self._tell("run-completed", data=self.data)
                if isinstance(verdict, Fail | Remove):
                    raise RunRemoved(verdict.reason)
            else:
                self._tell("run-removed" if isinstance(error, RunRemoved) else "run-failed")
        finally:
            if self._closes and self._client is not None:
                self._client.close()

    def trigger(self, name: str, task: str = "", **data: object) -> None:
        """Raise an exception from inside: ``run.trigger("weather")``."""
        self._stop(self._tell("task-triggered" if task else "run-triggered", task=task, trigger=name, data=data))

    # -- tasks -------------------------------------------------------------------------------------------------

    @overload
    def task(self, name: Callable[P, R], /) -> Callable[P, R]: ...
    @overload
    def task(self, name: str, /) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
    @overload
    def task(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    def task(self, name: Any, function: Any = None, /, *args: Any, **kwargs: Any) -> Any:
        """Run a function as a task: ``run.task("load", load, path)``; or decorate one: ``@run.task``, ``@run.task("load")``."""
        if callable(name):
            return self._decorated(name.__name__, name)
        if function is None:
            return lambda other_function: self._decorated(name, other_function)
        return self._run(name, function, args, kwargs)

    def _decorated(self, name: str, function: Callable[P, R]) -> Callable[P, R]:
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            return cast(R, self._run(name, function, args, kwargs))

        return called

    def _run(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        attempt = 0
        self._begin()
        while True:
            attempt += 1
            before = self._tell("task-enabled", task=name, attempt=attempt) if attempt == 1 else GoOn()
            self._stop(before)
            if isinstance(before, Complete):
                return before.result
            try:
                result = function(*args, **kwargs)
            except Exception as error:
                verdict = self._failed(name, attempt, error)
                if isinstance(verdict, Retry):
                    arguments = verdict.data.get("arguments")
                    kwargs = kwargs | dict(arguments) if isinstance(arguments, Mapping) else kwargs
                    self._sleep(verdict.wait)
                    continue
                if isinstance(verdict, Complete):
                    return verdict.result
                if isinstance(verdict, Fail):
                    self._tell("task-failed", task=name, attempt=attempt)
                    raise TaskFailed(f"{name}: {verdict.reason or 'failed by command'}") from error
                self._stop(verdict, error)
                self._tell("task-failed", task=name, attempt=attempt)
                raise
            after = self._tell("task-completed", task=name, attempt=attempt, result=_told(result))
            if isinstance(after, Retry):
                continue
            self._stop(after)
            return after.result if isinstance(after, Complete) else result

    def _failed(self, name: str, attempt: int, error: Exception) -> Verdict:
        evidence = evidence_of_error(error, attempt=attempt)
        otherwise = "hold" if self._hold else "go-on"
        return self._tell(
            "task-aborted", task=name, attempt=attempt, evidence=evidence, otherwise=otherwise, urgent=True
        )

    def _stop(self, verdict: Verdict, error: Exception | None = None) -> None:
        """Stop if that was ordered."""
        if isinstance(verdict, Remove):
            raise RunRemoved(verdict.reason or "removed") from error
        if isinstance(verdict, Fail):
            raise TaskFailed(verdict.reason or "failed by command") from error

    # -- reports and orders ------------------------------------------------------------------------------------

    def _begin(self) -> None:
        with self._lock:
            if self._started:
                return
            self._started = True
        self._stop(self._tell("run-started", data=self.data))

    def _tell(self, kind: str, *, task: str = "", urgent: bool = False, **more: Any) -> Verdict:
        """Report an event and obey until it is answered. A server that is away is gone without: nothing is worse than without Forestay."""
        if self._client is None:
            return GoOn("no server is configured")
        with self._lock:
            if not urgent and time.monotonic() < self._away:
                return GoOn("the server was unavailable")
            self._count += 1
            event = cast(
                "NewEvent",
                {"id": f"{self._run_id}:{self._count}", "run": self.key, "kind": kind, "flow": self.name, "task": task}
                | {"at": int(time.time() * 1000)}
                | {name: value for name, value in more.items() if value not in (None, "", {})},
            )
        try:
            (answer,) = self._client.send(engine_calls.report(self.engine, [event]))
        except ClientError as error:
            log.warning("%s of %s is not reported: %s", kind, self.key, error)
            self._away = time.monotonic() + AWAY
            return GoOn(str(error))
        self.id = answer["run"]
        if answer["answer"] != "wait" or answer["incident"] is None:
            return self._look(task)
        log.warning("%s %s: waiting for incident %s", self.name, task or kind, answer["incident"])
        return self._wait(task, answer["incident"])

    def _look(self, task: str) -> Verdict:
        """Obey what was ordered for the run meanwhile; a run that was suspended waits here."""
        wait = 0.0
        while True:
            try:
                self._obey("", wait)
            except Unavailable as error:
                if not wait:
                    return GoOn(str(error))
                continue  # it is suspended, and its holder has not released it
            except ClientError as error:
                log.warning("commands for %s cannot be read: %s", self.key, error)
                return GoOn(str(error))
            with self._lock:
                verdict = self._commands.verdicts.get("")
                held = bool(self._commands.holders.get("") or self._commands.holders.get(task))
            if verdict is not None:
                return verdict
            if not held:
                return GoOn()
            wait = POLL

    def _wait(self, task: str, incident: str) -> Verdict:
        with self._lock:
            self._commands.waiting.add(task)
        try:
            heard = time.monotonic()
            while True:
                try:
                    told_incident = self._obey(incident, POLL)
                    heard = time.monotonic()
                except Unavailable as error:
                    if time.monotonic() - heard > self._patience:
                        log.warning("%s of %s no longer waits: %s", task, self.key, error)
                        return GoOn(str(error))
                    continue
                except ClientError as error:
                    log.warning("commands for %s cannot be read: %s", self.key, error)
                    return GoOn(str(error))
                with self._lock:
                    verdict = self._commands.over(task, told_incident)
                if verdict is not None:
                    return verdict
        finally:
            with self._lock:
                self._commands.waiting.discard(task)

    def _obey(self, incident: str, wait: float) -> ToldIncident | None:
        """Request orders once, and carry them out; returns the state of the incident."""
        assert self._client is not None  # noqa: S101 - nothing is waited for without one
        names = [incident] if incident else []
        orders = self._client.send(engine_calls.orders(self.engine, run=self.id, incidents=names, wait=wait))
        with self._lock:
            answers = self._commands.take(orders.orders)
        for answer in answers:
            self._client.send(engine_calls.answer_order(self.engine, answer.order, answer.outcome, answer.detail))
        return orders.incidents.get(incident)


def script_run(
    name: str,
    *,
    client: ForestayClient | None = None,
    engine: str = "script",
    key: str | None = None,
    data: Mapping[str, object] | None = None,
    hold: bool = False,
    patience: float = 86_400.0,
) -> ScriptRun:
    """A script as a run. `name` is what it is an instance of: rules may be written for it.

    ``hold``: a task that failed and that no rule answers waits for a person or a new rule; otherwise it fails as without Forestay. ``patience``: seconds that a task which waits puts up with a server that is away.
    Without `client` the server and token are found as the command line finds them.
    """
    closes = client is None
    if client is None:
        try:
            settings = find_settings()
            client = ForestayClient(settings.server.value, settings.token.value, patience=Patience(seconds=10.0))
        except BadSettings as error:
            log.warning("%s runs without Forestay: %s", name, error)
    return ScriptRun(
        name, client=client, engine=engine, key=key, data=data, hold=hold, patience=patience, closes=closes
    )


def _told(result: object) -> object:
    """What is reported of a result: small plain values, and nothing else."""
    if isinstance(result, bool | int | float) or result is None:
        return result
    if isinstance(result, str):
        return result if len(result) <= 1000 else None
    return None
