"""Values in Vault, by its HTTP interface: the key-value store of version 2, read with a token of the site."""

from __future__ import annotations

import http.client
import json
import re
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from forestay_pilot.job_secrets.checked_files import read_alone
from forestay_pilot.job_secrets.secret_error import DENIED, INSECURE, NOT_FOUND, UNREACHABLE, SecretError

_PATIENCE = 10.0  # seconds in all for one answer
_MOST = 1 << 20
_PIECE = 1 << 14
_LOOPBACK = re.compile(r"127(\.[0-9]{1,3}){3}|localhost|::1")


@dataclass(frozen=True)
class VaultSettings:
    """Where a site's Vault is, and who the pilot is there."""

    address: str
    token_file: str = ""
    token: str = ""
    namespace: str = ""
    ca_file: str = ""
    allow_http: bool = False

    def __repr__(self) -> str:
        return f"VaultSettings({self.address!r})"

    def check(self) -> None:
        """Raises ValueError for an address that would show the token to others."""
        parts = urlsplit(self.address)
        host = parts.hostname or ""
        if parts.scheme not in ("https", "http") or not host or parts.query or parts.fragment or "@" in parts.netloc:
            raise ValueError("the address of Vault is https://HOST:PORT")
        if parts.scheme == "http" and not self.allow_http and not _LOOPBACK.fullmatch(host):
            raise ValueError("Vault is asked by https, or on this host; allow_http permits another address by http")
        if bool(self.token) == bool(self.token_file):
            raise ValueError("Vault needs a token_file, or a token")
        if (self.token and not _is_word(self.token)) or (self.namespace and not _is_word(self.namespace)):
            raise ValueError("the token and the namespace of Vault are words of ASCII")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Whoever answers with another address does not get the token there."""

    def redirect_request(self, *_: Any) -> None:
        return None


def read_vault(settings: VaultSettings, path: str) -> dict[str, Any]:
    """All values below a path such as ``secret/data/app``; raises SecretError."""
    request = urllib.request.Request(  # noqa: S310 - https, or what the site permits
        f"{settings.address.rstrip('/')}/v1/{quote(path)}", headers=_headers(settings)
    )
    until = time.monotonic() + _PATIENCE
    try:
        with _opener(settings).open(request, timeout=_PATIENCE / 2) as answer:
            body = _read(answer, until)
    except urllib.error.HTTPError as error:
        with error:
            raise _bad_answer(error.code) from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise SecretError(UNREACHABLE, f"Vault cannot be reached: {str(reason)[:300]}") from None
    try:
        data = json.loads(body)["data"]["data"]
    except (ValueError, KeyError, TypeError):
        data = None
    if not isinstance(data, dict):
        raise SecretError(NOT_FOUND, "the path is not in a key-value store of version 2, or its value was deleted")
    return data


def _headers(settings: VaultSettings) -> dict[str, str]:
    token = settings.token or read_alone(settings.token_file, "the file of Vault's token").decode("ascii", "replace")
    token = token.strip()
    if not _is_word(token):
        raise SecretError(INSECURE, "the file of Vault's token does not contain a token")
    headers = {"X-Vault-Token": token, "X-Vault-Request": "true", "Accept": "application/json"}
    return {**headers, "X-Vault-Namespace": settings.namespace} if settings.namespace else headers


def _is_word(text: str) -> bool:
    """Whether a text can be in a header: an error about one that cannot would show it."""
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def _opener(settings: VaultSettings) -> urllib.request.OpenerDirector:
    context = ssl.create_default_context(cafile=settings.ca_file or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # No proxy of the pilot's environment either: it would see the token of an address by http.
    return urllib.request.build_opener(
        urllib.request.ProxyHandler({}), _NoRedirect(), urllib.request.HTTPSHandler(context=context)
    )


def _read(answer: http.client.HTTPResponse, until: float) -> bytes:
    body = b""
    while True:
        piece = answer.read1(_PIECE)
        body += piece
        if not piece:
            return body
        if len(body) > _MOST:
            raise SecretError(UNREACHABLE, f"Vault answers with more than {_MOST} bytes")
        if time.monotonic() > until:
            raise SecretError(UNREACHABLE, f"Vault did not answer within {_PATIENCE:.0f} s")


def _bad_answer(status: int) -> SecretError:
    if status == http.client.NOT_FOUND:
        return SecretError(NOT_FOUND, "there is no such path in Vault")
    if status in (400, 401, 403):
        return SecretError(
            DENIED, f"Vault refuses the pilot's token, or its policy does not allow the path (HTTP {status})"
        )
    if 300 <= status < 400:
        return SecretError(UNREACHABLE, f"Vault answers with another address, which is not followed (HTTP {status})")
    return SecretError(UNREACHABLE, f"Vault cannot answer now (HTTP {status})")
