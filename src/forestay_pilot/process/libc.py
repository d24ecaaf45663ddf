"""System calls that Python offers only through ctypes."""

from __future__ import annotations

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37
_WRITE_OUT = 2  # SYNC_FILE_RANGE_WRITE

# Bound once: a freshly forked child must not look up libraries.
_libc = ctypes.CDLL(None, use_errno=True)
_prctl = _libc.prctl
_prctl.restype = ctypes.c_int
_prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong]
_getenv = _libc.getenv
_getenv.restype = ctypes.c_void_p
_getenv.argtypes = [ctypes.c_char_p]
_sync_file_range = getattr(_libc, "sync_file_range", None)
if _sync_file_range is not None:
    _sync_file_range.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]


def forget_variable(name: str) -> str:
    """Take a variable out of the environment, and out of the memory that ``/proc`` shows of it."""
    value = os.environ.get(name, "")
    place = _getenv(os.fsencode(name))
    if place:
        ctypes.memset(place, 0, len(os.fsencode(value)))
    os.environ.pop(name, None)
    return value


def forbid_dumps() -> bool:
    """Close memory, environment and open files of this process to others of the same user."""
    return bool(_prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0)


def die_with_parent() -> bool:
    """Be killed when the thread that forked this process ends."""
    return bool(_prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) == 0)


def adopt_orphans() -> bool:
    """Become the parent of every descendant whose own parent has died."""
    return bool(_prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def adopts_orphans() -> bool:
    """Whether it does, by the call above or since a container made it so."""
    found = ctypes.c_int(0)
    return bool(_prctl(_PR_GET_CHILD_SUBREAPER, ctypes.addressof(found), 0, 0, 0) == 0 and found.value)


def begin_write_out(descriptor: int, at: int, count: int) -> None:
    """Ask the kernel to begin writing a part of a file to disk, without waiting for it; does nothing where that is not supported."""
    if _sync_file_range is not None:
        _sync_file_range(descriptor, at, count, _WRITE_OUT)
