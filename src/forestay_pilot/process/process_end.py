"""Ends a program that the pilot itself started, and everything left in its group."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING

from forestay_pilot.clock import steady

if TYPE_CHECKING:
    import subprocess


def wait_and_end(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """Wait for a process that has a session of its own, then kill what is left there; nothing when it took too long."""
    give_up = steady() + seconds
    over = None
    while over is None and steady() < give_up:
        # Not reaped yet, so that the number of its group cannot belong to anyone else.
        over = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if over is None:
            time.sleep(0.01)
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    code = process.wait()
    return None if over is None else code
