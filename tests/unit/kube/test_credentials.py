# SPDX-License-Identifier: Apache-2.0
"""Tokens and certificates follow their files while the process runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support import certificates

from gpudeck import errors
from gpudeck.kube import credentials


def rewrite(path: Path, text: str, *, seconds: int) -> None:
    """Write a file with an mtime of its own."""
    path.write_text(text)
    os.utime(path, (seconds, seconds))


async def test_a_rotated_token_is_read(tmp_path: Path) -> None:
    path = tmp_path / "token"
    rewrite(path, "one\n", seconds=1000)
    token = credentials.TokenFile(path)
    assert await token.token() == "one"
    rewrite(path, "two\n", seconds=2000)
    assert await token.token() == "two"


async def test_a_token_behind_an_unchanged_mtime_is_read_after_a_refusal(tmp_path: Path) -> None:
    path = tmp_path / "token"
    rewrite(path, "one", seconds=1000)
    token = credentials.TokenFile(path)
    await token.token()
    rewrite(path, "two", seconds=1000)
    assert await token.token() == "one"
    assert token.forget()
    assert await token.token() == "two"


async def test_a_token_behind_an_unchanged_mtime_is_read_once_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "token"
    rewrite(path, "one", seconds=1000)
    token = credentials.TokenFile(path)
    await token.token()
    rewrite(path, "two", seconds=1000)
    monkeypatch.setattr(credentials, "TOKEN_SECONDS", 0.0)
    assert await token.token() == "two"


async def test_the_last_token_serves_while_the_file_is_away(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    token = credentials.TokenFile(path)
    await token.token()
    path.unlink()
    assert await token.token() == "one"


async def test_a_token_that_was_never_there_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(errors.UnavailableError) as caught:
        await credentials.TokenFile(tmp_path / "token").token()
    assert caught.value.reason == "TokenUnreadable"


async def test_a_fixed_token_has_no_other_to_offer() -> None:
    token = credentials.FixedToken("one")
    assert not token.forget()
    assert await token.token() == "one"


def test_a_rotated_authority_gives_a_new_context(tmp_path: Path) -> None:
    path = tmp_path / "ca.crt"
    rewrite(path, certificates.authority("first").certificate_pem, seconds=1000)
    tls = credentials.Tls(authority=credentials.Pem(path=path))
    first = tls.context()
    assert tls.context() is first
    rewrite(path, certificates.authority("second").certificate_pem, seconds=2000)
    subject = tls.context().get_ca_certs()[0]["subject"]
    assert subject == ((("commonName", "second"),),)


def test_a_half_written_rotation_leaves_the_old_context(tmp_path: Path) -> None:
    path = tmp_path / "ca.crt"
    rewrite(path, certificates.authority().certificate_pem, seconds=1000)
    tls = credentials.Tls(authority=credentials.Pem(path=path))
    first = tls.context()
    rewrite(path, "-----BEGIN CERTIFICATE-----\nAAAA", seconds=2000)
    assert tls.context() is first


def test_files_that_hold_no_certificate_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "ca.crt"
    path.write_text("nothing")
    with pytest.raises(errors.InvalidError) as caught:
        credentials.Tls(authority=credentials.Pem(path=path)).context()
    assert caught.value.reason == "CertificatesUnreadable"


def test_a_presented_certificate_gives_a_new_context_once() -> None:
    tls = credentials.Tls()
    first = tls.context()
    pair = certificates.issue(certificates.authority(), "me")
    tls.present(pair.certificate_pem, pair.key_pem)
    second = tls.context()
    assert second is not first
    tls.present(pair.certificate_pem, pair.key_pem)
    assert tls.context() is second
