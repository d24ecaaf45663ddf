"""What the exception service requests of an engine, ours or another: the half of interface X that sends commands.

Every `FlowEngine` implements it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from forestay.domain.flows.commands import AnswerVerb
from forestay.domain.flows.events import Verb
from forestay.ports.flows.flow_engine import RunSummary


class ExceptionEngine(Protocol):
    """The port."""

    async def describe(self, run: str) -> RunSummary:
        """A run, ended or not; `NotFound`."""
        ...

    async def state(self, run: str) -> Mapping[str, Any]:
        """The present state of a run: ``params``, ``instances`` with their ``id`` and ``state``, ``outputs``. `NotFound`."""
        ...

    async def send_verb(self, run: str, verb: Verb) -> AnswerVerb:
        """Have a run execute a verb, once despite repeats. `NotFound`: it has ended or never existed. `Transient`: no answer yet; repeat the call."""
        ...
