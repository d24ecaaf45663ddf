"""Lists of hosts as Slurm writes them: ``n[1-3,7],login1``."""

from __future__ import annotations

import re
from collections.abc import Iterator

_LIST = re.compile(r"([^,\[]+)(?:\[([^\]]*)\])?([^,\[]*)(?:,|$)")


def nodes_of(text: str, most: int = 1000) -> tuple[str, ...]:
    """The nodes of a list such as ``n[1-3,7],login1``; empty for Slurm's notations of an empty list."""
    if not text or text.startswith(("None", "(null)", "N/A")):
        return ()
    nodes: list[str] = []
    for node in _each_node(text):
        nodes.append(node)
        if len(nodes) == most:
            break
    return tuple(nodes)


def _each_node(text: str) -> Iterator[str]:
    for prefix, ranges, suffix in _LIST.findall(text):
        if not ranges:
            yield prefix + suffix
            continue
        for part in ranges.split(","):
            low, _, high = part.partition("-")
            if not (low.isdigit() and (high or low).isdigit()):
                continue
            for number in range(int(low), int(high or low) + 1):
                yield f"{prefix}{number:0{len(low)}d}{suffix}"
