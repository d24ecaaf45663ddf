"""Which files a request enters, in order, and from where: the calls of Forestay's own functions while it is served."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import forestay

SOURCE = Path(forestay.__file__).parent
WITHOUT = (
    "adapters/sql/",
    "adapters/system/clock.py",
    "ports/",
    "services/shared/store_errors.py",
    "services/shared/polling.py",
    "apps/compose/loops.py",
)
"""The store, the clock and the loops: a reader does not follow a request into them."""
STORE = "/forestay/adapters/sql/"
ROUTES = "_routes.py"
"""A walk begins at the route's function: who may call it was checked before."""
OWN_LOOPS = frozenset({"completions", "claims"})
"""Background loops that do a part of the request's work; what the others, and the tasks that they start, do at the same time is no part of it."""


class Hop(NamedTuple):
    """A call from one file into another."""

    caller: str
    """The file, below `src/forestay`."""
    line: int
    callee: str
    function: str
    """Its qualified name."""


@dataclass(slots=True)
class Walk:
    """The files that were entered, in order; the same file twice in a row is one entry."""

    entered: list[str] = field(default_factory=list)
    hops: dict[Hop, None] = field(default_factory=dict)

    @property
    def files(self) -> list[str]:
        """Each file once, in the order in which it was first entered."""
        return list(dict.fromkeys(self.entered))

    @property
    def changes(self) -> int:
        """How often the reader changes to another file."""
        return len(self.entered)


@contextmanager
def walked() -> Iterator[Walk]:
    """Record the calls that are made meanwhile."""
    walk, places = Walk(), dict[CodeType, str]()
    loop, me = asyncio.get_running_loop(), asyncio.current_task()
    background = {task for task in asyncio.all_tasks() if task is not me and task.get_name() not in OWN_LOOPS}

    def started(loop: asyncio.AbstractEventLoop, work: Any, **rest: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(work, loop=loop, **rest)
        if asyncio.current_task() in background:
            background.add(task)
        return task

    def place(code: CodeType) -> str:
        known = places.get(code)
        if known is None:
            known = places[code] = _place(code)
        return known

    def is_background() -> bool:
        try:
            task = asyncio.current_task()
        except RuntimeError:
            return True
        return task in background

    def called(frame: FrameType, event: str, _argument: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        where = place(code)
        if not where or code.co_name.startswith("<") or is_background() or _is_below(frame):
            return
        if not walk.entered and not where.endswith(ROUTES):
            return
        if not walk.entered or walk.entered[-1] != where:
            walk.entered.append(where)
        caller = frame.f_back
        if caller is not None and (came := place(caller.f_code)) and came != where:
            walk.hops[Hop(came, caller.f_lineno, where, code.co_qualname)] = None

    loop.set_task_factory(started)
    sys.setprofile(called)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        loop.set_task_factory(None)


def _place(code: CodeType) -> str:
    """A function's file, below `src/forestay`; empty if it is not one that is walked into."""
    path = Path(code.co_filename)
    name = str(path.relative_to(SOURCE)) if path.is_relative_to(SOURCE) else ""
    return "" if name.startswith(WITHOUT) else name


def _is_below(frame: FrameType) -> bool:
    """Whether the store called it, to read or write a document."""
    caller = frame.f_back
    while caller is not None:
        if STORE in caller.f_code.co_filename:
            return True
        caller = caller.f_back
    return False
