# SPDX-License-Identifier: Apache-2.0
"""Versions as makers write them, made into the semantic versions that Kubernetes accepts.

A device with a version attribute that is not a strict semantic version makes its
whole ResourceSlice invalid (resource.k8s.io/v1), so `normalise` is on the way of
each of them: `570.86.05` becomes `570.86.5`, `550.54` becomes `550.54.0`. What does
not begin with a number has no version at all.
"""

from __future__ import annotations

import re

from gpudeck.errors import InvalidError

Version = tuple[int, int, int]

_VERSION = re.compile(
    r"[vV]?(\d{1,18})(?:\.(\d{1,18}))?(?:\.(\d{1,18}))?(?P<rest>[^0-9].*)?", re.ASCII
)
_BOUND = re.compile(r"\d{1,18}(?:\.\d{1,18}){0,2}", re.ASCII)
_LENGTH = 64


def normalise(text: str | None) -> str | None:
    """Return `text` as a semantic version, None if it has none.

    What follows the third number becomes build metadata, which comparisons ignore;
    as a pre-release it would order below the version it belongs to.
    """
    match = _VERSION.fullmatch((text or "").strip())
    if match is None:
        return None
    numbers = ".".join(str(int(part or "0")) for part in match.groups()[:3])
    build = re.sub(r"[^0-9A-Za-z]+", "-", match["rest"] or "").strip("-")
    return f"{numbers}+{build}"[:_LENGTH].rstrip("-") if build else numbers


def key(text: str | None) -> Version | None:
    """Return the three numbers to compare by, None if `text` has no version."""
    version = normalise(text)
    if version is None:
        return None
    major, minor, patch = version.split("+")[0].split(".")
    return int(major), int(minor), int(patch)


def lower_bound(text: str, field: str) -> Version:
    """Return the first version that a `min` admits: `550` admits 550.0.0 and later."""
    return _padded(_numbers(text, field))


def upper_bound(text: str, field: str) -> Version:
    """Return the first version that a `max` no longer admits: `550` admits 550.54.15."""
    numbers = _numbers(text, field)
    numbers[-1] += 1
    return _padded(numbers)


def render(version: Version) -> str:
    """Return the three numbers as a semantic version."""
    return ".".join(str(number) for number in version)


def _padded(numbers: list[int]) -> Version:
    major, minor, patch = (*numbers, 0, 0)[:3]
    return major, minor, patch


def _numbers(text: str, field: str) -> list[int]:
    if not _BOUND.fullmatch(text):
        allowed = "one to three numbers with dots between, e.g. 8.0 or 570.86"
        raise InvalidError(
            f"{field}: {text!r} is not a version; allowed: {allowed}",
            reason="InvalidVersion",
            field=field,
            allowed=allowed,
        )
    return [int(part) for part in text.split(".")]
