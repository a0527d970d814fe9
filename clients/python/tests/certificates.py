"""Certificates for tests of TLS."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


class Issuer:
    """A certificate authority for tests."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self.key = ec.generate_private_key(ec.SECP256R1())
        own = self._sign(self.name, self.key, x509.BasicConstraints(ca=True, path_length=None))
        self.ca = folder / f"{name}.pem"
        self.ca.write_bytes(own.public_bytes(serialization.Encoding.PEM))

    def issue(self, host: x509.GeneralName, name: str = "a server") -> tuple[Path, Path]:
        """Issues a certificate for a host or a client; returns the paths of the certificate and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        issued = self._sign(subject, key, x509.SubjectAlternativeName([host]))
        cert_path, key_path = (self.folder / f"{issued.serial_number}.{kind}" for kind in ("crt", "key"))
        cert_path.write_bytes(issued.public_bytes(serialization.Encoding.PEM))
        key_path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return cert_path, key_path

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType
    ) -> x509.Certificate:
        now = datetime.now(timezone.utc)
        builder = x509.CertificateBuilder(
            issuer_name=self.name,
            subject_name=subject,
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=now - timedelta(hours=1),
            not_valid_after=now + timedelta(hours=12),
        )
        critical = isinstance(extension, x509.BasicConstraints)
        return builder.add_extension(extension, critical).sign(self.key, hashes.SHA256())


@dataclass(frozen=True)
class Certificates:
    """Files for TLS: the certificates of two authorities, and two (certificate, key) pairs from the first one."""

    ca: Path
    other_ca: Path
    good: tuple[Path, Path]
    of_another_host: tuple[Path, Path]

    @classmethod
    def issue(cls, folder: Path) -> Certificates:
        """Writes all files into a folder."""
        issuer, other = Issuer(folder, "issuer"), Issuer(folder, "other")
        good = issuer.issue(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
        return cls(issuer.ca, other.ca, good, issuer.issue(x509.DNSName("stoker.example")))
