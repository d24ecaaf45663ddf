"""The engine that runs flows: durable, with timers and signals; it holds only ids, counts, bitmaps and small values.

The contract of every adapter:

* A run is accepted when `start` returns. The same id again is the same run: nothing is started twice, whatever else differs. Only a resumed run is
  started again, once it has ended.
* Events for a run or a shard arrive at least once and in any order; the domain tolerates repeats.
* A verb is answered by the run itself, once; its id makes a repeat safe.
* `Transient`: the engine did not answer; repeating the call is safe. `NotFound`: there is no such run, or it has ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from forestay.domain.flows.commands import AnswerVerb
from forestay.domain.flows.events import Event, Verb
from forestay.domain.flows.scatter.shard_run import ShardEvent


@dataclass(frozen=True, slots=True)
class RunStart:
    """A request to start a run."""

    run: str
    tenant: str
    owner: str
    version: str
    """The flow's content hash, to which the run is pinned."""
    name: str
    """The flow's name."""
    flow: Mapping[str, Any]
    """The flow's plain form."""
    params: Mapping[str, object] = field(default_factory=dict)
    worklet: Mapping[str, Any] = field(default_factory=dict)
    """Of a run that a playbook starts: ``playbook`` (the name of its run), ``step`` and ``place``, which get its result, and ``ancestor``, the run above."""
    held: tuple[str, ...] = ()
    """The incidents that must be answered before it may begin; it requests the answers itself once it exists."""
    parent: Mapping[str, Any] = field(default_factory=dict)
    """Of the run of a sub-flow that is started for its parent: ``run``, ``work`` and ``index``, to which its end is reported."""
    above: tuple[str, ...] = ()
    """The versions of the flows above it."""
    holders: tuple[str, ...] = ()
    schedule: str = ""
    """The schedule that starts it."""
    resumed: Mapping[str, Any] = field(default_factory=dict)
    """Of a run that has ended and is resumed under its id: ``state``, the plain form of its `FlowRun` as it ended; ``task`` and ``changes``, see `resume_run`."""


class RunSummary(NamedTuple):
    """A run in a list."""

    run: str
    tenant: str
    owner: str
    name: str
    version: str
    state: str
    started: int
    ended: int | None
    above: str = ""
    """The run of which it is a sub-flow, as far as the engine knows."""
    schedule: str = ""
    """The schedule that started it."""


@dataclass(frozen=True, slots=True)
class RunQuery:
    """Selects runs; empty fields do not restrict."""

    tenant: str
    name: str = ""
    version: str = ""
    state: str = ""
    """One state, or several separated by commas."""
    owner: str = ""
    open: bool = False
    """Only those that have not ended."""


class RunPage(NamedTuple):
    """A page of runs, newest first, and a cursor for the next page."""

    runs: Sequence[RunSummary]
    cursor: str | None


class RunHistoryEvent(NamedTuple):
    """An event in the history of a run."""

    at: int
    kind: str
    facts: Mapping[str, Any]


class HistoryPage(NamedTuple):
    """A page of a history, oldest first, and a cursor for the next page; no cursor: this is the last."""

    happenings: Sequence[RunHistoryEvent]
    cursor: str | None


class FlowEngine(Protocol):
    """The port."""

    async def open(self) -> None:
        """Connect; `Transient` while the engine cannot be reached."""
        ...

    async def close(self) -> None: ...

    async def start(self, start: RunStart) -> bool:
        """Start a run; False if it had been started before, or, when it is to be resumed, if it has not ended."""
        ...

    async def tell_run(self, run: str, events: Sequence[Event]) -> None:
        """Send events to a run; `NotFound` if it has ended or never existed."""
        ...

    async def tell_shard(self, run: str, work: str, shard: int, events: Sequence[ShardEvent]) -> None:
        """Send events to a shard; `NotFound` if it has ended or never existed."""
        ...

    async def send_verb(self, run: str, verb: Verb) -> AnswerVerb:
        """Have a run execute a verb; `NotFound` if it has ended or never existed."""
        ...

    async def send_message(self, run: str, letter: Mapping[str, Any]) -> None:
        """Send the run of a process a message: ``partner``, ``operation`` and ``message``; `NotFound` if it has ended or never existed."""
        ...

    async def describe(self, run: str) -> RunSummary:
        """A run as the engine lists it, ended or not; `NotFound`."""
        ...

    async def state(self, run: str) -> Mapping[str, Any]:
        """The present state of a run, as the plain form of its `FlowRun`; the final state if it has ended. `NotFound`."""
        ...

    async def find(self, query: RunQuery, *, limit: int = 100, cursor: str | None = None) -> RunPage:
        """Runs by search, newest first; results lag by about a second. `Permanent` for a bad cursor."""
        ...

    async def count(self, query: RunQuery) -> int:
        """How many runs a search would find."""
        ...

    async def history(self, run: str, *, limit: int = 100, cursor: str | None = None) -> HistoryPage:
        """The history of a run; a page may slightly exceed the limit. `NotFound`; `Permanent` for a bad cursor."""
        ...
