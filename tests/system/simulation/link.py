"""The network between pilots, people and servers: requests and answers get lost, and either side may be gone."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from tests.system.simulation.faults import Chances
from tests.system.simulation.virtual_loop import Actor, VirtualLoop

if TYPE_CHECKING:
    from tests.system.simulation.server import SimServer

Handler = Callable[["SimServer"], Coroutine[Any, Any, Any]]


class LinkLost(Exception):
    """No answer came: the request may or may not have been carried out."""


@dataclass(eq=False, slots=True)
class Call:
    """One request on its way."""

    caller: Actor
    answer: asyncio.Future[Any]
    lost: bool
    """The answer will not arrive."""
    work: asyncio.Task[Any] | None = None


class Link:
    """All connections to all servers."""

    def __init__(self, loop: VirtualLoop, rng: Random, tally: Counter[str]) -> None:
        self.loop = loop
        self.rng = rng
        self.tally = tally
        self.chances = Chances()
        self.cut: set[tuple[str, int]] = set()
        """Callers and addresses between which nothing passes."""

    async def call(self, caller: Actor, server: SimServer | None, handler: Handler, *, patience: float) -> Any:
        """Ask a server; `LinkLost` when no answer came in time, or the server is gone, or it failed."""
        if server is None or server.actor.dead:
            await asyncio.sleep(self._way())
            raise LinkLost("refused")
        if (caller.name, server.address) in self.cut or self.rng.random() < self.chances.link_request_lost:
            self.tally["link: request lost"] += 1
            await asyncio.sleep(patience)
            raise LinkLost("timeout")
        call = Call(caller, self.loop.create_future(), lost=self.rng.random() < self.chances.link_answer_lost)
        if call.lost:
            self.tally["link: answer lost"] += 1
        server.open_calls[call] = None
        server.actor.later(self._way(), self._serve, server, handler, call)
        timer = caller.later(patience, _give_up, call.answer, "timeout")
        try:
            return await call.answer
        finally:
            timer.cancel()
            server.open_calls.pop(call, None)
            if call.work is not None and not call.work.done():
                # The server may see that nobody listens any more.
                server.actor.later(self._way(), call.work.cancel)

    def _serve(self, server: SimServer, handler: Handler, call: Call) -> None:
        call.work = server.actor.spawn(self._handle(server, handler, call))

    async def _handle(self, server: SimServer, handler: Handler, call: Call) -> None:
        result: object
        try:
            result = await handler(server)
        except LinkLost as error:
            result = error
        if not call.lost and (call.caller.name, server.address) not in self.cut:
            call.caller.later(self._way(), _deliver, call.answer, result)

    def broken(self, server: SimServer) -> None:
        """The server died: whoever waits for it is told by a reset."""
        for call in server.open_calls:
            call.caller.later(self._way(), _give_up, call.answer, "reset")

    def _way(self) -> float:
        return 0.001 + 0.004 * self.rng.random()


def _deliver(answer: asyncio.Future[Any], result: Any) -> None:
    if answer.done():
        return
    if isinstance(result, LinkLost):
        answer.set_exception(result)
    else:
        answer.set_result(result)


def _give_up(answer: asyncio.Future[Any], why: str) -> None:
    if not answer.done():
        answer.set_exception(LinkLost(why))
