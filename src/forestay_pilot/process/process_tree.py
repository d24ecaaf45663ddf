"""The process tree, as Linux reports it.

Guard, pilot and every payload adopt the orphans below them. So what a payload leaves behind comes to its guard when the payload
is over, and to the pilot when the guard is; no process gets away by a session of its own or without its environment.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from typing import Any


def children_of(pid: int) -> list[int]:
    """The living and dead children of a process, whichever of its threads they belong to."""
    words = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb", buffering=0) as source:
                words += [int(word) for word in source.read().split()]
    except OSError:
        return _children_by_search(pid)
    return words


def descendants_of(pid: int) -> list[int]:
    """All that live below a process, the nearest first."""
    found = children_of(pid)
    for child in found:
        found += children_of(child)
    return found


def _children_by_search(pid: int) -> list[int]:
    """The same for kernels built without the list of children."""
    names = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as source:
                # The name, in brackets, may hold anything; the parent is the second word after it.
                parent = int(source.read().rpartition(b")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue
        if parent == pid:
            names.append(int(name))
    return names


class OwnSessions:
    """The programs that this process itself started in sessions of their own; every other session below it is a payload's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, argv: list[str], **options: Any) -> subprocess.Popen[bytes]:
        """Start a program in a session of its own."""
        with self._lock:
            process = subprocess.Popen(argv, start_new_session=True, **options)  # noqa: S603 - the caller's own program
            self._started = {pid: known for pid, known in self._started.items() if known.returncode is None}
            self._started[process.pid] = process
            return process

    def orphans(self) -> list[int]:
        """The children of this process that it has not started itself."""
        with self._lock:
            own = {os.getsid(0), *(pid for pid, process in self._started.items() if process.returncode is None)}
            found = []
            for pid in children_of(os.getpid()):
                with contextlib.suppress(OSError):
                    if os.getsid(pid) not in own:
                        found.append(pid)
            return found


OWN_SESSIONS = OwnSessions()
