"""Digests of files on a file system that orchestrators and pilots share."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from forestay.adapters.system.regular_file import open_regular
from forestay.ports.data.file_digests import MAX_DIGESTED


class SharedFileDigests:
    """Implements the port `FileDigests`. Only what is under one of the roots is read: a flow names the path, and might name any."""

    def __init__(self, roots: Sequence[Path], *, most: int = MAX_DIGESTED) -> None:
        self.roots = [os.path.realpath(root) for root in roots]
        self.most = most

    async def digest(self, path: str) -> str | None:
        return await asyncio.to_thread(self._digest, path)

    def _digest(self, path: str) -> str | None:
        if "\0" in path:
            return None
        place = os.path.realpath(path)
        if not any(place.startswith(root.rstrip(os.sep) + os.sep) for root in self.roots):
            return None
        try:
            file = open_regular(place)
        except OSError:
            return None
        with file:
            if os.fstat(file.fileno()).st_size > self.most:
                return None
            try:
                return hashlib.file_digest(file, "sha256").hexdigest()
            except OSError:
                return None
