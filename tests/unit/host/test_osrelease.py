# SPDX-License-Identifier: Apache-2.0
"""os-release: quoting, absolute links below the root, and files that are broken or absent."""

from __future__ import annotations

from pathlib import Path

from gpudeck.host import osrelease
from gpudeck.host.root import Root


def test_quotes_comments_and_bad_lines_are_understood() -> None:
    text = (
        '# NAME=no\nID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME=\'Ubuntu 24.04.3 LTS\'\nX="open\n\n'
    )
    assert osrelease.parse(text) == osrelease.OsRelease("ubuntu", "24.04", "Ubuntu 24.04.3 LTS")


def test_the_second_place_is_read_when_the_first_is_missing(tmp_path: Path) -> None:
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "usr/lib/os-release").write_text("ID=debian\nNAME=Debian\n")
    assert osrelease.read(Root(tmp_path)) == osrelease.OsRelease("debian", None, "Debian")


def test_a_host_without_the_file_says_nothing(tmp_path: Path) -> None:
    assert osrelease.read(Root(tmp_path)) == osrelease.OsRelease()
