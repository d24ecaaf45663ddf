"""The spool of a site agent, a folder on a file system that its nodes share; implements `ports.pilots.pilot_spool.PilotSpool`.

agent           the agent's id, made once
lock            held while an agent runs: two agents never share a spool
secrets/LAUNCH  an enrolment secret, readable by its owner alone
logs/LAUNCH.log what a pilot printed
psij/           PSI/J's scripts
pilot-DIGEST.pyz the pilot
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TypeVar

from forestay.adapters.system.regular_file import open_regular
from forestay.ports.errors import Permanent, Transient

TAIL = 1000
"""Bytes of a log that are reported."""
KEEP = 14 * 86_400
"""Seconds for which logs are kept after their last write."""
EVERY = 300.0
"""Seconds between searches for old files."""

Value = TypeVar("Value")


class FolderPilotSpool:
    """One agent's spool, locked for as long as the process lives."""

    def __init__(self, folder: Path) -> None:
        """`Permanent` when the folder cannot be used, or another agent of this host holds it."""
        self.folder = folder
        try:
            for path in (folder, folder / "secrets", folder / "logs", folder / "psij", folder / "work"):
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            folder.chmod(0o700)
        except OSError as error:
            raise Permanent(f"the spool {folder} cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise Permanent(f"another site agent uses the spool {folder}") from error
        self._cleared = 0.0

    def close(self) -> None:
        """Release the spool for another agent."""
        os.close(self._lock)

    def agent(self) -> str:
        """The agent's id: the same for every agent that starts on this spool."""
        place = self.folder / "agent"
        with contextlib.suppress(FileNotFoundError):
            if known := place.read_text(encoding="ascii").strip():
                return known
        made = f"a-{secrets.token_hex(8)}"
        _write(place, made.encode())
        return made

    def pilot(self, program: bytes) -> Path:
        """Store the pilot's program where the nodes find it; a new version does not affect pilots that are about to start."""
        place = self.folder / f"pilot-{hashlib.sha256(program).hexdigest()[:16]}.pyz"
        if not place.exists():
            _write(place, program)
        return place

    def log(self, launch: str) -> Path:
        return self.folder / "logs" / f"{launch}.log"

    async def secret(self, launch: str) -> str | None:
        place = self._secret(launch)
        return str(place) if await _done(place.exists) else None

    async def keep(self, launch: str, secret: str) -> str:
        place = self._secret(launch)
        await _done(lambda: _write(place, secret.encode()))
        return str(place)

    async def words(self, launch: str) -> str:
        return await _done(lambda: _tail(self.log(launch)))

    async def clear(self, still_open: Collection[str]) -> None:
        now = time.monotonic()
        if self._cleared and now - self._cleared < EVERY:
            return
        self._cleared = now
        await _done(lambda: self._clear(frozenset(still_open)))

    def _secret(self, launch: str) -> Path:
        return self.folder / "secrets" / launch

    def _clear(self, still_open: frozenset[str]) -> None:
        now = time.time()
        for path in (self.folder / "secrets").iterdir():
            # A launch that was just planned may not be among the open ones, which were read before.
            if path.name not in still_open:
                _remove_older(path, now - EVERY)
        for folder in (self.folder / "logs", *(path for path in (self.folder / "psij").iterdir() if path.is_dir())):
            for path in folder.iterdir():
                if path.suffix in (".log", ".out", ".ec", ".nodefile", ".job"):
                    _remove_older(path, now - KEEP)


def _remove_older(path: Path, before: float) -> None:
    """What cannot be removed, a folder of the same name for instance, keeps nothing else from being removed."""
    with contextlib.suppress(OSError):
        if path.lstat().st_mtime < before:
            path.unlink()


async def _done(work: Callable[[], Value]) -> Value:
    """A shared file system may take its time."""
    try:
        return await asyncio.to_thread(work)
    except OSError as error:
        raise Transient(f"the spool: {error.strerror} ({error.filename})") from error


def _write(place: Path, content: bytes) -> None:
    """Write a file atomically, durable, and readable by its owner only."""
    own = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    handle = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(handle, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        own.rename(place)
    except OSError:
        own.unlink(missing_ok=True)
        raise
    folder = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _tail(place: Path) -> str:
    try:
        # A job runs as the same user as its pilot, and may have put anything in the log's place.
        with open_regular(place) as log:
            known = os.fstat(log.fileno())
            if known.st_nlink != 1:
                return ""
            log.seek(max(0, known.st_size - TAIL))
            return " ".join(log.read(TAIL).decode(errors="replace").split())
    except OSError as error:
        if error.errno in (errno.EIO, errno.ESTALE, errno.ETIMEDOUT):
            raise
        return ""
