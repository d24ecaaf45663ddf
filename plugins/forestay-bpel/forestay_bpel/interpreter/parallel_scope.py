"""Runs activities in parallel: the first that fails ends the others, and none outlives its starter."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any

Work = Coroutine[Any, Any, Any]


class ParallelScope:
    """Tasks that belong together. Which one failed first is determined by their order, not by chance."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.tasks: list[asyncio.Task[Any]] = []
        self.open = 0
        self.failed: BaseException | None = None
        self._change = self.loop.create_future()

    def spawn(self, work: Work) -> asyncio.Task[Any]:
        task = self.loop.create_task(work)
        self.tasks.append(task)
        self.open += 1
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Task[Any]) -> None:
        self.open -= 1
        if not task.cancelled() and task.exception() is not None and self.failed is None:
            self.failed = task.exception()
        if not self._change.done():
            self._change.set_result(None)

    async def change(self) -> None:
        """Wait until one of the tasks has ended."""
        await self._change
        self._change = self.loop.create_future()

    async def wait(self) -> None:
        """Wait until all have ended, or one has failed: its error is raised after all others have been ended."""
        try:
            while self.open and self.failed is None:
                await self.change()
        except asyncio.CancelledError:
            await self.end()
            raise
        if self.failed is not None:
            await self.end()
            raise self.failed

    async def end(self) -> None:
        """Cancel running tasks, and wait until they have ended."""
        for task in self.tasks:
            if not task.done():
                task.cancel()
        interrupted = False
        for task in self.tasks:
            interrupted |= await ended(task)
        if interrupted:
            raise asyncio.CancelledError


async def ended(task: asyncio.Task[Any]) -> bool:
    """Wait for a task whatever happens; returns whether the caller was cancelled meanwhile."""
    interrupted = False
    while not task.done():
        interrupted |= await heard(task)
    return interrupted


async def heard(task: asyncio.Task[Any]) -> bool:
    """Wait for a task once; returns whether the caller was cancelled instead."""
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    task.add_done_callback(partial(_tell, over))
    try:
        await over
    except asyncio.CancelledError:
        return True
    return False


def _tell(over: asyncio.Future[None], _: object) -> None:
    if not over.done():
        over.set_result(None)
