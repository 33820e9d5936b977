# SPDX-License-Identifier: Apache-2.0
"""Certificates for tests: an authority, and what it signs. Elliptic curve keys, an hour's life."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LOOPBACK = ipaddress.ip_address("127.0.0.1")


@dataclass
class Pair:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def key_pem(self) -> str:
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ).decode()

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Write both as `name.crt` and `name.key` and return the paths."""
        certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
        certificate.write_text(self.certificate_pem)
        key.write_text(self.key_pem)
        return certificate, key


def authority(name: str = "test-ca") -> Pair:
    """Make a certificate authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name, ())
    builder = _builder(subject, subject, key).add_extension(
        x509.BasicConstraints(ca=True, path_length=None), critical=True
    )
    return Pair(builder.sign(key, hashes.SHA256()), key)


def issue(ca: Pair, name: str, *, groups: Sequence[str] = (), names: Sequence[str] = ()) -> Pair:
    """Make a certificate for a server on loopback, or a client with groups."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_subject(name, groups), ca.certificate.subject, key)
    alternatives: list[x509.GeneralName] = [x509.IPAddress(LOOPBACK)]
    alternatives += [x509.DNSName(each) for each in names]
    builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return Pair(builder.sign(ca.key, hashes.SHA256()), key)


def _subject(name: str, groups: Sequence[str]) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in groups]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(hours=1))
    )
