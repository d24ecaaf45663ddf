"""The engine in which cases live: durable, with timers and signals, and nothing in it but ids, counts, bitmaps and small values.

The law, for every adapter:

* A case is accepted when `start` returns. The same id again is the same case: nothing is started twice, whatever else differs.
* What is told to a case or a shard arrives at least once and in any order; the domain takes repeats.
* A verb is answered by the case itself, once; its id makes the repeat safe.
* `Transient`: the engine did not answer; the same call again is safe. `NotFound`: there is no such case, or it has ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from forestay.domain.flows.commands import AnswerVerb
from forestay.domain.flows.events import Event, Verb
from forestay.domain.flows.scatter.shard_run import ShardEvent


@dataclass(frozen=True, slots=True)
class CaseStart:
    """A case as it is asked for."""

    case: str
    tenant: str
    owner: str
    version: str
    """The flow's content hash, which the case is pinned to."""
    name: str
    """The flow's name."""
    flow: Mapping[str, Any]
    """The flow's plain form."""
    params: Mapping[str, object] = field(default_factory=dict)
    worklet: Mapping[str, Any] = field(default_factory=dict)
    """Of a case that an exlet starts: ``exlet`` (the name of its run), ``step`` and ``place``, told when the run has ended, and ``ancestor``, the case above."""
    held: tuple[str, ...] = ()
    """The incidents for which it may not begin yet; it has them answered when it is there."""
    parent: Mapping[str, Any] = field(default_factory=dict)
    """Of the case of a sub-flow that is started for its parent: ``case``, ``work`` and ``index``, told when it has ended."""
    above: tuple[str, ...] = ()
    """The versions of the flows above it."""
    holders: tuple[str, ...] = ()


class CaseSummary(NamedTuple):
    """A case in a list."""

    case: str
    tenant: str
    owner: str
    name: str
    version: str
    state: str
    started: int
    ended: int | None
    above: str = ""
    """The case whose sub-flow it is, as far as the engine knows."""


@dataclass(frozen=True, slots=True)
class CaseQuery:
    """Which cases are meant; what is empty says nothing."""

    tenant: str
    name: str = ""
    version: str = ""
    state: str = ""
    owner: str = ""
    open: bool = False
    """Only those that have not ended."""


class CasePage(NamedTuple):
    """Some of the cases found, the newest first, and where to go on."""

    cases: Sequence[CaseSummary]
    cursor: str | None


class RunHistoryEvent(NamedTuple):
    """One thing that happened to a case: what was done for it, told to it, or asked of it."""

    at: int
    kind: str
    facts: Mapping[str, Any]


class HistoryPage(NamedTuple):
    """Some of what happened, the oldest first, and where to go on; no cursor: this was the last."""

    happenings: Sequence[RunHistoryEvent]
    cursor: str | None


class FlowEngine(Protocol):
    """The port."""

    async def open(self) -> None:
        """Connect; `Transient` while the engine cannot be reached."""
        ...

    async def close(self) -> None: ...

    async def start(self, start: CaseStart) -> bool:
        """Start a case; False if it had been started before."""
        ...

    async def tell_case(self, case: str, events: Sequence[Event]) -> None:
        """Let a case take events in; `NotFound` if it has ended or never was."""
        ...

    async def tell_shard(self, case: str, work: str, shard: int, events: Sequence[ShardEvent]) -> None:
        """Let a shard take events in; `NotFound` if it has ended or never was."""
        ...

    async def send_verb(self, case: str, verb: Verb) -> AnswerVerb:
        """Have a case obey a verb; `NotFound` if it has ended or never was."""
        ...

    async def send_message(self, case: str, letter: Mapping[str, Any]) -> None:
        """Give the case of a process a message: ``partner``, ``operation`` and ``message``; `NotFound` if it has ended or never was."""
        ...

    async def describe(self, case: str) -> CaseSummary:
        """A case as the engine lists it, ended or not; `NotFound`."""
        ...

    async def state(self, case: str) -> Mapping[str, Any]:
        """What a case is at: the plain form of its `FlowRun`; of one that has ended, as it ended. `NotFound`."""
        ...

    async def find(self, query: CaseQuery, *, limit: int = 100, cursor: str | None = None) -> CasePage:
        """Cases by search, the newest first; it lags by a second or so. `Permanent` for a bad cursor."""
        ...

    async def count(self, query: CaseQuery) -> int:
        """How many cases a search would find."""
        ...

    async def history(self, case: str, *, limit: int = 100, cursor: str | None = None) -> HistoryPage:
        """What happened to a case; a page may have some more than the limit. `NotFound`; `Permanent` for a bad cursor."""
        ...
