"""Requests to an identity provider: no redirects, limits on time and size."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote_plus

import httpx
import orjson

from forestay.adapters.httpx.guarded import bounded, certificates_with, guarded_client
from forestay.domain.jobs.outbound import OutboundPolicy
from forestay.ports.errors import Permanent, Transient
from forestay.ports.secrets import Secrets

SECONDS = 10.0
MAX_ANSWER = 1 << 20


class HttpxOidcEndpoints:
    """Implements `ports.operations.oidc_endpoints.OidcEndpoints`."""

    def __init__(
        self, secrets: Secrets, allowed: OutboundPolicy, *, secret: str = "", ca_file: Path | None = None
    ) -> None:
        """`secret` refers to the client's secret; empty: it has none. `ca_file`: certificate authorities instead of the system's."""
        self._secrets = secrets
        self._allowed = allowed
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
            raise Transient(f"the provider returned {status}; try again")
        raise Permanent(f"the provider refused the code: {str(body.get('error', status))[:100]}")

    async def _ask(
        self, method: str, url: str, *, data: dict[str, str] | None = None, auth: tuple[str, str] | None = None
    ) -> tuple[int, Mapping[str, object]]:
        # Called once in many minutes, so no connection is kept open.
        try:
            async with (
                asyncio.timeout(SECONDS),
                guarded_client(self._allowed, verify=certificates_with(self._ca_file)) as http,
                http.stream(method, url, data=data, headers={"Accept": "application/json"}, auth=auth) as answer,
            ):
                content = await bounded(answer, MAX_ANSWER)
        except Permanent as error:  # its documents name a host that is not listed; an administrator can fix that
            raise Transient(str(error)) from error
        except ValueError as error:
            raise Transient(f"{url} answers with {error}") from error
        except (TimeoutError, httpx.HTTPError, OSError) as error:
            raise Transient(f"the identity provider does not respond: {type(error).__name__}") from error
        try:
            body = orjson.loads(content) if content else {}
        except orjson.JSONDecodeError as error:
            raise Transient(f"{url} returned {answer.status_code} without valid JSON") from error
        if not isinstance(body, dict):
            raise Transient(f"{url} did not return a JSON object")
        return answer.status_code, body
