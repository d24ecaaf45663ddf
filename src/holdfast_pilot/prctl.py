"""The three process attributes a pilot needs, which Python offers only through ctypes."""

from __future__ import annotations

import ctypes
import signal

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36

# Bound once: a freshly forked child must not look up libraries.
_libc = ctypes.CDLL(None, use_errno=True)
_prctl = _libc.prctl
_prctl.restype = ctypes.c_int
_prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong]


def forbid_dumps() -> bool:
    """Close memory, environment and open files of this process to others of the same user."""
    return bool(_prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0)


def die_with_parent() -> bool:
    """Be killed when the thread that forked this process ends."""
    return bool(_prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) == 0)


def adopt_orphans() -> bool:
    """Become the parent of every descendant whose own parent has died."""
    return bool(_prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
