"""Sends notifications through Apprise: chats, phones and its other services. Its addresses contain secrets, so they are secrets themselves."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from forestay.ports.errors import Transient
from forestay.ports.operations.notification_channel import NotificationMessage


@dataclass(frozen=True, slots=True)
class AppriseChannel:
    """Implements `ports.operations.notification_channel.NotificationChannel`."""

    addresses: Callable[[], str]
    """One or more addresses, one on each line."""

    async def tell(self, message: NotificationMessage) -> None:
        try:
            import apprise
        except ImportError:
            raise Transient("Apprise is not installed; pip install 'forestay[apprise]'") from None
        # It logs addresses with the secrets in them.
        logging.getLogger("apprise").setLevel(logging.CRITICAL)
        chats = apprise.Apprise()
        for line in self.addresses().splitlines():
            if line.strip() and not chats.add(line.strip()):
                raise Transient("Apprise does not support one of the addresses")
        taken = await chats.async_notify(
            title=message.subject, body=message.text, body_format=apprise.NotifyFormat.TEXT
        )
        if not taken:
            raise Transient("not every recipient accepted it")
