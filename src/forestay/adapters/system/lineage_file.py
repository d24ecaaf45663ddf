"""Writes lineage to a file, one event on each line."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from forestay.ports.errors import Transient


@dataclass(frozen=True, slots=True)
class LineageFile:
    """Implements `ports.operations.lineage.Lineage`."""

    path: Path

    async def send(self, events: Sequence[Mapping[str, object]]) -> int:
        await asyncio.to_thread(self._append, b"".join(orjson.dumps(event) + b"\n" for event in events))
        return 0

    def _append(self, lines: bytes) -> None:
        try:
            # One write at the end of the file: lines of two reconcilers do not mix.
            with self.path.open("ab", buffering=0) as file:
                file.write(lines)
                os.fsync(file.fileno())
        except OSError as error:
            raise Transient(f"{self.path} cannot be written: {error.strerror}") from error
