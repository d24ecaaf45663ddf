"""Results on a file system that pilots and this process share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from forestay.adapters.system.regular_file import open_regular
from forestay.ports.jobs.results import MAX_RESULT


class SharedResults:
    """Implements the port `Results`. Only what is under one of the roots is read: a pilot names the folder, and might name any."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = [os.path.realpath(root) for root in roots]

    async def read(self, folder: str, name: str, most: int = MAX_RESULT) -> bytes | None:
        return await asyncio.to_thread(self._read, folder, name, most)

    def _read(self, folder: str, name: str, most: int) -> bytes | None:
        place = os.path.realpath(os.path.join(folder, name))
        if not any(place.startswith(root + os.sep) for root in self.roots):
            return None
        try:
            file = open_regular(place)
        except OSError:
            return None
        with file:
            return file.read(most) if os.fstat(file.fileno()).st_size <= most else None
