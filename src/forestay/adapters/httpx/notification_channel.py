"""Posts notifications to a web address, guarded as callbacks are."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from forestay.adapters.httpx.callback_transport import HttpxCallbackTransport
from forestay.ports.operations.notification_channel import NotificationMessage


class WebChannel:
    """Implements `ports.operations.notification_channel.NotificationChannel`."""

    def __init__(self, url: str, token: Callable[[], str] | None = None) -> None:
        self._url = url
        self._token = token
        # The operator configured this host, so it may be on the operator's own network; no other host is allowed.
        self._notify = HttpxCallbackTransport((f"private:{urlsplit(url).hostname}",))

    async def tell(self, message: NotificationMessage) -> None:
        more = {"Authorization": f"Bearer {self._token()}"} if self._token is not None else {}
        await self._notify.post(self._url, message.body, delivery=message.delivery, more=more)
