"""Tells an address of the web, with the same care as callbacks."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from forestay.adapters.httpx.notify import HttpxNotify
from forestay.ports.operations.receiver import Message


class WebReceiver:
    """Fills `ports.operations.receiver.Receiver`."""

    def __init__(self, url: str, token: Callable[[], str] | None = None) -> None:
        self._url = url
        self._token = token
        # The operator named this very host, so it may be on the operator's own network; no other is reached.
        self._notify = HttpxNotify((f"private:{urlsplit(url).hostname}",))

    async def tell(self, message: Message) -> None:
        more = {"Authorization": f"Bearer {self._token()}"} if self._token is not None else {}
        await self._notify.post(self._url, message.body, delivery=message.delivery, more=more)
