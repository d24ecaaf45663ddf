"""Attachments in a folder that jobs can read."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from forestay.domain.jobs.inputs import wrong_name
from forestay.ports.errors import Permanent, Transient


class FolderAttachments:
    """Implements the port `Attachments`: a folder for each set of files, named by the digest of their names and contents."""

    def __init__(self, place: Path | None) -> None:
        self.place = place

    async def keep(self, tenant: str, files: Mapping[str, bytes]) -> Mapping[str, str]:
        if not files:
            return {}
        if self.place is None:
            raise Permanent("this domain stores no attachments other than the flow; its operator can set `attachments`")
        return await asyncio.to_thread(self._keep, self.place, tenant, files)

    def _keep(self, place: Path, tenant: str, files: Mapping[str, bytes]) -> Mapping[str, str]:
        digest = hashlib.sha256(tenant.encode())
        for name in sorted(files):
            if wrong_name(name):
                raise Permanent(f"{name[:100]!r} is not a valid file name")
            digest.update(f"\0{name}\0{len(files[name])}\0".encode())
            digest.update(files[name])
        folder = place.absolute() / digest.hexdigest()[:40]
        try:
            if not folder.is_dir():
                self._write(folder, files)
        except OSError as error:
            raise Transient(f"the attachments cannot be stored: {error.strerror}") from error
        return {name: str(folder / name) for name in files}

    def _write(self, folder: Path, files: Mapping[str, bytes]) -> None:
        folder.parent.mkdir(parents=True, exist_ok=True)
        half = Path(tempfile.mkdtemp(prefix=".half-", dir=folder.parent))
        try:
            for name, content in files.items():
                file = half / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            half.chmod(0o755)
            try:
                os.rename(half, folder)
            except OSError:
                if not folder.is_dir():
                    raise
        finally:
            shutil.rmtree(half, ignore_errors=True)
