"""Checks the TLS certificates of all connections: trusted, and not about to expire."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from cryptography.x509 import load_pem_x509_certificates

from forestay.apps.config.settings import Settings
from forestay.apps.doctor.check_result import GOOD, MISSING, NOTE, CheckResult
from forestay.apps.doctor.named_things import addresses, files
from forestay.client import BadSettings, find_settings

SOON = 21 * 86_400
PATIENCE = 5.0


def all_of_them(settings: Settings) -> Iterator[CheckResult]:
    for name, path in files(settings):
        yield from _kept(name, path)
    for host, port in sorted(_doors(settings)):
        yield from _certificate(host, port)


def _doors(settings: Settings) -> set[tuple[str, int]]:
    """Every configured host and port that is connected to with TLS."""
    urls = list(addresses(settings))
    if settings.store.startswith("opensearch+https://"):
        urls += [f"https://{part}" for part in urlsplit(settings.store).netloc.rpartition("@")[2].split(",")]
    with suppress(BadSettings):
        urls += find_settings().server.value.split(",")
    doors = set()
    for url in urls:
        parts = urlsplit(url.strip())
        if parts.scheme == "https" and parts.hostname:
            doors.add((parts.hostname, parts.port or 443))
    return doors


def _certificate(host: str, port: int) -> Iterator[CheckResult]:
    about = "certificate"
    try:
        with (
            socket.create_connection((host, port), timeout=PATIENCE) as plain,
            ssl.create_default_context().wrap_socket(plain, server_hostname=host) as wrapped,
        ):
            shown = wrapped.getpeercert() or {}
    except ssl.SSLCertVerificationError as error:
        remedy = "Renew it, or add its issuer to the trusted certificates of this machine (SSL_CERT_FILE)."
        yield CheckResult(about, MISSING, f"{host}:{port}: {error.verify_message}", remedy)
        return
    except (OSError, ssl.SSLError) as error:
        yield CheckResult(about, NOTE, f"{host}:{port} cannot be checked: {error}")
        return
    yield _lasting(about, f"{host}:{port}", ssl.cert_time_to_seconds(str(shown["notAfter"])))


def _kept(name: str, path: Path) -> Iterator[CheckResult]:
    """Certificates in configured files: our own, and the trusted CAs."""
    try:
        pem_x509_certificates = load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError):  # it contains no certificate
        return
    yield _lasting(
        name,
        str(path),
        min(pem_x509_certificate.not_valid_after_utc for pem_x509_certificate in pem_x509_certificates).timestamp(),
    )


def _lasting(about: str, what: str, until: float) -> CheckResult:
    left = until - time.time()
    if left <= 0:
        return CheckResult(about, MISSING, f"{what} expired {-left / 86_400:.0f} days ago", "Renew it.")
    words = f"{what} is valid for {left / 86_400:.0f} days"
    return CheckResult(about, NOTE, words, "Renew it.") if left < SOON else CheckResult(about, GOOD, words)
