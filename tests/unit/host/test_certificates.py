# SPDX-License-Identifier: Apache-2.0
"""A child makes the certificate; what it prints serves TLS, and what it says is passed on."""

from __future__ import annotations

import ssl
import sys

import pytest
from cryptography import x509

from gpudeck import errors
from gpudeck.host import certificates
from gpudeck.kube import serving


async def test_a_fresh_certificate_lives_as_long_as_it_says_and_can_be_served() -> None:
    pem = await certificates.self_signed()
    serving.load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), pem)
    found = x509.load_pem_x509_certificate(pem[pem.index(b"-----BEGIN CERT") :])
    life = found.not_valid_after_utc - found.not_valid_before_utc
    assert life.days == certificates.DAYS
    assert life.total_seconds() / 2 > serving.RENEWAL_SECONDS


async def test_a_child_that_fails_is_told_in_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "_PROGRAM", "gpudeck.no_such_program")
    with pytest.raises(errors.UnavailableError, match="No module named"):
        await certificates.self_signed()


async def test_a_python_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(errors.UnavailableError, match="cannot be made"):
        await certificates.self_signed()
