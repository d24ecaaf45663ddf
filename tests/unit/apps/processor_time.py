"""Processor time of processes, comparable between machines.

A limit is given in seconds of a machine on which the reference, a process that imports a fixed part of the standard
library, takes `REFERENCE` seconds. The reference is measured beside the process in question, so that a slower
machine, or one that is busy with other work, gets the same limit.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence

REFERENCE = 0.20
MODULES = (
    "argparse", "asyncio", "concurrent.futures", "decimal", "doctest", "email.headerregistry", "email.message", "fractions", "ftplib",
    "http.client", "http.server", "imaplib", "json", "logging.config", "multiprocessing.managers", "optparse", "pdb", "plistlib", "pydoc",
    "smtplib", "sqlite3", "ssl", "statistics", "tarfile", "unittest.mock", "xml.dom.minidom", "xmlrpc.client", "zipfile",
)  # fmt: skip
TRIES = 10


def spent(words: Sequence[str], environment: Mapping[str, str] | None = None) -> float:
    """Seconds of processor time that a process takes from its start to its end, which must be a good one."""
    process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, words
    return used.ru_utime + used.ru_stime


def reference() -> float:
    return spent([sys.executable, "-I", "-W", "ignore", "-c", f"import {', '.join(MODULES)}"])


async def within(limit: float, measure: Callable[[], Awaitable[float]]) -> None:
    """The best of some measurements is within the limit; the first is not counted, for it may have to compile."""
    reference()
    await measure()
    best = unit = float("inf")
    for _ in range(TRIES):
        unit = min(unit, reference())
        best = min(best, await measure())
        if best / unit <= limit / REFERENCE:
            return
    raise AssertionError(
        f"took {best * REFERENCE / unit:.3f} s of {limit} s (measured {best:.3f}, reference {unit:.3f})"
    )
