"""The receivers of notices, as the settings say."""

from __future__ import annotations

import structlog

from forestay.adapters.apprise.receiver import AppriseReceiver
from forestay.adapters.httpx.receiver import WebReceiver
from forestay.adapters.smtplib.receiver import MailReceiver
from forestay.apps.compose.parts import Parts
from forestay.apps.compose.secrets import secret_at
from forestay.apps.config.receiver_settings import ReceiverTable
from forestay.ports.operations.receiver import Receiver
from forestay.services.operations.tell_receivers import TellReceivers, Told

log = structlog.get_logger()


def make_receiver(table: ReceiverTable) -> Receiver:
    secret = secret_at(table.secret)
    if table.kind == "webhook":
        return WebReceiver(table.url, secret)
    if table.kind == "mail":
        assert table.sender is not None  # noqa: S101 - the settings were checked
        return MailReceiver(table.url, table.sender, table.to, table.user, secret)
    assert secret is not None  # noqa: S101 - the settings were checked
    return AppriseReceiver(secret)


def tell_receivers(parts: Parts) -> TellReceivers | None:
    """None: nobody is to be told."""
    settings = parts.settings
    if not settings.receivers:
        return None
    return TellReceivers(
        parts.store,
        parts.incidents,
        parts.slips,
        parts.clock,
        [Told(one.addressee, make_receiver(one)) for one in settings.receivers],
        house=settings.house_tenant,
        url=settings.public_url,
        audit=parts.audit,
        troubled=lambda text: log.warning("receivers are not told", detail=text),
    )
