"""From a freshly forked child to the payload: its session, its group, its files, its program.

Every page of memory that the child touches is copied for it, and that is most of what a start costs: what can be known before is
found out by the pilot, and the child runs as few lines as it can.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
from collections.abc import Sequence
from typing import Any

from forestay_pilot.process import libc
from forestay_pilot.process.payload_cgroup import PayloadCgroup


def become_payload(
    request: dict[str, Any],
    guard: int,
    output: int,
    exec_error: int,
    leaf: PayloadCgroup | None,
    locks: Sequence[int] = (),
) -> None:
    """Turn the freshly forked child into the payload; returns only by ``os._exit``."""
    part = "folder"
    try:
        os.setsid()
        libc.die_with_parent()
        # What it leaves behind comes to itself while it lives, as to process 1 of a container: the guard's other children are then
        # of payloads that are over. Stays set in the program that it becomes.
        libc.adopt_orphans()
        if os.getppid() != guard:
            os._exit(127)  # the guard died before the line above
        _offer_to_oom_killer()
        if leaf is not None:
            leaf.enter()
        source = os.open(request["stdin"] or os.devnull, os.O_RDONLY)
        os.dup2(source, 0)
        os.dup2(os.open(request["stdout"], os.O_WRONLY) if request["stdout"] else output, 1)
        os.dup2(output, 2)
        for descriptor in locks:
            os.set_inheritable(descriptor, True)  # its own alone: those of other payloads close here  # noqa: FBT003
        os.chdir(request["folder"])
        part = "program"
        # A stop that came since the fork has been waiting and takes effect here.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if request["program"]:
            with contextlib.suppress(OSError):  # it has just been moved or replaced: it is searched for again
                os.execve(request["program"], request["argv"], request["environment"])  # noqa: S606
        os.execvpe(request["argv"][0], request["argv"], request["environment"])  # noqa: S606
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.write(exec_error, json.dumps(start_error(error, part)).encode())
    finally:
        os._exit(127)


def no_signals_ignored() -> None:
    """Reset ignored signals: Python ignores two, and a payload would inherit that; handlers are reset in every new program anyway."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, _pass_over)


def _pass_over(_number: int, _frame: object) -> None:
    """Whatever was written fails with an error of its own."""


def start_error(error: BaseException, part: str) -> dict[str, str]:
    number = error.errno if isinstance(error, OSError) else None
    return {
        "start_error": str(error)[:500],
        "start_symbol": errno.errorcode.get(number or 0, ""),
        "start_part": part,
    }


def _offer_to_oom_killer() -> None:
    """When memory runs out, the payload goes before its guard and its pilot."""
    with contextlib.suppress(OSError):
        adjustment = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(adjustment, b"500")
        os.close(adjustment)
