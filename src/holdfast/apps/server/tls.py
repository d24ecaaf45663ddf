"""A server's certificate, and whose certificates it asks clients for."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import structlog
import uvicorn

from holdfast.apps.settings import Settings
from holdfast.apps.wiring.loops import stop
from holdfast.ports.errors import Permanent

log = structlog.get_logger()
EVERY = 10.0
"""Seconds between looks at the files of a certificate."""


def tls_options(settings: Settings) -> dict[str, Any]:
    """How uvicorn is told; nothing without a certificate. `Permanent` says what cannot be read."""
    if settings.certificate is None:
        return {}
    for path in filter(None, (settings.certificate, settings.certificate_key, settings.client_ca)):
        if not os.access(path, os.R_OK):
            raise Permanent(f"{path} cannot be read: the server's certificate, its key or the clients' authority")
    asked = ssl.CERT_NONE if settings.client_ca is None else ssl.CERT_REQUIRED
    return {
        "ssl_certfile": settings.certificate,
        "ssl_keyfile": settings.certificate_key,
        "ssl_ca_certs": None if settings.client_ca is None else str(settings.client_ca),
        "ssl_cert_reqs": asked,
    }


@asynccontextmanager
async def certificate_kept(config: uvicorn.Config, settings: Settings, *, every: float = EVERY) -> AsyncIterator[None]:
    """Whenever the certificate changes on disk, connections from then on get the new one."""
    if settings.certificate is None:
        yield
        return
    files = (settings.certificate, settings.certificate_key)
    looking = asyncio.create_task(_look(config, *files, every, _state(*files)))
    try:
        yield
    finally:
        await stop(looking)


async def _look(
    config: uvicorn.Config, certificate: Path, key: Path | None, every: float, seen: list[tuple[int, int]]
) -> None:
    while True:
        await asyncio.sleep(every)
        now = _state(certificate, key)
        if now == seen or config.ssl is None:
            continue
        try:
            config.ssl.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            # Half of a renewal: the old one serves on, and the next look finds the rest.
            log.warning("the certificate waits", detail=f"{type(error).__name__}: {error}")
        else:
            seen = now
            log.info("certificate", file=str(certificate))


def _state(*paths: Path | None) -> list[tuple[int, int]]:
    found = []
    for path in paths:
        try:
            about = path.stat() if path is not None else None
        except OSError:
            about = None
        found.append((0, 0) if about is None else (about.st_mtime_ns, about.st_ino))
    return found
