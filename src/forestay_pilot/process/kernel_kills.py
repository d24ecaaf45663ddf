"""How often the kernel killed a process of this part of the machine because its memory was used up.

The kernel counts that for each control group. The count is of the whole group that the pilot is in, so two readings tell what happened between them.
"""

from __future__ import annotations

import functools
import os

from forestay_pilot.process.control_group import group_files


def oom_kills() -> int | None:
    """The count so far; None where the kernel does not provide it."""
    path = _counter()
    return None if path is None else kills_in(path)


def kills_in(path: str) -> int | None:
    """The count in a file of a control group."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            text = os.read(descriptor, 4096)
        finally:
            os.close(descriptor)
        for line in text.split(b"\n"):
            name, _, value = line.partition(b" ")
            if name == b"oom_kill":
                return int(value)
    except (OSError, ValueError):
        pass
    return None


@functools.lru_cache(maxsize=1)
def _counter() -> str | None:
    """The file with the count: of version 2 of control groups, or of version 1."""
    return next(iter(group_files("memory.events", "memory.oom_control")), None)
