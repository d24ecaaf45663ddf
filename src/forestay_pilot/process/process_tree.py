"""Whose child a process is, and which claim it was started for, as Linux tells it."""

from __future__ import annotations

import os

_MARK = b"FORESTAY_CLAIM="


def children_of(pid: int) -> list[int]:
    """The living and dead children of a process, whichever of its threads they belong to."""
    words = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as source:
                words += [int(word) for word in source.read().split()]
    except OSError:
        return _children_by_search(pid)
    return words


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


def claim_of(pid: int) -> str:
    """The claim in a process's first environment; empty when it cannot be told."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as source:
            words = source.read().split(b"\0")
    except OSError:
        return ""
    for word in words:
        if word.startswith(_MARK):
            return word[len(_MARK) :].decode(errors="replace")
    return ""


def is_settled(pid: int) -> bool:
    """Whether a process can be told by its environment. One that ends, or becomes another program, cannot; and what ends hands over its children."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as source:
            return bool(source.read(1))
    except OSError:
        return False
