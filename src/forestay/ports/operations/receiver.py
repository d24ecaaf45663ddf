"""A receiver: a mailbox, an address of the web or a chat that people read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol


class Message(NamedTuple):
    """A letter as it is sent."""

    delivery: str
    """The same in every repeat, so that its receiver can tell."""
    subject: str
    text: str
    body: Mapping[str, object]
    """The same for programs."""


class Receiver(Protocol):
    """The port."""

    async def tell(self, message: Message) -> None:
        """Send once, within seconds. `Transient` or `Permanent` if it was not taken, or nobody knows; no secret is in their words."""
        ...
