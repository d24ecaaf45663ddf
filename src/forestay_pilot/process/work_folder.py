"""The pilot's folder on local disk: work folders of jobs, their logs, and the spool of completions.

Each pilot has a folder of its own, locked while it lives. What a dead pilot left behind is cleared away by
the next one on the same disk, and its undelivered ends are sent.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import stat
import tempfile
import time

from forestay_pilot.containers.container_command import VARIABLES

log = logging.getLogger("forestay_pilot")

DAMAGED = ".damaged"
SET_ASIDE = (".refused", DAMAGED)  # completions that no server takes; a person may look at them
KEPT_ASIDE = 30 * 86_400  # seconds

_LOCK = "lock"


class WorkFolder:
    """One pilot's folder under the folder that all pilots of a host share."""

    def __init__(self, shared: str) -> None:
        os.makedirs(shared, mode=0o700, exist_ok=True)
        self._lock: int | None = None
        self.abandoned: list[str] = []  # claims that ran in containers of Podman when their pilots died
        while self._lock is None:
            # Another pilot that clears up may take the lock first, and the folder with it: make another.
            self.path = tempfile.mkdtemp(prefix="pilot-", dir=os.path.realpath(shared))
            self._lock = try_lock(self.path, new=True)
        self.spool = self._make("spool")
        self._jobs = self._make("jobs")
        self._logs = self._make("logs")

    def _make(self, name: str) -> str:
        path = os.path.join(self.path, name)
        os.mkdir(path, 0o700)
        return path

    def job_folder(self, claim: str) -> str:
        """A new, empty working folder for a claim."""
        path = os.path.join(self._jobs, claim)
        os.mkdir(path, 0o700)
        return path

    def job_place(self, claim: str) -> str:
        """Where the working folder of a claim is, or would be."""
        return os.path.join(self._jobs, claim)

    def ranks_folder(self, claim: str) -> str:
        """Where the ranks of a claim and its pilot meet, if it has several nodes."""
        return os.path.join(self.path, "ranks", claim)

    def log_path(self, claim: str) -> str:
        """Where the log of a claim goes."""
        return os.path.join(self._logs, claim + ".log")

    def clear(self, claim: str) -> OSError | None:
        """Take away a claim's working folder and log; gives why the folder is still there."""
        with contextlib.suppress(OSError):
            os.unlink(self.log_path(claim))
        return remove_folder(os.path.join(self._jobs, claim))

    def adopt_leftovers(self) -> list[str]:
        """Clear the folders of dead pilots; gives the undelivered ends found there, now in our spool."""
        ends = []
        shared = os.path.dirname(self.path)
        for name in sorted(os.listdir(shared)):
            folder = os.path.join(shared, name)
            if not name.startswith("pilot-") or folder == self.path or not is_ours(folder):
                continue
            lock = try_lock(folder)
            if lock is None:
                continue
            try:
                self.abandoned += _jobs_of_podman(os.path.join(folder, "jobs"))
                spool = os.path.join(folder, "spool")
                ends += self._adopt_spool(spool)
                if is_ours(spool) and os.listdir(spool):
                    log.warning("undelivered completions in %s cannot be taken over; they stay there", spool)
                else:
                    remove_folder(folder)
            finally:
                os.close(lock)
        return ends

    def _adopt_spool(self, spool: str) -> list[str]:
        adopted: list[str] = []
        if not is_ours(spool):
            return adopted  # gone, or a link to somebody else's folder
        os.chmod(spool, 0o700)  # a payload may have taken our own rights away
        for name in sorted(os.listdir(spool)):
            path, target = os.path.join(spool, name), os.path.join(self.spool, name)
            # Payloads can write there: whatever one entry is, it keeps none beside it from being taken over.
            with contextlib.suppress(OSError):
                if not name.endswith((".json", *SET_ASIDE)):
                    target += DAMAGED  # half of one that was being written, or nothing of ours
                elif name.endswith(SET_ASIDE) and time.time() - os.lstat(path).st_mtime > KEPT_ASIDE:
                    _remove(path)
                    continue
                os.rename(path, target)
                if name.endswith(".json"):
                    adopted.append(target)
        return adopted

    def remove(self) -> None:
        """Take the folder away, unless ends are still in its spool."""
        if os.listdir(self.spool):
            log.warning("undelivered completions stay in %s", self.spool)
            remove_folder(self._jobs)
            remove_folder(self._logs)
        else:
            remove_folder(self.path)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except (IsADirectoryError, PermissionError):
        remove_folder(path)


def _jobs_of_podman(jobs: str) -> list[str]:
    with contextlib.suppress(OSError):
        return [claim for claim in os.listdir(jobs) if os.path.exists(os.path.join(jobs, claim, VARIABLES))]
    return []


def is_ours(folder: str) -> bool:
    """Whether it is a folder of this user, and no link to one."""
    try:
        about = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid()


def try_lock(folder: str, *, new: bool = False) -> int | None:
    """The descriptor that holds the folder's lock, or none when someone else has it.

    A folder without a lock file is being made by its owner, or already cleared: only the owner may add one.
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT if new else 0)
    try:
        descriptor = os.open(os.path.join(folder, _LOCK), flags, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def remove_folder(path: str) -> OSError | None:
    """Take a folder away, also one whose payload took its own rights away; gives why it is still there."""
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return None
    except OSError:
        shutil.rmtree(path, ignore_errors=True)
        if os.path.isdir(path):
            for folder, names, _ in os.walk(path):
                for name in [".", *names]:
                    with contextlib.suppress(OSError):
                        if not os.path.islink(os.path.join(folder, name)):
                            os.chmod(os.path.join(folder, name), 0o700)
            try:
                shutil.rmtree(path)
            except FileNotFoundError:
                pass
            except OSError as error:
                return error
    return None
