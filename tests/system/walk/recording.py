"""Which files a request enters, in order, and from where: the calls of Forestay's own functions while it is served."""

from __future__ import annotations

import asyncio
import dis
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
"""A walk begins at the route's function and ends when it returns: the layers around all routes check who may call it, and send its answer."""
OWN_LOOPS = frozenset({"completions", "claims"})
"""Background loops that do a part of the request's work; what the others, and the tasks that they start, do at the same time is no part of it."""

RESUME, AFTER_WAIT = dis.opmap["RESUME"], 3
"""The instruction with which each function begins or goes on, and the bits of its argument that say which of them."""
RETURNS = frozenset(dis.opmap[name] for name in ("RETURN_VALUE", "RETURN_CONST") if name in dis.opmap)
"""A coroutine that only waits gives a value too, by another instruction."""


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
    """Record the calls that are made meanwhile: a file is entered by a call, not by the return to a function that called or waited."""
    walk, places = Walk(), dict[CodeType, str]()
    routes: list[FrameType] = []
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
        code = frame.f_code
        if event == "return" and routes and frame is routes[0] and code.co_code[frame.f_lasti] in RETURNS:
            sys.setprofile(None)
        if event != "call" or _goes_on(frame):
            return
        where = place(code)
        if not where or code.co_name.startswith("<") or is_background() or _is_below(frame):
            return
        if not walk.entered:
            if not where.endswith(ROUTES):
                return
            routes.append(frame)
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


def _goes_on(frame: FrameType) -> bool:
    """Whether a coroutine or generator only goes on after it waited: it returns to its caller's text, as a function does, and is no new call."""
    at = frame.f_lasti
    return frame.f_code.co_code[at] == RESUME and frame.f_code.co_code[at + 1] & AFTER_WAIT != 0


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
