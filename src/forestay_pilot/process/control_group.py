"""The control group of this process, as Linux reports it: its files in version 2 and in version 1."""

from __future__ import annotations

import os

ROOT = "/sys/fs/cgroup"
_PROC = "/proc/self/cgroup"
_NO_LIMIT = 1 << 60  # version 1 has a number for it, larger than any machine


def group_files(new: str, old: str, *, proc: str = _PROC, root: str = ROOT) -> list[str]:
    """The readable files of this process's group and of those above it, by their names in version 2 or, of the memory
    group, in version 1; its own group's first."""
    places: list[str] = []
    for folder, top, name in _folders(new, old, proc, root):
        at = folder
        while at.startswith(top):
            places.append(f"{at}/{name}")
            at = os.path.dirname(at)
        # Inside a container the group's own path does not exist, and the mounted root is our group.
        places.append(f"{top}/{name}")
    return [place for place in dict.fromkeys(places) if os.access(place, os.R_OK)]


def _folders(new: str, old: str, proc: str, root: str) -> list[tuple[str, str, str]]:
    """For each version: the group's folder, the hierarchy's top, and the name of the file."""
    try:
        with open(proc, encoding="utf-8", errors="replace") as source:
            lines = [line.rstrip("\n").split(":", 2) for line in source]
    except OSError:
        return []
    folders = []
    for _, kinds, path in (line for line in lines if len(line) == 3):
        if kinds == "":
            folders.append((f"{root}{path.rstrip('/')}", root, new))
        elif "memory" in kinds.split(","):
            folders.append((f"{root}/memory{path.rstrip('/')}", f"{root}/memory", old))
    return folders


def memory_limit(*, proc: str = _PROC, root: str = ROOT) -> int | None:
    """The bytes of memory that the batch system or container allows this process and all beside it; None for no limit."""
    limits = []
    for place in group_files("memory.max", "memory.limit_in_bytes", proc=proc, root=root):
        try:
            with open(place, encoding="ascii", errors="replace") as source:
                limits.append(int(source.read()))
        except (OSError, ValueError):  # also `max`
            continue
    least = min(limits, default=_NO_LIMIT)
    return least if least < _NO_LIMIT else None


def machine_memory() -> int:
    """The bytes of memory that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def usable_memory() -> int:
    """The bytes of memory that this process and all beside it may have."""
    limit = memory_limit()
    return machine_memory() if limit is None else min(limit, machine_memory())
