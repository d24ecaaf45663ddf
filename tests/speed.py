"""Limits in seconds that mean the same on every machine.

Machines differ in speed by half and more, and a busy one is slower still. So a limit is written for the machine on which
`REFERENCE` was measured and stretched by how much slower a fixed loop runs here, in the same process, at the same time.
It is never tightened: a fast machine proves nothing about the limit.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

REFERENCE = 0.011
"""Seconds that `_loop` takes on the machine for which limits are written."""
ROUNDS = 5


def cpu_limit(seconds: float) -> float:
    """A limit for processor time: the best of some loops, since what else runs does not count."""
    return seconds * max(1.0, min(_measured(time.thread_time)) / REFERENCE)


def clock_limit(seconds: float) -> float:
    """A limit for elapsed time: the slowest of some loops, since waiting for a processor counts."""
    return seconds * max(1.0, max(_measured(time.monotonic)) / REFERENCE)


def typical(rounds: int = 80) -> float:
    """How many times slower than the reference this process runs, over about a second unless told otherwise."""
    return statistics.mean(_measured(time.monotonic, rounds)) / REFERENCE


def _measured(clock: Callable[[], float], rounds: int = ROUNDS) -> list[float]:
    took = []
    for _ in range(rounds):
        began = clock()
        _loop()
        took.append(clock() - began)
    return took


def _loop() -> int:
    """What Python code does most: attribute-free arithmetic, small objects, dictionaries, strings."""
    seen: dict[str, int] = {}
    total = 0
    for number in range(60_000):
        key = str(number % 997)
        seen[key] = seen.get(key, 0) + number
        total += len(key) ^ number
    return total + len(seen)
