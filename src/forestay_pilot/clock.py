"""Two clocks: a monotonic one for leases and waits, and the wall clock for times that people read."""

from __future__ import annotations

import time
from datetime import datetime, timezone

# Linux's number for it: a Python that was built on an old system does not name it.
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", 7)


def steady() -> float:
    """Seconds that never jump, and that also pass while the machine sleeps.

    ``time.monotonic`` stops during a suspend; a lease does not.
    """
    return time.clock_gettime(_BOOTTIME)


def stamp(at: float) -> str:
    """A wall-clock time as RFC 3339 in UTC."""
    return datetime.fromtimestamp(at, tz=timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
