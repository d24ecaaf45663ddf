"""The context of a running activity, and the two ways in which a process ends early."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from forestay_bpel.interpreter.host import Fault
from forestay_bpel.interpreter.scopes import Running

Links = dict[str, "asyncio.Future[bool]"]


class Exited(Exception):
    """An exit activity, or a standard fault in a process that is declared to exit on it."""


class ProcessStopped(Exception):
    """A process that must not continue."""


@dataclass(frozen=True, slots=True)
class ExecutionContext:
    """The context in which an activity runs."""

    at: Running
    links: Links
    completed: list[Running]
    """The list in which completed scopes are recorded."""
    fault: Fault | None = None
    """Inside a fault handler: the fault that is handled."""
    handled: Running | None = None
    """Inside a handler of faults, compensation or termination: the scope that it belongs to."""
