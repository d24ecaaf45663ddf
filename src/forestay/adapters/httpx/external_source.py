"""An external source read over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

import httpx

from forestay.adapters.httpx.guarded import bounded, guarded_client
from forestay.domain.jobs.outbound import OutboundPolicy
from forestay.ports.errors import Transient
from forestay.ports.exceptions.external_source import MAX_BYTES, ExternalSource


class WebSource(ExternalSource):
    """An address that answers with JSON."""

    def __init__(self, url: str, token: Callable[[], str] | None = None) -> None:
        self._url = url
        self._token = token
        # The operator configured this host, so it may be on the operator's own network; no other host is allowed.
        self._outbound = OutboundPolicy((f"private:{urlsplit(url).hostname}",), setting="external_sources")

    async def read(self) -> bytes:
        headers = {"Authorization": f"Bearer {self._token()}"} if self._token is not None else {}
        try:
            async with (
                guarded_client(self._outbound) as client,
                client.stream("GET", self._url, headers=headers) as answer,
            ):
                if not answer.is_success:
                    raise Transient(f"{urlsplit(self._url).hostname} answered {answer.status_code}")
                return await bounded(answer, MAX_BYTES)
        except (httpx.HTTPError, OSError, ValueError) as error:
            raise Transient(
                f"no usable response from {urlsplit(self._url).hostname}: {type(error).__name__}"
            ) from error
