"""Where files with secrets are while their jobs run: in memory if the host has such a file system, else in the pilot's folder.

Each pilot has a folder of its own, locked while it lives. What a killed pilot left behind is removed by the next one of its user.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile

from forestay_pilot.process.work_folder import is_ours, remove_folder, try_lock

log = logging.getLogger("forestay_pilot")

MEMORY = "/dev/shm"  # noqa: S108 - in a folder of this user's own
_FILES = "files"


class SecretFiles:
    """The folder of one pilot, with a folder for each claim that has files."""

    def __init__(self, work: str, memory: str = MEMORY) -> None:
        self._prefix = f"forestay-secrets-{os.getuid()}-"
        self._in_memory = _is_memory(memory)
        shared = memory if self._in_memory else work
        if not self._in_memory:
            log.warning("files with secrets are on disk: %s is not in memory", memory)
        self._remove_leftovers(shared)
        self._lock: int | None = None
        while self._lock is None:
            self.path = tempfile.mkdtemp(prefix=self._prefix, dir=shared)
            self._lock = try_lock(self.path, new=True)

    def make(self, claim: str, files: dict[str, bytes]) -> str:
        """A new folder for a claim, with a folder of its files inside; gives the path of the first."""
        folder = os.path.join(self.path, claim)
        os.mkdir(folder, 0o700)
        os.mkdir(files_of(folder), 0o700)
        for name, value in files.items():
            descriptor = os.open(
                os.path.join(files_of(folder), name), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600
            )
            with open(descriptor, "wb") as sink:
                sink.write(value)
        return folder

    def close(self) -> None:
        """Remove all."""
        remove_folder(self.path)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _remove_leftovers(self, shared: str) -> None:
        with contextlib.suppress(OSError):
            for name in os.listdir(shared):
                folder = os.path.join(shared, name)
                if not name.startswith(self._prefix) or not is_ours(folder):
                    continue
                lock = try_lock(folder)
                if lock is not None:
                    remove_folder(folder)
                    os.close(lock)


def files_of(folder: str) -> str:
    """Where the files of a claim's folder are."""
    return os.path.join(folder, _FILES)


def remove_secrets(folder: str) -> None:
    """Remove the folder of a claim, for pilot and guard: whoever is last."""
    if not folder:
        return
    for path, folders, names in os.walk(folder, topdown=False):
        for name in names:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(path, name))
        for name in folders:
            with contextlib.suppress(OSError):
                os.rmdir(os.path.join(path, name))
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def _is_memory(folder: str) -> bool:
    """Whether a folder is the root of a file system in memory, to which this user may write."""
    kind = ""
    with contextlib.suppress(OSError), open("/proc/self/mounts", encoding="utf-8", errors="replace") as mounts:
        for line in mounts:
            parts = line.split(" ")
            if len(parts) > 2 and parts[1] == folder:
                kind = parts[2]
    return kind in ("tmpfs", "ramfs") and os.access(folder, os.W_OK | os.X_OK)
