"""The end of the log of a past attempt, if it still exists and certainly belongs to it."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from forestay.domain.exceptions.evidence.redaction import redacted_lines

LONGEST = 64 * 1024
LATE = 3600.0
"""Seconds after the end within which a file system may still record a write."""


class LogPath(NamedTuple):
    """A file that an attempt may have written to, and when it ran."""

    path: str
    began: float | None
    ended: float | None


def read_tail(paths: Sequence[LogPath], owner: str) -> str:
    """The last lines of the files that belong to the owner and were last written while the attempt ran, without secrets.

    The submitter of a job chooses the names of its files. A file that belongs to somebody else is not read, not even as root.
    """
    return "\n".join(filter(None, (_tail(path, _user(owner)) for path in paths)))


@lru_cache(maxsize=4096)
def _user(name: str) -> int | None:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def _tail(log: LogPath, owner: int | None) -> str:
    try:
        file = os.open(log.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    try:
        known = os.fstat(file)
        if not stat.S_ISREG(known.st_mode) or known.st_uid != owner or not _while_it_ran(log, known.st_mtime):
            return ""
        text = os.pread(file, LONGEST, max(0, known.st_size - LONGEST)).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(file)
    return "\n".join(redacted_lines(text.split("\n")))


def _while_it_ran(log: LogPath, written: float) -> bool:
    """Whether a file was last written while the attempt ran: another run may have used the same name. Accounting has whole seconds."""
    return (log.began is None or written >= log.began - 2) and (log.ended is None or written <= log.ended + LATE)
