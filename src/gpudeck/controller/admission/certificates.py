# SPDX-License-Identifier: Apache-2.0
"""The certificates of the webhooks, as they stand in a Secret: an authority and what it signed.

Pure but for the random keys. The leader asks `renewed` and writes what it says; every
replica serves with what the Secret holds, and the webhook configurations carry its
authorities. A new authority stands before the one that it replaces, so that a replica that
still serves the old certificate is trusted until it has read the new one.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY, AUTHORITY_KEY = "ca.crt", "ca.key"
CERTIFICATE, KEY = "tls.crt", "tls.key"
AUTHORITY_DAYS, AUTHORITY_LEFT = 3650, 365
"""Life of an authority, and how much of it must be left, in days."""
CERTIFICATE_DAYS, CERTIFICATE_LEFT = 90, 30
_SKEW = datetime.timedelta(hours=1)
"""Clocks of a cluster differ; a certificate is valid from a little before it was made."""


def renewed(
    found: Mapping[str, bytes], names: Sequence[str], now: datetime.datetime
) -> dict[str, bytes] | None:
    """Return what the Secret must hold, or None if what it holds will do.

    `names` are the DNS names of the Service, the first the common one. What cannot be read
    is replaced.
    """
    try:
        authority = x509.load_pem_x509_certificates(found[AUTHORITY])[0]
        key = serialization.load_pem_private_key(found[AUTHORITY_KEY], None)
        own = isinstance(key, ec.EllipticCurvePrivateKey) and (
            key.public_key() == authority.public_key()
        )
    except (KeyError, ValueError, TypeError):
        return _new(names, now, None)
    if not own or not _lasts(authority, AUTHORITY_LEFT, now):
        return _new(names, now, authority)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    if _serves(found, authority, names, now):
        return None
    return {**found, **_certified(names, now, authority, key)}


def _serves(
    found: Mapping[str, bytes],
    authority: x509.Certificate,
    names: Sequence[str],
    now: datetime.datetime,
) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(found[CERTIFICATE])
        key = serialization.load_pem_private_key(found[KEY], None)
        certificate.verify_directly_issued_by(authority)
        named = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (KeyError, ValueError, TypeError, x509.ExtensionNotFound, InvalidSignature):
        return False
    return (
        key.public_key() == certificate.public_key()
        and set(names) <= set(named.get_values_for_type(x509.DNSName))
        and _lasts(certificate, CERTIFICATE_LEFT, now)
    )


def _lasts(certificate: x509.Certificate, days: int, now: datetime.datetime) -> bool:
    left = certificate.not_valid_after_utc - now
    return certificate.not_valid_before_utc <= now and left > datetime.timedelta(days=days)


def _new(
    names: Sequence[str], now: datetime.datetime, old: x509.Certificate | None
) -> dict[str, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    # The moment makes the name one of its own: two authorities of one name confuse verifiers.
    subject = _subject(f"gpudeck webhooks {now:%Y%m%d%H%M%S}")
    authority = (
        _builder(subject, key.public_key(), now, AUTHORITY_DAYS)
        .issuer_name(subject)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    trusted = [authority] + ([old] if old is not None and old.not_valid_after_utc > now else [])
    return {
        AUTHORITY: b"".join(_pem(each) for each in trusted),
        AUTHORITY_KEY: _key_pem(key),
        **_certified(names, now, authority, key),
    }


def _certified(
    names: Sequence[str],
    now: datetime.datetime,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
) -> dict[str, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    alternatives = x509.SubjectAlternativeName([x509.DNSName(each) for each in names])
    certificate = (
        _builder(_subject(names[0]), key.public_key(), now, CERTIFICATE_DAYS)
        .issuer_name(authority.subject)
        .add_extension(alternatives, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    return {CERTIFICATE: _pem(certificate), KEY: _key_pem(key)}


def _builder(
    subject: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime.datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
