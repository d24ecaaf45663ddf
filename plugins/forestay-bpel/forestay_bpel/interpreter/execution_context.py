"""Where an activity of a process runs, and the two ways in which a process ends before its time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from forestay_bpel.interpreter.host import Fault
from forestay_bpel.interpreter.scopes import Running

Links = dict[str, "asyncio.Future[bool]"]


class Exited(Exception):
    """An exit activity, or a standard fault where the process says that it exits then."""


class ProcessStopped(Exception):
    """A process that must not go on."""


@dataclass(frozen=True, slots=True)
class ExecutionContext:
    """Where an activity runs."""

    at: Running
    links: Links
    completed: list[Running]
    """Where scopes that complete are noted."""
    fault: Fault | None = None
    """Inside a fault handler: the fault that is handled."""
    handled: Running | None = None
    """Inside a handler of faults, compensation or termination: the scope that it belongs to."""
