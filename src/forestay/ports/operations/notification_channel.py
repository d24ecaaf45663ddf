"""A notification channel: a mailbox, a web address or a chat that people read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol


class NotificationMessage(NamedTuple):
    """A notification as it is sent."""

    delivery: str
    """The same in every repeat, so that the notification channel can recognise repeats."""
    subject: str
    text: str
    body: Mapping[str, object]
    """The same content for programs."""


class NotificationChannel(Protocol):
    """The port."""

    async def tell(self, message: NotificationMessage) -> None:
        """Send once, within seconds. `Transient` or `Permanent` if it was not accepted, or that is unknown; their messages contain no secret."""
        ...
