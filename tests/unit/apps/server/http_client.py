"""Clients for tests, made cheaply: reading the certificates that no test needs takes longer than most tests."""

from __future__ import annotations

import ssl
from typing import Any

import httpx

_NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def http_client(url: str, token: str | None = None, **options: Any) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    known: dict[str, Any] = {"timeout": 60, "trust_env": False, "verify": _NO_CERTIFICATES}
    return httpx.AsyncClient(base_url=url, headers=headers, **known | options)
