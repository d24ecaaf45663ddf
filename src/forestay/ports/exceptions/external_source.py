"""An external source of values for rules, unknown to Forestay itself: a quota, a licence server, a maintenance plan."""

from __future__ import annotations

from typing import Protocol

MAX_BYTES = 65_536
"""The most bytes that a source may return."""


class ExternalSource(Protocol):
    """The port."""

    async def read(self) -> bytes:
        """Its text, a JSON object of at most `MAX_BYTES`. `Transient` or `Permanent` if it cannot be read; their messages contain no secret."""
        ...
