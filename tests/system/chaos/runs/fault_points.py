"""Named points in the life of a run at which a process can be made to die.

A point stands before and after everything that a process does to the store, to the documents and to Temporal, around every activity, and around every
step of a workflow. Points have names such as ``orchestrator.store.write:before``. Every pass is written down, so that a run in which
nothing is hurt tells which points there are and how often each is passed.

The *order* says at which pass of which point who is to die: the process that passes (it kills itself, so nothing comes between), or
Temporal (the passing process kills it, waits until it is gone, and goes on). An order is carried out once, whoever is started again.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

BEFORE, AFTER = "before", "after"


@dataclass(frozen=True, slots=True)
class Order:
    """At the pass number `nth` of a point, counted in one process since the order was given, someone dies."""

    name: str
    """Of the order itself: each is carried out once."""
    point: str
    nth: int = 1
    victim: int = 0
    """The process to kill; 0: the one that passes."""


class FaultPoints:
    """The points of one process."""

    def __init__(self, folder: Path, process: str) -> None:
        self.folder = folder
        self.process = process
        self._order: Order | None = None
        self._stamp = 0
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._passes = os.open(folder / "passes", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def passed(self, place: str, when: str) -> None:
        """A point is passed; perhaps this does not return."""
        name = f"{self.process}.{place}:{when}"
        with self._lock:
            order = self._read()
            os.write(self._passes, f"{name}\n".encode())
            self._counts[name] += 1
            if order is None or order.point != name or self._counts[name] != order.nth:
                return
            try:
                # Two processes of the same kind, or one that was started again, carry it out once.
                os.close(os.open(self.folder / f"struck-{order.name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            except FileExistsError:
                return
            if order.victim:
                _kill_other(order.victim)
            else:
                os.kill(os.getpid(), signal.SIGKILL)

    def _read(self) -> Order | None:
        try:
            stamp = (self.folder / "order").stat().st_mtime_ns
        except FileNotFoundError:
            return None
        if stamp != self._stamp:
            self._stamp = stamp
            self._order = Order(**json.loads((self.folder / "order").read_text()))
            self._counts.clear()
        return self._order

    def watch(self, kind: type, place: str, *methods: str) -> None:
        """Put points around methods of an adapter."""
        for method in methods:
            setattr(kind, method, self._around(getattr(kind, method), f"{place}.{method}"))

    def _around(self, inner: Callable[..., Any], place: str) -> Callable[..., Any]:
        @functools.wraps(inner)
        async def watched(*args: Any, **options: Any) -> Any:
            self.passed(place, BEFORE)
            answer = await inner(*args, **options)
            self.passed(place, AFTER)
            return answer

        return watched


def give(folder: Path, order: Order) -> None:
    """All processes obey this order from now on."""
    fresh = folder / "order.new"
    fresh.write_text(json.dumps(asdict(order)))
    fresh.rename(folder / "order")


def struck(folder: Path, order: Order) -> bool:
    """Whether an order was carried out."""
    return (folder / f"struck-{order.name}").exists()


def passes(folder: Path) -> Counter[str]:
    """How often each point was passed, by all processes."""
    with suppress(FileNotFoundError):
        return Counter((folder / "passes").read_text().splitlines())
    return Counter()


def _kill_other(victim: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(victim, signal.SIGKILL)
    while _alive(victim):
        time.sleep(0.005)


def _alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"
