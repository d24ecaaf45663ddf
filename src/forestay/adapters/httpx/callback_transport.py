"""Sends callbacks: only allowed hosts, every resolved address checked, no redirects, limits on time and size."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from urllib.parse import urlsplit

import httpx
import orjson

from forestay.adapters.httpx.guarded import bounded, guarded_client
from forestay.domain.jobs.outbound import OutboundPolicy
from forestay.ports.errors import Permanent, Transient
from forestay.ports.flows.flow_format import CALLBACK_MARKS, FlowFormats, NoFormats, NotInstalled

SECONDS = 5.0
MAX_ANSWER = 65_536
GONE = 410
"""The only status that refuses a callback for good."""
_NONE: Mapping[str, str] = MappingProxyType({})


class HttpxCallbackTransport:
    """Implements `ports.operations.callback_transport.Notify`."""

    def __init__(self, allowed: tuple[str, ...], formats: FlowFormats | None = None) -> None:
        self._outbound = OutboundPolicy(allowed, setting="callback_hosts")
        self._formats = formats or NoFormats()

    def check(self, url: str) -> str | None:
        return self._outbound.check(url)

    async def post(
        self, url: str, body: Mapping[str, object], *, delivery: str, more: Mapping[str, str] = _NONE
    ) -> None:
        if why := self.check(url):
            raise Permanent(why)
        parts = urlsplit(url)
        host = parts.hostname or ""
        headers = {"Content-Type": "application/json", "Forestay-Delivery": delivery, **more}
        content = orjson.dumps(body)
        if name := CALLBACK_MARKS.get(parts.fragment):
            try:
                content, own = self._formats.get(name).callback(body)
            except NotInstalled as error:  # it may be installed by the next attempt
                raise Transient(str(error)) from error
            headers |= own
        try:
            async with (
                asyncio.timeout(SECONDS),
                guarded_client(self._outbound) as client,
                client.stream("POST", url, content=content, headers=headers) as answer,
            ):
                with suppress(ValueError):  # a longer response counts, but is not read to its end
                    await bounded(answer, MAX_ANSWER, raw=True)
        except (TimeoutError, httpx.HTTPError, OSError) as error:
            raise Transient(f"no response from {host}: {type(error).__name__}") from error
        if answer.status_code == GONE:
            raise Permanent(f"{host} answered {answer.status_code}")
        if not answer.is_success:  # a wrong set-up may be fixed
            raise Transient(f"{host} answered {answer.status_code}")
