# SPDX-License-Identifier: Apache-2.0
"""The certificates of the webhooks: made, kept, renewed, and trusted in between."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509

from gpudeck.controller.admission import certificates

NAMES = ("gpu-controller.gpudeck-system.svc",)
NOW = datetime.datetime(2026, 6, 1, tzinfo=datetime.UTC)


def later(days: int) -> datetime.datetime:
    return NOW + datetime.timedelta(days=days)


def made() -> dict[str, bytes]:
    found = certificates.renewed({}, NAMES, NOW)
    assert found is not None
    return found


def authorities(data: dict[str, bytes]) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(data[certificates.AUTHORITY])


def test_what_was_made_is_for_the_names_and_signed_by_the_authority() -> None:
    data = made()
    (authority,) = authorities(data)
    certificate = x509.load_pem_x509_certificate(data[certificates.CERTIFICATE])
    certificate.verify_directly_issued_by(authority)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == list(NAMES)
    assert certificates.renewed(data, NAMES, NOW) is None


def test_a_certificate_is_renewed_by_the_same_authority_while_a_third_of_its_life_is_left() -> None:
    data = made()
    assert certificates.renewed(data, NAMES, later(59)) is None
    renewed = certificates.renewed(data, NAMES, later(61))
    assert renewed is not None
    assert renewed[certificates.AUTHORITY] == data[certificates.AUTHORITY]
    assert renewed[certificates.CERTIFICATE] != data[certificates.CERTIFICATE]


def test_a_new_authority_stands_before_the_one_that_is_still_trusted() -> None:
    data = made()
    renewed = certificates.renewed(data, NAMES, later(certificates.AUTHORITY_DAYS - 300))
    assert renewed is not None
    new, old = authorities(renewed)
    assert old == authorities(data)[0]
    certificate = x509.load_pem_x509_certificate(renewed[certificates.CERTIFICATE])
    certificate.verify_directly_issued_by(new)


def test_another_namespace_gets_a_certificate_of_its_names() -> None:
    renewed = certificates.renewed(made(), ("gpu-controller.elsewhere.svc",), NOW)
    assert renewed is not None


@pytest.mark.parametrize("name", ["ca.crt", "ca.key", "tls.crt", "tls.key"])
@pytest.mark.parametrize("content", [None, b"", b"nonsense", "another"])
def test_what_is_missing_unreadable_or_of_another_is_made_again(
    name: str, content: bytes | str | None
) -> None:
    data = made()
    if content is None:
        del data[name]
    else:
        data[name] = made()[name] if isinstance(content, str) else content
    renewed = certificates.renewed(data, NAMES, NOW)
    assert renewed is not None
    assert certificates.renewed(renewed, NAMES, NOW) is None
