"""An event loop whose time is virtual and whose interleaving is chosen by a seed.

Every callback belongs to an actor (a process of the simulated world). Within one actor callbacks run in the order in which
they were asked for, as on a real loop; which actor goes next is drawn at random. Time jumps to the next timer when nobody has
anything to do. An actor can be frozen (nothing of it runs, as under SIGSTOP) or killed (nothing of it ever runs again).
"""

from __future__ import annotations

import asyncio
import contextvars
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from heapq import heappop, heappush
from random import Random
from typing import Any

ACTOR: contextvars.ContextVar[Actor] = contextvars.ContextVar("actor")


class Stuck(Exception):
    """Nobody has anything to do and no timer is set, or everybody is busy and time stands still."""


PATIENCE = 300_000
"""Turns at one moment: whole schedules have fewer."""


class Turn:
    """One callback that waits for its turn; what asyncio calls a handle."""

    __slots__ = ("_args", "_callback", "_cancelled", "actor", "context", "due")

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context, actor: Actor
    ) -> None:
        self._callback = callback
        self._args = args
        self._cancelled = False
        self.context = context
        self.actor = actor
        self.due = 0.0

    def cancel(self) -> None:
        self._cancelled = True
        self._args = ()

    def cancelled(self) -> bool:
        return self._cancelled

    def when(self) -> float:
        return self.due

    def run(self) -> None:
        if not self._cancelled:
            self.context.run(self._callback, *self._args)


class Actor:
    """One simulated process."""

    def __init__(self, loop: VirtualLoop, name: str) -> None:
        self.loop = loop
        self.name = name
        self.frozen = False
        self.dead = False
        self.listed = False
        self.queue: deque[Turn] = deque()
        self.context = contextvars.Context()
        self.context.run(ACTOR.set, self)
        self.tasks: list[asyncio.Task[Any]] = []
        loop.actors.append(self)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something as part of this process."""
        task: asyncio.Task[Any] = asyncio.Task(work, loop=self.loop, context=self.context)
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # a killed process says nothing
        self.tasks.append(task)
        return task

    def later(self, delay: float, callback: Callable[..., object], *args: Any) -> Turn:
        """Call something as part of this process after a while."""
        turn = Turn(callback, args, self.context, self)
        self.loop.wait_until(self.loop._now + delay, turn)
        return turn

    def freeze(self) -> None:
        self.frozen = True

    def thaw(self) -> None:
        self.frozen = False
        self.loop.list_actor(self)

    def kill(self) -> None:
        self.dead = True
        self.queue.clear()


class VirtualLoop(asyncio.AbstractEventLoop):
    """The loop; it does only what a simulation needs."""

    def __init__(self, rng: Random) -> None:
        self._random = rng.random
        self._now = 0.0
        self._timers: list[tuple[float, int, Turn]] = []
        self._count = 0
        self._active: list[Actor] = []
        self._closed = False
        self.turns = 0
        self._moved = 0
        """How many turns there had been when time moved last."""
        self.actors: list[Actor] = []
        self.world = Actor(self, "world")

    # -- what asyncio asks of a loop ---------------------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self._closed

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], *, name: object = None, context: contextvars.Context | None = None
    ) -> asyncio.Task[Any]:
        return ACTOR.get().spawn(coro)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Turn:
        actor = ACTOR.get() if context is None else context[ACTOR]
        turn = Turn(callback, args, actor.context if context is None else context, actor)
        if not actor.dead:
            actor.queue.append(turn)
            if not actor.listed and not actor.frozen:
                actor.listed = True
                self._active.append(actor)
        return turn

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Turn:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Turn:
        actor = ACTOR.get() if context is None else context[ACTOR]
        turn = Turn(callback, args, actor.context if context is None else context, actor)
        self.wait_until(when, turn)
        return turn

    def _timer_handle_cancelled(self, handle: object) -> None:
        """Cancelled timers are passed over when their time comes."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Told when something is thrown away, which is a matter of luck; `failed_tasks` is what counts."""

    # -- the simulation's side ---------------------------------------------------------------------------------

    def wait_until(self, when: float, turn: Turn) -> None:
        turn.due = when
        self._count += 1
        heappush(self._timers, (when, self._count, turn))

    def list_actor(self, actor: Actor) -> None:
        """An actor that was thawed may run again."""
        if actor.queue and not actor.listed and not actor.frozen and not actor.dead:
            actor.listed = True
            self._active.append(actor)

    def run(self, main: Coroutine[Any, Any, Any]) -> Any:
        """Run until the main coroutine has ended; it is part of the world, which nobody freezes."""
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            task = self.world.spawn(main)
            while not task.done():
                self._turn()
            return task.result()
        finally:
            events._set_running_loop(before)

    def failed_tasks(self) -> list[asyncio.Task[Any]]:
        """Everything that ended by an error nobody expected."""
        ended = [task for actor in self.actors for task in actor.tasks if task.done() and not task.cancelled()]
        return [task for task in ended if task.exception() is not None]

    def close(self) -> None:
        """Nothing that is still asked for will run."""
        self._closed = True
        self._timers.clear()
        self._active.clear()

    def _turn(self) -> None:
        active = self._active
        while not active:
            self._jump()
        place = int(self._random() * len(active)) if len(active) > 1 else 0
        actor = active[place]
        if actor.queue and not actor.frozen:
            self.turns += 1
            if self.turns - self._moved > PATIENCE:
                raise Stuck(f"at {self._now} s: {actor.queue[0]}")
            turn = actor.queue.popleft()
            turn.run()
        if not actor.queue or actor.frozen:
            actor.listed = False
            active[place] = active[-1]
            active.pop()

    def _jump(self) -> None:
        """Move on to the next timer; those of frozen actors wait in their queues, those of dead ones are gone."""
        timers = self._timers
        if not timers:
            raise Stuck
        when = timers[0][0]
        if when > self._now:
            self._now, self._moved = when, self.turns
        while timers and timers[0][0] <= when:
            turn = heappop(timers)[2]
            actor = turn.actor
            if turn._cancelled or actor.dead:
                continue
            actor.queue.append(turn)
            if not actor.listed and not actor.frozen:
                actor.listed = True
                self._active.append(actor)
