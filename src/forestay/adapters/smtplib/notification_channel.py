"""Sends notifications by mail: one message to all addresses, over TLS if a password is used."""

from __future__ import annotations

import asyncio
import smtplib
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import formatdate
from urllib.parse import urlsplit

from forestay.ports.errors import Permanent, Transient
from forestay.ports.operations.notification_channel import NotificationMessage

SECONDS = 10.0
_PORTS = {"smtp": 25, "starttls": 587, "smtps": 465}


@dataclass(frozen=True, slots=True)
class MailChannel:
    """Implements `ports.operations.notification_channel.NotificationChannel`."""

    server: str
    """`smtp://HOST:PORT`, `starttls://…` or `smtps://…`."""
    sender: str
    to: tuple[str, ...]
    user: str = ""
    password: Callable[[], str] | None = None

    async def tell(self, message: NotificationMessage) -> None:
        # Read before the thread begins, so that its errors are raised unchanged.
        password = self.password() if self.password is not None else ""
        await asyncio.to_thread(self._send, self._mail(message), password)

    def _mail(self, message: NotificationMessage) -> EmailMessage:
        mail = EmailMessage()
        mail["From"] = self.sender
        mail["To"] = ", ".join(self.to)
        mail["Subject"] = message.subject
        mail["Date"] = formatdate()
        # The same in every repeat: mail servers and clients drop duplicates.
        mail["Message-ID"] = f"<forestay.{message.delivery}@{self.sender.rpartition('@')[2]}>"
        mail["Auto-Submitted"] = "auto-generated"
        mail["Forestay-Delivery"] = message.delivery
        mail.set_content(message.text)
        return mail

    def _send(self, mail: EmailMessage, password: str) -> None:
        parts = urlsplit(self.server)
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        try:
            with self._connect(parts.scheme, host, port) as server:
                if password:
                    server.login(self.user, password)
                refused = server.send_message(mail, from_addr=self.sender, to_addrs=self.to)
        except smtplib.SMTPRecipientsRefused as error:
            raise Transient(f"{host} rejected all recipients: {', '.join(error.recipients)}") from None
        except smtplib.SMTPResponseException as error:
            # Without the server's text: some servers repeat what was sent to them.
            raise Transient(f"{host} answered {error.smtp_code}") from None
        except (OSError, smtplib.SMTPException) as error:
            raise Transient(f"{host} did not accept mail: {type(error).__name__}") from None
        if refused:
            raise Permanent(f"{host} rejected mail for {', '.join(refused)}; the other recipients got it")

    def _connect(self, scheme: str, host: str, port: int) -> smtplib.SMTP:
        if scheme == "smtps":
            return smtplib.SMTP_SSL(host, port, timeout=SECONDS, context=ssl.create_default_context())
        server = smtplib.SMTP(host, port, timeout=SECONDS)
        if scheme == "starttls":
            server.starttls(context=ssl.create_default_context())
        return server
