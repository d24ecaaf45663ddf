"""A control group for each payload, where the pilot may create some.

In it the kernel keeps the payload to the memory it asked for, counts what it used with all its processes, and tells whether it was
killed for memory, with nobody else's kills among them. Nothing escapes from it by leaving the session. Version 2 is found by
itself; a folder of version 1's memory groups does when it is named.
"""

from __future__ import annotations

import contextlib
import os
import signal

from forestay_pilot.process.control_group import ROOT
from forestay_pilot.process.kernel_kills import kills_in

MOST_PROCESSES = 16384  # a payload that forks without end is stopped before the machine is
_OWN = "forestay-pilot"
_PREFIX = "forestay-"


class PayloadCgroup:
    """The control group of one payload."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._new = os.path.exists(f"{folder}/cgroup.events")

    def limit(self, memory: int) -> None:
        """Limit the memory of the group to this many bytes; no limit when 0."""
        if memory > 0:
            _write(f"{self._folder}/{'memory.max' if self._new else 'memory.limit_in_bytes'}", str(memory))
        if self._new:
            # All of the payload dies when one process of it has to: half of a job is of no use.
            for name, value in (("memory.oom.group", "1"), ("pids.max", str(MOST_PROCESSES))):
                with contextlib.suppress(OSError):
                    _write(f"{self._folder}/{name}", value)

    def enter(self) -> None:
        """Move this process into it; called by the payload's own process before its program begins."""
        _write(f"{self._folder}/cgroup.procs", "0")

    def peak(self) -> int | None:
        """The peak memory in bytes; None where the kernel does not provide it."""
        name = "memory.peak" if self._new else "memory.max_usage_in_bytes"
        try:
            with open(f"{self._folder}/{name}", encoding="ascii") as source:
                return int(source.read())
        except (OSError, ValueError):
            return None

    def oom_kills(self) -> int | None:
        """How often the kernel killed in it for memory."""
        return kills_in(f"{self._folder}/{'memory.events' if self._new else 'memory.oom_control'}")

    def was_full(self) -> bool:
        """Whether its limit was reached, in it or in a group below it; version 1 only."""
        try:
            with open(f"{self._folder}/memory.failcnt", encoding="ascii") as source:
                return int(source.read()) > 0
        except (OSError, ValueError):
            return False

    def kill(self) -> None:
        """Kill everything in it."""
        try:
            _write(f"{self._folder}/cgroup.kill", "1")
        except OSError:
            for pid in self._members():
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)

    def remove(self) -> bool:
        """Take it away, killing what is left in it; false while something is still there."""
        if self._members():
            self.kill()
        try:
            self._remove_below()
            os.rmdir(self._folder)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def _remove_below(self) -> None:
        """The groups that a container's runtime made in it."""
        for folder, names, _ in list(os.walk(self._folder, topdown=False)):
            for name in names:
                os.rmdir(os.path.join(folder, name))

    def _members(self) -> list[int]:
        members: list[int] = []
        for folder, _, _ in os.walk(self._folder):
            with contextlib.suppress(OSError, ValueError), open(f"{folder}/cgroup.procs", encoding="ascii") as source:
                members += [int(line) for line in source]
        return members


def make_payload_cgroup(folder: str, *, memory: int) -> PayloadCgroup | None:
    """A new group for a payload; nothing where none can be made: then it runs as it did without."""
    if not folder:
        return None
    try:
        os.mkdir(folder, 0o755)
    except OSError:
        return None
    leaf = PayloadCgroup(folder)
    try:
        leaf.limit(memory)
    except OSError:
        leaf.remove()
        return None
    return leaf


def leaf_of(parent: str, claim: str) -> str:
    """Where the group of a claim's payload is; empty without a parent."""
    return f"{parent}/{_PREFIX}{claim}" if parent else ""


def find_parent(*, proc: str = "/proc/self/cgroup", root: str = ROOT) -> str:
    """The group under which this pilot may make others, made ready; empty where it may not.

    That is its own group of version 2, if it was delegated to the pilot: it can be written, has the memory controller, and holds
    nobody but the pilot. A group with processes in it can have none below it with controllers, so the pilot moves one down.
    """
    ready = ready_parent(proc=proc, root=root)
    own = _own_group(proc, root)
    if ready or not own or not os.access(own, os.W_OK) or not os.access(f"{own}/cgroup.subtree_control", os.W_OK):
        return ready
    if "memory" not in _words(f"{own}/cgroup.controllers") or _words(f"{own}/cgroup.procs") != [str(os.getpid())]:
        return ""
    below = f"{own}/{_OWN}"
    try:
        os.mkdir(below, 0o755)
        _write(f"{below}/cgroup.procs", "0")
        _write(f"{own}/cgroup.subtree_control", "+memory +pids")
    except OSError:
        with contextlib.suppress(OSError):
            _write(f"{own}/cgroup.procs", "0")
        with contextlib.suppress(OSError):
            os.rmdir(below)
        return ""
    return own


def ready_parent(*, proc: str = "/proc/self/cgroup", root: str = ROOT) -> str:
    """The group of this process, if others can be made in it as it is; empty where not. Nothing is changed."""
    own = _own_group(proc, root)
    control = f"{own}/cgroup.subtree_control"
    usable = bool(own) and os.access(own, os.W_OK) and os.access(control, os.W_OK) and "memory" in _words(control)
    return own if usable else ""


def check_parent(folder: str) -> str:
    """Whether groups can be made in a folder that was named; what is wrong, or nothing."""
    probe = f"{folder}/{_PREFIX}probe-{os.getpid()}"
    leaf = make_payload_cgroup(probe, memory=1 << 40)
    if leaf is None:
        return f"no control group with a memory limit can be made in {folder}"
    leaf.remove()
    return ""


def _own_group(proc: str, root: str) -> str:
    try:
        with open(proc, encoding="utf-8", errors="replace") as source:
            for line in source:
                if line.startswith("0::"):
                    folder = root + line[3:].rstrip("\n").rstrip("/")
                    return folder if os.path.exists(f"{folder}/cgroup.controllers") else ""
    except OSError:
        pass
    return ""


def _words(path: str) -> list[str]:
    try:
        with open(path, encoding="ascii", errors="replace") as source:
            return source.read().split()
    except OSError:
        return []


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
