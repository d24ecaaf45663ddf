"""What one caller may use of a server at a time, so that others are served beside it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from starlette.types import Scope

from forestay.apps.server.http.problems import HttpProblem

CALLER = "forestay.caller"
"""Where the check of a token leaves, in the scope of a request, whose it is."""
LONG_SLICE = 0.01
"""Seconds for which a body may hold the loop without a rest after it."""
REST = 50.0
"""How many times as long as a body held the loop its caller's next one waits: others meet it in fewer than two of a hundred requests."""
REFUSED = 2.0
"""Seconds of rest after a body that was refused for its shape."""
TURN = "forestay.turn"
"""Where a request with a large body has its turn, in its scope."""
WORKPLACE, AT_WORK = "forestay.workplace", "forestay.at_work"
PATIENCE = 30.0
"""Seconds that a request waits for its turn before it is told to come again."""


@dataclass(slots=True)
class Turn:
    """A request with a large body."""

    rest: float = 0.0
    """Seconds that the caller's next one waits."""

    def parsed(self, *, longest: float, total: float) -> None:
        """It was parsed, in slices of which the longest held the loop that long."""
        self.rest = max(self.rest, total, REST * longest if longest > LONG_SLICE else 0.0)

    def refused(self) -> None:
        """It is larger than any that is read: whoever sends one sends more."""
        self.rest = max(self.rest, REFUSED)


@dataclass(slots=True, eq=False)
class _Caller:
    users: int = 0
    """Requests that look at this; with none it is forgotten."""
    waiting: int = 0
    """Streams and long polls."""
    bytes: int = 0
    """Of bodies that are being received or worked on."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    rested: float = 0.0
    """When the next large body may be parsed."""


@dataclass(slots=True, eq=False)
class Workplace:
    """Where the requests that show one token take turns."""

    free: asyncio.Semaphore
    users: int = 0

    async def take(self, scope: Scope) -> None:
        await self.free.acquire()
        scope[AT_WORK] = True

    def give(self, scope: Scope) -> None:
        if scope.pop(AT_WORK, False):
            self.free.release()


@dataclass(slots=True)
class CallerLimits:
    """Counts what each caller has here; a caller is a person or program of a tenant, whatever token it shows."""

    most_waiting: int
    most_bytes: int
    most_at_work: int = 16
    _callers: dict[str, _Caller] = field(default_factory=dict)
    _at_work: dict[bytes, Workplace] = field(default_factory=dict)
    parsing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Large bodies are parsed one after another: two at once would hold the loop twice as long before each turn of others."""

    @asynccontextmanager
    async def at_work(self, scope: Scope) -> AsyncIterator[None]:
        """For as long as a request is worked on. Those that show one token take turns: a thousand at once delay nobody else.

        The token is not verified yet, since that is work as well.
        """
        shown = next((value for name, value in scope["headers"] if name in (b"authorization", b"cookie")), b"")
        known = self._at_work.get(shown)
        if known is None:
            known = self._at_work[shown] = Workplace(asyncio.Semaphore(self.most_at_work))
        known.users += 1
        scope[WORKPLACE] = known
        try:
            await known.take(scope)
            try:
                yield
            finally:
                known.give(scope)
        finally:
            known.users -= 1
            if not known.users:
                del self._at_work[shown]

    @contextmanager
    def waiting(self, scope: Scope) -> Iterator[None]:
        """For as long as a stream or a long poll is open; it is no work meanwhile."""
        if WORKPLACE in scope:
            scope[WORKPLACE].give(scope)
        with self._caller(scope) as caller:
            if caller.waiting >= self.most_waiting:
                raise HttpProblem(429, f"a caller may have {self.most_waiting} streams and waiting requests at once")
            caller.waiting += 1
            try:
                yield
            finally:
                caller.waiting -= 1

    @contextmanager
    def body(self, scope: Scope) -> Iterator[BodyBytes]:
        """For as long as the body of a request is received and worked on."""
        with self._caller(scope) as caller:
            held = BodyBytes(self.most_bytes, caller)
            try:
                yield held
            finally:
                caller.bytes -= held.size

    @asynccontextmanager
    async def large_body(self, scope: Scope) -> AsyncIterator[Turn]:
        """The turn of a request with a large body, from its first bytes to its answer: one of a caller at a time, then a rest."""
        with self._caller(scope) as caller:
            turn = Turn()
            try:
                if WORKPLACE in scope:
                    scope[WORKPLACE].give(scope)
                async with asyncio.timeout(PATIENCE):
                    await caller.turn.acquire()
                    try:
                        await asyncio.sleep(max(0.0, caller.rested - time.monotonic()))
                        if WORKPLACE in scope:
                            await scope[WORKPLACE].take(scope)
                    except BaseException:
                        caller.turn.release()
                        raise
            except TimeoutError:
                raise HttpProblem(
                    429, "other large requests of this caller are being read; send this one later"
                ) from None
            try:
                yield turn
            finally:
                caller.rested = time.monotonic() + turn.rest
                caller.turn.release()

    @contextmanager
    def _caller(self, scope: Scope) -> Iterator[_Caller]:
        name = scope.get(CALLER, "")
        caller = self._callers.setdefault(name, _Caller())
        caller.users += 1
        try:
            yield caller
        finally:
            caller.users -= 1
            self._forget(name, caller)

    def _forget(self, name: str, caller: _Caller) -> None:
        """Forget a caller that has nothing here, at once or after its rest."""
        if caller.users or self._callers.get(name) is not caller:
            return
        rest = caller.rested - time.monotonic()
        if rest <= 0:
            del self._callers[name]
        else:
            asyncio.get_running_loop().call_later(rest, self._forget, name, caller)


@dataclass(slots=True)
class BodyBytes:
    """The bytes of one body, counted as they come."""

    most: int
    caller: _Caller
    size: int = 0

    def add(self, many: int) -> None:
        if self.caller.bytes + many > self.most:
            raise HttpProblem(429, f"the bodies of a caller may have {self.most} bytes at once")
        self.size += many
        self.caller.bytes += many
