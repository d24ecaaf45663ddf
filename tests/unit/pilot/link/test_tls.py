"""Over TLS: a server that the given certificates vouch for is spoken to, any other is not."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.unit.pilot.fake_server import ENROL_TOKEN, FakeServer

from forestay_pilot.link.server_link import ServerLink, ServerRing, UnreachableError


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A key and its own certificate, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "forestay test")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    path = tmp_path / "certificate.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


@pytest.fixture
def secure_server(certificate: Path) -> Iterator[FakeServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    fake = FakeServer(tls=context)
    yield fake
    fake.stop()


def test_only_a_trusted_server_is_spoken_to(secure_server: FakeServer, certificate: Path) -> None:
    assert secure_server.url.startswith("https://")
    link = ServerLink(ServerRing([secure_server.url], ca_file=str(certificate)))
    answer = link.call("POST", "/v1/pilots", {"host": "h"}, token=ENROL_TOKEN, timeout=5)
    assert answer["pilot"] == "pilot-1"
    link.close()
    stranger = ServerLink(ServerRing([secure_server.url]))
    with pytest.raises(UnreachableError, match="certificate verify failed"):
        stranger.call("POST", "/v1/pilots", {"host": "h"}, token=ENROL_TOKEN, timeout=5)
    assert len(secure_server.seen.registrations) == 1
