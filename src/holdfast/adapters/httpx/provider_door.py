"""Speaks to a provider of identities: no redirects, bounded in time and size."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote_plus

import httpx
import orjson

from holdfast.adapters.httpx.notify import certificates
from holdfast.ports.errors import Permanent, Transient
from holdfast.ports.secrets import Secrets

SECONDS = 10.0
MAX_ANSWER = 1 << 20


class HttpxProviderDoor:
    """Fills `ports.provider.ProviderDoor`."""

    def __init__(self, secrets: Secrets, *, secret: str = "", ca_file: Path | None = None) -> None:
        """`secret` says where the client's secret is; empty: it has none. `ca_file`: whom to trust, unless it is whom everybody does."""
        self._secrets = secrets
        self._secret = secret
        self._ca_file = ca_file

    async def read(self, url: str) -> Mapping[str, object]:
        status, body = await self._ask("GET", url)
        if status != httpx.codes.OK:
            raise Transient(f"{url} answered {status}")
        return body

    async def trade(self, url: str, form: Mapping[str, str], *, client: str) -> Mapping[str, object]:
        auth = None
        if self._secret:
            # RFC 6749, 2.3.1: both are form-encoded before they are made a name and a password.
            auth = (quote_plus(client), quote_plus(self._secrets.read(self._secret)))
        else:
            form = {**form, "client_id": client}
        status, body = await self._ask("POST", url, data=dict(form), auth=auth)
        if status == httpx.codes.OK:
            return body
        if status >= httpx.codes.INTERNAL_SERVER_ERROR:
            raise Transient(f"the provider answered {status}; try again")
        raise Permanent(f"the provider refused the code: {str(body.get('error', status))[:100]}")

    async def _ask(
        self, method: str, url: str, *, data: dict[str, str] | None = None, auth: tuple[str, str] | None = None
    ) -> tuple[int, Mapping[str, object]]:
        # Asked once in many minutes, so that nothing is kept open.
        verify = certificates() if self._ca_file is None else ssl.create_default_context(cafile=str(self._ca_file))
        try:
            async with (
                asyncio.timeout(SECONDS),
                httpx.AsyncClient(follow_redirects=False, trust_env=False, verify=verify) as http,
            ):
                request = http.build_request(method, url, data=data, headers={"Accept": "application/json"})
                answer = await http.send(request, stream=True, auth=auth)
                content = b""
                async for piece in answer.aiter_bytes():
                    content += piece
                    if len(content) > MAX_ANSWER:
                        raise Transient(f"{url} answers with more than {MAX_ANSWER} bytes")
        except (TimeoutError, httpx.HTTPError, OSError) as error:
            raise Transient(f"the provider of identities does not answer: {type(error).__name__}") from error
        try:
            body = orjson.loads(content) if content else {}
        except orjson.JSONDecodeError as error:
            raise Transient(f"{url} answered {answer.status_code} with no JSON") from error
        if not isinstance(body, dict):
            raise Transient(f"{url} answered with something else than a document")
        return answer.status_code, body
