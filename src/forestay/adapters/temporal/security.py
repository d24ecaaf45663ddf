"""Secure connections to Temporal: TLS with client certificates, and encrypted payloads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from temporalio.converter import DataConverter
from temporalio.service import TLSConfig

from forestay.adapters.temporal.codec import SealedPayloads, payload_keys, sealed_converter
from forestay.ports.errors import Permanent


@dataclass(frozen=True, slots=True)
class Security:
    """Files, read whenever a connection is made."""

    ca: Path | None = None
    certificate: Path | None = None
    certificate_key: Path | None = None
    server_name: str = ""
    """What the server's certificate must be for, if not the name that is connected to."""
    keys: Path | None = None

    def tls(self) -> TLSConfig | bool:
        if not (self.ca or self.certificate):
            return False
        own = None if self.certificate is None else _read(self.certificate)
        key = own if self.certificate_key is None else _read(self.certificate_key)
        return TLSConfig(
            server_root_ca_cert=None if self.ca is None else _read(self.ca),
            domain=self.server_name or None,
            client_cert=own,
            client_private_key=None if own is None else key,
        )

    def converter(self) -> DataConverter:
        if self.keys is None:
            return sealed_converter(None)
        try:
            return sealed_converter(SealedPayloads(payload_keys(self.keys)))
        except OSError as error:
            raise Permanent(f"the keys for payloads cannot be read from {self.keys}: {error.strerror}") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Permanent(f"{path}, for Temporal, cannot be read: {error.strerror}") from error
