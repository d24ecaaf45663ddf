"""The receiver of lineage: a server that accepts OpenLineage events, or a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class Lineage(Protocol):
    """The port."""

    async def send(self, events: Sequence[Mapping[str, object]]) -> int:
        """Send the events of one run, in order, and return how many were refused for good. `Transient`: some were not accepted, send all again."""
        ...
