"""The receivers of notices, as the settings say."""

from __future__ import annotations

import structlog

from holdfast.adapters.apprise.receiver import AppriseReceiver
from holdfast.adapters.httpx.receiver import WebReceiver
from holdfast.adapters.smtplib.receiver import MailReceiver
from holdfast.apps.receiver_settings import ReceiverTable
from holdfast.apps.wiring.parts import Parts
from holdfast.apps.wiring.secrets import secret_at
from holdfast.ports.receiver import Receiver
from holdfast.services.tell_receivers import TellReceivers, Told

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
