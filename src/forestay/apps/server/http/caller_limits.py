"""Limits on what one caller may use of a server at a time, so that others are served too."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from starlette.types import Scope

from forestay.apps.server.http.problems import HttpProblem

CALLER = "forestay.caller"
"""The key in a request's scope for its caller, set by the check of the token."""
LONG_SLICE = 0.01
"""Seconds for which a body may block the loop without a pause after it."""
REST = 50.0
"""The pause before the caller's next large body, as a multiple of the time for which this one blocked the loop: fewer than two in a hundred requests of others are affected."""
REFUSED = 2.0
"""Seconds of pause after a body that was refused for its shape."""
TURN = "forestay.turn"
"""The key in a request's scope for the turn of a large body."""
WORKPLACE, AT_WORK = "forestay.workplace", "forestay.at_work"
PATIENCE = 30.0
"""Seconds that a request waits for its turn before it is refused and asked to retry."""


@dataclass(slots=True)
class Turn:
    """The turn of a request with a large body."""

    rest: float = 0.0
    """Seconds that the caller's next large body waits."""

    def parsed(self, *, longest: float, total: float) -> None:
        """It was parsed, in slices of which the longest blocked the loop for this long."""
        self.rest = max(self.rest, total, REST * longest if longest > LONG_SLICE else 0.0)

    def refused(self) -> None:
        """It exceeds the limit for any body: its sender will send more of them."""
        self.rest = max(self.rest, REFUSED)


@dataclass(slots=True, eq=False)
class _Caller:
    users: int = 0
    """Requests that use this entry; without any it is dropped."""
    waiting: int = 0
    """Open streams and long polls."""
    bytes: int = 0
    """Bytes of bodies that are being received or processed."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    rested: float = 0.0
    """When the next large body may be parsed."""


@dataclass(slots=True, eq=False)
class Workplace:
    """The turns of requests with the same token."""

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
    """Large bodies are parsed one after another: two at once would block the loop twice as long before each turn of others."""

    @asynccontextmanager
    async def at_work(self, scope: Scope) -> AsyncIterator[None]:
        """Entered while a request is processed. Requests with the same token take turns: a thousand at once do not delay others.

        The token is not verified yet, since verification is work as well.
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
        """Entered while a stream or a long poll is open, which does not count as processing."""
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
        """Entered while the body of a request is received and processed."""
        with self._caller(scope) as caller:
            held = BodyBytes(self.most_bytes, caller)
            try:
                yield held
            finally:
                caller.bytes -= held.size

    @asynccontextmanager
    async def large_body(self, scope: Scope) -> AsyncIterator[Turn]:
        """The turn of a request with a large body, from its first bytes to its response: one per caller at a time, then a pause."""
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
        """Drop a caller without requests, at once or after its pause."""
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
