"""The functions that a flow calls: it starts jobs, gathers them, and marks where it can be continued."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from forestay.domain.flows.definition.ask_check import check_ask
from forestay.domain.flows.definition.flow import Compensation, Deadline, Task, WhenFailed
from forestay.domain.flows.definition.flow_pattern import (
    AskPattern,
    AwaitPattern,
    Dimension,
    FilesOf,
    JobPattern,
    LinesOf,
    ListOf,
    RangeOf,
    Source,
)
from forestay.domain.flows.definition.job_check import check_job
from forestay.domain.jobs.amounts import duration_of, size_of
from forestay.domain.jobs.job_secrets import secrets_from_plain
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import CheckpointPolicy, Effects, RetryPolicy, WhenExhausted
from forestay.flows.flow_context import BRANCH, FlowContext, PendingWork, flow_context

T = TypeVar("T")
Command = str | Sequence[str]
"""A string is a shell command line; a list is a command with its arguments."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Elements that are listed when the scatter begins, and not stored in the run."""

    source: FilesOf | LinesOf


MAX_ELEMENTS_BYTES = 65_536
"""The most bytes of JSON in the values of a scatter; a range has none."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")
_PLACE = re.compile(r"\$\{\s*([^}]*?)\s*\}")
_OUTPUT = re.compile(r"tasks\.([A-Za-z_][A-Za-z0-9_-]*)\.outputs\.[A-Za-z_][A-Za-z0-9_-]*")


def job(name: str, command: Command, **fields: Any) -> PendingWork:
    """Begin a job; ``await`` the returned value for its end. `JobFailed` is raised there if the job fails.

    The fields are those of a task in YAML: ``inputs``, ``outputs``, ``result``, ``environment``, ``max_attempts``, ``retry_wait``, ``when_exhausted``, ``container``, ``effects``,
    ``expected_runtime``, ``priority``, ``labels``, ``wait``, ``deadline``, ``when_failed`` (``hold``: it waits for a person instead of failing) ``compensate`` and ``action``; and
    of its resources ``cpus``, ``memory``, ``disk``, ``gpus``, ``wall``, ``nodes``. A name that was used before gets a number.
    """
    return _begin(name, command, {}, 0, fields)


def files(pattern: str) -> Listing:
    """For `scatter`: the files that match a pattern when the scatter begins, in the order of their names."""
    return Listing(FilesOf(_literal(pattern)))


def lines(path: str) -> Listing:
    """For `scatter`: the lines of a file; for lists too long to be stored in a run."""
    return Listing(LinesOf(_literal(path)))


def scatter(
    name: str, command: Command, over: Mapping[str, Iterable[object] | Listing], *, tolerate: int = 0, **fields: Any
) -> PendingWork:
    """Begin a job for every element, or for every combination of several; ``${variable}`` in its texts is replaced by the element.

    Await it for all; `JobFailed` is raised there if more than ``tolerate`` fail.
    """
    if not over:
        raise ValueError(f"scatter {name}: give the values, for example {{'seed': range(10)}}")
    return _begin(name, command, over, tolerate, fields)


def ask(
    name: str,
    title: str,
    *,
    text: str = "",
    form: Mapping[str, Any] | None = None,
    who: str | Sequence[str] = AskPattern("").who,
    default: Mapping[str, Any] | None = None,
    deadline: str | int | None = None,
) -> PendingWork:
    """Ask a person; ``await`` the returned value, whose ``result`` is the answer by the names of the form's fields.

    The fields are those of a question in YAML. At the deadline ``default`` is the answer; without one `JobFailed` is raised.
    """
    at = flow_context()
    _check_name(name)
    pattern = AskPattern(
        title=_literal(title),
        text=_literal(text),
        form=dict(form or {}),
        who=(who,) if isinstance(who, str) else tuple(who),
        default=default,
    )
    seconds = None if deadline is None else Deadline(duration_of(deadline))
    task = Task(at.name_for(name), pattern, deadline=seconds)
    wrong = [f"{problem.where}: {problem.message}" for problem in check_ask(task, pattern, (name,))]
    if wrong:
        raise ValueError("; ".join(wrong))
    return at.begin(task, name)


def wait_for(
    name: str,
    event: str,
    *,
    key: str = "",
    default: Mapping[str, Any] | None = None,
    deadline: str | int | None = None,
) -> PendingWork:
    """Wait for an external event; ``await`` the returned value, whose ``result`` is the event's data.

    At the deadline ``default`` is the result; without one `JobFailed` is raised.
    """
    at = flow_context()
    _check_name(name)
    if default is not None and deadline is None:
        raise ValueError(f"{name}: the default counts at the deadline; give a deadline")
    seconds = None if deadline is None else Deadline(duration_of(deadline))
    return at.begin(Task(at.name_for(name), AwaitPattern(event, _literal(key), default), deadline=seconds), name)


async def gather(*works: Awaitable[T] | Iterable[Awaitable[T]]) -> list[T]:
    """Wait for several; returns their results in the same order. The first failure is raised, when all have ended."""
    every: list[Awaitable[T]] = []
    for work in works:
        every += [work] if isinstance(work, Awaitable) else work
    parts: dict[int, Awaitable[T]] = {id(work): work for work in every}
    branches = f"{BRANCH.get()}/{flow_context().fork()}"
    for place, (known, work) in enumerate(list(parts.items())):
        if isinstance(work, Coroutine):
            parts[known] = _branch(f"{branches}.{place}", work)
    ends = await asyncio.gather(*(parts[id(work)] for work in every), return_exceptions=True)
    failures = [end for end in ends if isinstance(end, BaseException)]
    if len(failures) > 1:
        raise failures[0] from BaseExceptionGroup("others failed too", failures[1:])
    if failures:
        raise failures[0]
    return cast("list[T]", ends)


async def _branch(name: str, work: Awaitable[T]) -> T:
    BRANCH.set(name)
    return await work


async def checkpoint(state: object) -> None:
    """A point from which the flow can continue: together with ``restored``, nothing before it is needed again.

    Call it once in each round of a long loop, when everything begun has ended. Now and then the function is then restarted, and `restored` returns
    this state: a small value of JSON types.
    """
    await flow_context().checkpoint(state)


def restored(first: T) -> T:
    """The state of the last `checkpoint`; before there was one, ``first``."""
    state = flow_context().restored()
    return first if state is None else cast(T, state)


def now() -> float:
    """Seconds since 1970, the same whenever the flow is replayed."""
    return flow_context().now()


def _begin(
    name: str, command: Command, over: Mapping[str, Iterable[object] | Listing], tolerate: int, fields: Any
) -> PendingWork:
    at = flow_context()
    _check_name(name)
    dimensions = tuple(Dimension(variable, _source(name, variable, values)) for variable, values in over.items())
    wanted = dict(fields)
    deadline, when_failed = wanted.pop("deadline", None), wanted.pop("when_failed", "fail")
    undo, action = wanted.pop("compensate", None), str(wanted.pop("action", ""))
    texts = _Texts(at, frozenset(over) | ({"index"} if over else frozenset()))
    task = Task(
        name=at.name_for(name),
        pattern=_job(name, command, wanted, texts),
        scatter=dimensions,
        tolerate=tolerate,
        compensation=None if undo is None else _compensation(name, undo, texts),
        action=action,
        deadline=None if deadline is None else Deadline(duration_of(deadline)),
        when_failed=WhenFailed(when_failed),
    )
    return at.begin(task, name)


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a valid task name: at most 100 letters, digits, '_' and '-'")


def _source(name: str, variable: str, values: Iterable[object] | Listing) -> Source:
    if not _NAME.fullmatch(variable):
        raise ValueError(f"scatter {name}: {variable!r} is not a valid variable name")
    if isinstance(values, Listing):
        return values.source
    if isinstance(values, range):
        return RangeOf(values.start, values.stop, values.step)
    if isinstance(values, str | Mapping | set | frozenset):
        if isinstance(values, str) and values.startswith("${tasks."):
            raise TypeError(
                f"scatter {name}: {variable} is an output of another job; the files are known only when its jobs begin. "
                "Scatter over the results of that job, over lines(path), or write this part as a flow in YAML"
            )
        kind = type(values).__name__
        raise TypeError(f"scatter {name}: {variable} must be a list or a range, not a {kind}")
    members = tuple(values)
    try:
        size = len(json.dumps(members, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"scatter {name}: the values of {variable} are not of JSON types: {error}") from None
    if size > MAX_ELEMENTS_BYTES:
        raise ValueError(
            f"scatter {name}: the values of {variable} have {size} bytes as JSON, at most {MAX_ELEMENTS_BYTES} are possible; "
            "put them into a file and scatter over its lines(path)"
        )
    return ListOf(tuple(_escaped(member) for member in members))


class _Texts:
    """Texts in the flow's language: only outputs and the scatter's variables are references, any other ``${`` stays."""

    def __init__(self, at: FlowContext, own: frozenset[str]) -> None:
        self.at = at
        self.own = own

    def __call__(self, text: object) -> str:
        if not isinstance(text, str):
            raise TypeError(f"{text!r} is not a text")
        parts, end = [], 0
        for match in _PLACE.finditer(text):
            if self._refers(match[1]):
                parts += [_literal(text[end : match.start()]), match[0]]
                end = match.end()
        return "".join([*parts, _literal(text[end:])])

    def _refers(self, inner: str) -> bool:
        output = _OUTPUT.fullmatch(inner)
        if output is None:
            return inner.split(".", 1)[0].split("[", 1)[0] in self.own
        if not self.at.known(output[1]):
            raise ValueError(
                f"${{{inner}}}: the run has no task {output[1]} any more; include it in checkpoint's state"
            )
        return True

    def by_name(self, texts: Mapping[str, object]) -> dict[str, str]:
        return {name: self(text) for name, text in texts.items()}


def _literal(text: str) -> str:
    return text.replace("${", "$${")


def _escaped(value: object) -> object:
    return _literal(value) if isinstance(value, str) else value


def _command(name: str, command: object, texts: _Texts) -> tuple[str, ...]:
    if isinstance(command, str):
        return ("sh", "-c", texts(command))
    if isinstance(command, Sequence):
        return tuple(texts(word if isinstance(word, str) else str(word)) for word in command)
    raise TypeError(f"{name}: a command is a line for the shell or a list of words, not {command!r}")


def _compensation(name: str, undo: object, texts: _Texts) -> Compensation:
    fields: dict[str, Any] = dict(undo) if isinstance(undo, Mapping) else {"command": undo}
    tries = int(fields.pop("tries", 3))
    return Compensation(_job(name, fields.pop("command", None), fields, texts), tries)


def _checkpoint(name: str, given: Any) -> CheckpointPolicy | None:
    """Patterns of files, or all of its fields."""
    if given is None:
        return None
    fields: dict[str, Any] = dict(given) if isinstance(given, Mapping) else {"files": given}
    files = fields.pop("files", ())
    usual = CheckpointPolicy(files=())
    policy = CheckpointPolicy(
        files=(files,) if isinstance(files, str) else tuple(str(pattern) for pattern in files),
        signal=str(fields.pop("signal", usual.signal)),
        every=duration_of(fields.pop("every", usual.every)),
        grace=duration_of(fields.pop("grace", usual.grace)),
    )
    if fields:
        raise TypeError(f"{name}: a checkpoint has no {', '.join(sorted(fields))}")
    return policy


def _job(name: str, command: object, fields: dict[str, Any], texts: _Texts) -> JobPattern:
    take = dict(fields)
    wall = take.pop("wall", None)
    runtime = take.pop("expected_runtime", None)
    pattern = JobPattern(
        command=_command(name, command, texts),
        environment=texts.by_name(take.pop("environment", {})),
        resources=Resources(
            cpus=int(take.pop("cpus", 1)),
            memory=size_of(take.pop("memory", 0)),
            disk=size_of(take.pop("disk", 0)),
            gpus=int(take.pop("gpus", 0)),
            wall=None if wall is None else duration_of(wall),
            nodes=int(take.pop("nodes", 1)),
        ),
        inputs=texts.by_name(take.pop("inputs", {})),
        outputs=texts.by_name(take.pop("outputs", {})),
        result=str(take.pop("result", "")),
        container=texts(str(take.pop("container", ""))),
        effects=Effects(take.pop("effects", Effects.INTERNAL)),
        retry=RetryPolicy(
            int(take.pop("max_attempts", 1)),
            duration_of(take.pop("retry_wait", 0)),
            WhenExhausted(take.pop("when_exhausted", WhenExhausted.FAIL)),
        ),
        expected_runtime=None if runtime is None else duration_of(runtime),
        priority=int(take.pop("priority", 0)),
        labels=texts.by_name(take.pop("labels", {})),
        wait=bool(take.pop("wait", True)),
        requires=str(take.pop("requires", "")),
        licences={str(name): int(seats) for name, seats in take.pop("licences", {}).items()},
        checkpoint=_checkpoint(name, take.pop("checkpoint", None)),
        secrets=secrets_from_plain(take.pop("secrets", None)),
    )
    if take:
        raise TypeError(f"{name}: a job has no {', '.join(sorted(take))}")
    wrong = [f"{problem.where}: {problem.message}" for problem in check_job(pattern, (name,))]
    if wrong:
        raise ValueError("; ".join(wrong))
    return pattern
