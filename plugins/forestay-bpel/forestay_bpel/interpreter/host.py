"""The interface between a running process and its environment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from forestay_bpel.domain.bpel.xpath import BPEL
from forestay_bpel.domain.xml_tree import XmlElement

Message = dict[str, XmlElement]
"""The parts of a message by name. A message that is one element has one part without a name."""
WHOLE = ""


class Fault(Exception):
    """A fault: its expanded name, and its data."""

    def __init__(self, name: str, data: Message | None = None, *, why: str = "", line: int = 0) -> None:
        super().__init__(f"{name.rpartition('}')[2]}{': ' if why else ''}{why}")
        self.name = name
        self.data = data
        self.why = why
        self.line = line

    @property
    def standard(self) -> bool:
        return self.name.startswith(f"{{{BPEL}}}")


def standard_fault(name: str, why: str = "", line: int = 0) -> Fault:
    return Fault(f"{{{BPEL}}}{name}", why=why, line=line)


@dataclass(frozen=True, slots=True)
class PartnerCall:
    """An operation of a partner that is invoked."""

    partner: str
    operation: str
    message: Message
    name: str = ""
    line: int = 0
    answered: bool = True
    """Whether the process waits for an answer."""
    address: str = ""
    """The partner's address, if the process has assigned it an endpoint reference."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message for the process."""

    partner: str
    operation: str
    message: Message = field(default_factory=dict)


class Host(Protocol):
    """The environment of a process."""

    async def invoke(self, call: PartnerCall) -> Message:
        """Invoke an operation; `Fault` if it fails. Cancellation gives it up."""
        ...

    async def reply(self, partner: str, operation: str, message: Message, fault: str) -> None: ...

    async def sleep(self, seconds: float) -> None: ...

    def now(self) -> float:
        """Seconds since 1970."""
        ...

    def trace(self, event: str) -> None:
        """An activity has been done; for observers."""
        ...
