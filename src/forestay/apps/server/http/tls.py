"""A server's certificate, and the CAs whose certificates it requires of clients."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import structlog
import uvicorn

from forestay.apps.compose.loops import stop
from forestay.apps.config.settings import Settings
from forestay.ports.errors import Permanent

log = structlog.get_logger()
EVERY = 10.0
"""Seconds between checks of the files of a certificate."""


def tls_options(settings: Settings) -> dict[str, Any]:
    """The TLS options of uvicorn; none without a certificate. `Permanent` says what cannot be read."""
    if settings.certificate is None:
        return {}
    own = (settings.certificate, settings.certificate_key, settings.client_ca, settings.client_crl)
    for path in filter(None, own):
        if not os.access(path, os.R_OK):
            raise Permanent(
                f"{path} cannot be read (the server's certificate, its key, the clients' CA or revocation list)"
            )
    asked = ssl.CERT_NONE if settings.client_ca is None else ssl.CERT_REQUIRED
    return {
        "ssl_certfile": settings.certificate,
        "ssl_keyfile": settings.certificate_key,
        "ssl_ca_certs": None if settings.client_ca is None else str(settings.client_ca),
        "ssl_cert_reqs": asked,
    }


def refuse_withdrawn(config: uvicorn.Config, settings: Settings) -> None:
    """Refuse certificates on the CA's revocation list, from the first connection on. `Permanent` if there is no list in the file."""
    if settings.client_crl is None:
        return
    config.load()
    context = config.ssl
    assert context is not None  # noqa: S101 - a list is refused without a certificate
    try:
        context.load_verify_locations(settings.client_crl)
    except ssl.SSLError as error:
        raise Permanent(f"{settings.client_crl} is not a certificate revocation list in PEM: {error}") from error
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    # A client that resumes an earlier session does not send its certificate again.
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0


@asynccontextmanager
async def certificate_kept(config: uvicorn.Config, settings: Settings, *, every: float = EVERY) -> AsyncIterator[None]:
    """Reload the certificate and the revocation list when they change on disk; later connections use the new ones."""
    if settings.certificate is None:
        yield
        return
    own, key, withdrawn = settings.certificate, settings.certificate_key, settings.client_crl
    renew = partial(ssl.SSLContext.load_cert_chain, certfile=own, keyfile=key)
    looks = [_look(config, (own, key), every, renew, _state(own, key))]
    if withdrawn is not None:
        # If there are several lists, the newest applies.
        take = partial(ssl.SSLContext.load_verify_locations, cafile=withdrawn)
        looks.append(_look(config, (withdrawn,), every, take, _state(withdrawn)))
    looking = [asyncio.create_task(look) for look in looks]
    try:
        yield
    finally:
        for look in looking:
            await stop(look)


async def _look(
    config: uvicorn.Config,
    files: tuple[Path | None, ...],
    every: float,
    take: Callable[[ssl.SSLContext], None],
    seen: list[tuple[int, int]],
) -> None:
    while True:
        await asyncio.sleep(every)
        now = _state(*files)
        if now == seen or config.ssl is None:
            continue
        try:
            take(config.ssl)
        except (OSError, ssl.SSLError) as error:
            # An incomplete renewal: the old one stays in use, and the next check finds the rest.
            log.warning(
                "the certificate cannot be reloaded", file=str(files[0]), detail=f"{type(error).__name__}: {error}"
            )
        else:
            seen = now
            log.info("certificate", file=str(files[0]))


def _state(*paths: Path | None) -> list[tuple[int, int]]:
    parts = []
    for path in paths:
        try:
            about = path.stat() if path is not None else None
        except OSError:
            about = None
        parts.append((0, 0) if about is None else (about.st_mtime_ns, about.st_ino))
    return parts
