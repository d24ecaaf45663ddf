"""The notification channels, as configured."""

from __future__ import annotations

import structlog

from forestay.adapters.apprise.notification_channel import AppriseChannel
from forestay.adapters.httpx.notification_channel import WebChannel
from forestay.adapters.smtplib.notification_channel import MailChannel
from forestay.apps.compose.components import Components
from forestay.apps.compose.secrets import secret_at
from forestay.apps.config.notification_settings import NotificationChannelTable
from forestay.ports.operations.notification_channel import NotificationChannel
from forestay.services.operations.notifier import ChannelSubscription, Notifier

log = structlog.get_logger()


def build_channel(table: NotificationChannelTable) -> NotificationChannel:
    secret = secret_at(table.secret)
    if table.kind == "webhook":
        return WebChannel(table.url, secret)
    if table.kind == "mail":
        assert table.sender is not None  # noqa: S101 - the settings were checked
        return MailChannel(table.url, table.sender, table.to, table.user, secret)
    assert secret is not None  # noqa: S101 - the settings were checked
    return AppriseChannel(secret)


def build_notifier(components: Components) -> Notifier | None:
    """The notifier; None: no channel is configured."""
    settings = components.settings
    if not settings.notification_channels:
        return None
    return Notifier(
        components.store,
        components.incidents,
        components.documents,
        components.clock,
        [
            ChannelSubscription(notification_channel.addressee, build_channel(notification_channel))
            for notification_channel in settings.notification_channels
        ],
        admin_tenant=settings.admin_tenant,
        url=settings.public_url,
        audit=components.audit,
        troubled=lambda text: log.warning("notifications cannot be sent", detail=text),
    )
