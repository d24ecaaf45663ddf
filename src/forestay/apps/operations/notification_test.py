"""`forestay notifications`: the notification channels, and a test notification through one."""

from __future__ import annotations

import secrets

from forestay.adapters.system.clock import SystemClock
from forestay.apps.compose.notification_channels import build_channel
from forestay.apps.config.notification_settings import NotificationChannelTable
from forestay.apps.config.settings import Settings
from forestay.domain.exceptions.incidents.notifications import Notification, NotificationKind, PendingEvents, Topic
from forestay.ports.errors import NotFound
from forestay.services.operations.notifier import message_of

WORDS = "This is a test of the notification channel. Nothing happened, and nothing needs to be done."


def channel_named(settings: Settings, name: str) -> NotificationChannelTable:
    """The channel with this name; `NotFound` lists the existing ones."""
    tables = {
        notification_channel.name: notification_channel for notification_channel in settings.notification_channels
    }
    if name not in tables:
        known = f"known: {', '.join(sorted(tables))}" if tables else "the settings have no [[notification_channels]]"
        raise NotFound(f"there is no notification channel {name}; {known}")
    return tables[name]


async def send_test(settings: Settings, table: NotificationChannelTable) -> str:
    """Send one notification that is stored nowhere; returns its delivery. `Transient` or `Permanent` if it was not accepted."""
    topic = Topic(table.tenants[0], NotificationKind.ALERT, "trial", "")
    notification = Notification(0, (PendingEvents(topic, 1, SystemClock().now(), (WORDS,)),), 0)
    # A new name each time: mail readers drop messages with the name of an earlier one.
    message = message_of(notification, f"{table.name}.trial-{secrets.token_hex(4)}", settings.public_url)
    await build_channel(table).tell(message)
    return message.delivery
