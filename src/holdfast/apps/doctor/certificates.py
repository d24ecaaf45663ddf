"""Certificates of what is spoken to by TLS: trusted, and good for a while yet."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit

from holdfast.apps.doctor.finding import GOOD, MISSING, NOTE, Finding
from holdfast.apps.settings import Settings
from holdfast.client import BadSettings, find_settings

SOON = 21 * 86_400
PATIENCE = 5.0


def all_of_them(settings: Settings) -> Iterator[Finding]:
    for host, port in sorted(_doors(settings)):
        yield from _certificate(host, port)


def _doors(settings: Settings) -> set[tuple[str, int]]:
    """Every host and port that is spoken to by TLS, as the settings say."""
    urls = [settings.url, *(one.url for one in settings.downstreams), *(one.url for one in settings.storage)]
    if settings.store.startswith("opensearch+https://"):
        urls += [f"https://{one}" for one in urlsplit(settings.store).netloc.rpartition("@")[2].split(",")]
    with suppress(BadSettings):
        urls += find_settings().server.value.split(",")
    doors = set()
    for url in urls:
        parts = urlsplit(url.strip())
        if parts.scheme == "https" and parts.hostname:
            doors.add((parts.hostname, parts.port or 443))
    return doors


def _certificate(host: str, port: int) -> Iterator[Finding]:
    about = "certificate"
    try:
        with (
            socket.create_connection((host, port), timeout=PATIENCE) as plain,
            ssl.create_default_context().wrap_socket(plain, server_hostname=host) as wrapped,
        ):
            shown = wrapped.getpeercert() or {}
    except ssl.SSLCertVerificationError as error:
        remedy = "Renew it, or have this machine trust who signed it (SSL_CERT_FILE)."
        yield Finding(about, MISSING, f"{host}:{port}: {error.verify_message}", remedy)
        return
    except (OSError, ssl.SSLError) as error:
        yield Finding(about, NOTE, f"{host}:{port} cannot be asked: {error}")
        return
    left = ssl.cert_time_to_seconds(str(shown["notAfter"])) - time.time()
    words = f"{host}:{port} is good for {left / 86_400:.0f} days"
    if left < SOON:
        yield Finding(about, NOTE, words, "Renew it.")
    else:
        yield Finding(about, GOOD, words)
