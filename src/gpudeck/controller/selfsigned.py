# SPDX-License-Identifier: Apache-2.0
"""A program that prints a fresh key and a certificate that it signed itself, as PEM.

Run as `python -m gpudeck.controller.selfsigned NAME DAYS` by `host.certificates`: the
processes of a node serve TLS without the 8 MiB that cryptography would cost each of
them for ever. Nothing is written to a file.
"""

from __future__ import annotations

import datetime
import sys

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_SKEW = datetime.timedelta(hours=1)
"""Clocks of a cluster differ; a certificate is valid from a little before it was made."""
_COMMON_NAME_LENGTH = 64


def make(name: str, days: int) -> bytes:
    """Return a P-256 key and its certificate for the DNS name `name`."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:_COMMON_NAME_LENGTH])])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ) + certificate.public_bytes(serialization.Encoding.PEM)


if __name__ == "__main__":
    sys.stdout.buffer.write(make(sys.argv[1], int(sys.argv[2])))
