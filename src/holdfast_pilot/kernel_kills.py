"""How often the kernel killed a process of this machine's part because its memory was used up.

The kernel counts that for each control group. The count is of the whole group that the pilot is in, so two readings tell what happened between them.
"""

from __future__ import annotations

import functools


def oom_kills() -> int | None:
    """The count so far; nothing where the kernel does not tell it."""
    path = _counter()
    if path is None:
        return None
    try:
        with open(path, encoding="ascii", errors="replace") as source:
            for line in source:
                name, _, value = line.partition(" ")
                if name == "oom_kill":
                    return int(value)
    except (OSError, ValueError):
        pass
    return None


@functools.lru_cache(maxsize=1)
def _counter() -> str | None:
    """The file with the count: of version 2 of control groups, or of version 1."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8", errors="replace") as source:
            lines = [line.rstrip("\n").split(":", 2) for line in source]
    except OSError:
        return None
    for _, kinds, path in (line for line in lines if len(line) == 3):
        for place in _places(kinds, path):
            try:
                with open(place, encoding="ascii", errors="replace"):
                    return place
            except OSError:
                continue
    return None


def _places(kinds: str, path: str) -> list[str]:
    # Inside a container the group's own path is not there, and its root is what we are in.
    if kinds == "":
        return [f"/sys/fs/cgroup{path.rstrip('/')}/memory.events", "/sys/fs/cgroup/memory.events"]
    if "memory" in kinds.split(","):
        return [
            f"/sys/fs/cgroup/memory{path.rstrip('/')}/memory.oom_control",
            "/sys/fs/cgroup/memory/memory.oom_control",
        ]
    return []
