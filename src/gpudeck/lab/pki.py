# SPDX-License-Identifier: Apache-2.0
"""The lab's certificates and kubeconfig files.

Three authorities, as kubeadm makes them: the cluster's, etcd's and the front proxy's.
Every component has a client certificate of its own, so that the Node authorizer and RBAC
see who calls; the only member of system:masters is the user's own kubeconfig.
Called by `cluster`; it writes below the folder it is given and never touches the network.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gpudeck.host import files

LIFETIME = datetime.timedelta(days=365)
# Clocks of virtual machines step back after a resume; certificates are valid a bit earlier.
BACKDATE = datetime.timedelta(hours=1)


@dataclasses.dataclass(frozen=True)
class Pair:
    """A certificate with its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> bytes:
        """The certificate as PEM."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The private key as PEM (SEC 1)."""
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )

    def write(self, folder: Path, name: str) -> None:
        """Write `<name>.crt` and `<name>.key`, the key readable by its owner only."""
        folder.mkdir(parents=True, exist_ok=True)
        write_public(folder / f"{name}.crt", self.certificate_pem)
        write_private(folder / f"{name}.key", self.key_pem)


def read(folder: Path, name: str) -> Pair:
    """Read what `Pair.write` wrote."""
    certificate = read_certificate(folder / f"{name}.crt")
    key = serialization.load_pem_private_key((folder / f"{name}.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return Pair(certificate, key)


def read_certificate(path: Path) -> x509.Certificate:
    """Read a certificate from a PEM file."""
    return x509.load_pem_x509_certificate(path.read_bytes())


def write_public(path: Path, content: bytes) -> None:
    """Write a file that everybody may read; a daemon that reads it now gets a whole one."""
    files.write_atomic(path, content, durable=False)


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, from its first instant on."""
    files.write_atomic(path, content, mode=0o600, durable=False)


def authority(common_name: str) -> Pair:
    """Make a certificate authority of its own."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(common_name, ())
    builder = _builder(name, name, key.public_key()).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    builder = builder.add_extension(
        _key_usage(certificate_sign=True, signature=True), critical=True
    ).add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    return Pair(builder.sign(key, hashes.SHA256()), key)


def issue(
    signer: Pair,
    common_name: str,
    *,
    organizations: Sequence[str] = (),
    hosts: Sequence[str] = (),
) -> Pair:
    """Issue a certificate: for a client always, for a server too when `hosts` are given."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(
        _name(common_name, organizations), signer.certificate.subject, key.public_key()
    )
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if hosts:
        usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False
        )
    builder = (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(certificate_sign=False, signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key()),
            critical=False,
        )
    )
    return Pair(builder.sign(signer.key, hashes.SHA256()), key)


def token_keys(folder: Path) -> None:
    """Write the key pair that signs and checks service-account tokens: sa.key, sa.pub."""
    key = ec.generate_private_key(ec.SECP256R1())
    folder.mkdir(parents=True, exist_ok=True)
    write_private(
        folder / "sa.key",
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        ),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    write_public(folder / "sa.pub", public)


def kubeconfig(server: str, signer: Pair, client: Pair, *, name: str) -> bytes:
    """Return a kubeconfig with everything inside, for any client."""

    def text(pem: bytes) -> str:
        return base64.b64encode(pem).decode()

    content: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": name,
                "cluster": {
                    "server": server,
                    "certificate-authority-data": text(signer.certificate_pem),
                },
            }
        ],
        "users": [
            {
                "name": name,
                "user": {
                    "client-certificate-data": text(client.certificate_pem),
                    "client-key-data": text(client.key_pem),
                },
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    return yaml.safe_dump(content, sort_keys=False).encode()


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(now + LIFETIME)
    )


def _name(common_name: str, organizations: Sequence[str]) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, certificate_sign: bool, signature: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=certificate_sign,
        crl_sign=certificate_sign,
        encipher_only=False,
        decipher_only=False,
    )
