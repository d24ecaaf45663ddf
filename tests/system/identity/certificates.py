"""An authority of a test's own, and certificates by it."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

DAY = datetime.timedelta(days=1)


@dataclass
class Authority:
    """Signs certificates for this machine, each with its key in one file."""

    folder: Path
    name: str = "authority"
    _key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        own = self._builder(self.name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self.file.write_bytes(own.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    @property
    def file(self) -> Path:
        return self.folder / f"{self.name}.pem"

    def certificate(self, name: str, *, file: str = "") -> Path:
        """A new certificate, written in one step."""
        key = ec.generate_private_key(ec.SECP256R1())
        here = x509.SubjectAlternativeName(
            [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
        )
        made = self._builder(name, key).add_extension(here, critical=False).sign(self._key, hashes.SHA256())
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path = self.folder / (file or f"{name}.pem")
        new = path.with_suffix(".new")
        new.write_bytes(made.public_bytes(serialization.Encoding.PEM) + private)
        new.chmod(0o600)
        new.rename(path)
        return path

    def withdraw(self, *certificates: Path, age: float = 0.5) -> Path:
        """The list of all that are withdrawn, made so many days ago, and good for one; written in one step."""
        now = datetime.datetime.now(datetime.UTC)
        by = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, self.name)])
        begun = now - age * DAY
        made = x509.CertificateRevocationListBuilder().issuer_name(by).last_update(begun).next_update(begun + DAY)
        for path in certificates:
            number = x509.load_pem_x509_certificate(path.read_bytes()).serial_number
            certificate = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(now - DAY).build()
            made = made.add_revoked_certificate(certificate)
        path = self.folder / "withdrawn.pem"
        new = path.with_suffix(".new")
        new.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        new.rename(path)
        return path

    def client(self, certificate: Path | None = None) -> ssl.SSLContext:
        """Of somebody who trusts this authority."""
        context = ssl.create_default_context(cafile=str(self.file))
        if certificate is not None:
            context.load_cert_chain(certificate)
        return context

    def _builder(self, name: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        called = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        by = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, self.name)])
        return (
            x509.CertificateBuilder()
            .subject_name(called)
            .issuer_name(by)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + DAY)
        )
