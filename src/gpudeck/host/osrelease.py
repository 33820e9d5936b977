# SPDX-License-Identifier: Apache-2.0
"""Name and version of the host's operating system, from os-release(5) below the host's root."""

from __future__ import annotations

import shlex

import msgspec

from gpudeck import errors
from gpudeck.host.root import Root

PATHS = ("/etc/os-release", "/usr/lib/os-release")


class OsRelease(msgspec.Struct, frozen=True):
    """What the file says; None where it is silent."""

    id: str | None = None
    """Lower-case identity: `ubuntu`."""
    version: str | None = None
    """VERSION_ID: `24.04`."""
    name: str | None = None
    """For people: PRETTY_NAME, else NAME."""


def read(root: Root) -> OsRelease:
    """Read the first file that is there; everything is None where none is readable."""
    for path in PATHS:
        try:
            return parse(root.read_text(path))
        except errors.GpudeckError:
            continue
    return OsRelease()


def values(root: Root) -> dict[str, str]:
    """All assignments of the first file that is there; empty where none is.

    Raises what reading a file that is there raises.
    """
    for path in PATHS:
        try:
            return assignments(root.read_text(path))
        except errors.NotFoundError:
            continue
    return {}


def parse(text: str) -> OsRelease:
    """Parse shell-like assignments; a line that is none is passed over."""
    values = assignments(text)
    return OsRelease(
        id=values.get("ID") or None,
        version=values.get("VERSION_ID") or None,
        name=values.get("PRETTY_NAME") or values.get("NAME") or None,
    )


def assignments(text: str) -> dict[str, str]:
    """The assignments by name; a line that is none is passed over."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        key, equals, quoted = line.strip().partition("=")
        if not equals or key.startswith("#"):
            continue
        try:
            words = shlex.split(quoted)
        except ValueError:  # An unclosed quote.
            continue
        values[key] = " ".join(words)
    return values
