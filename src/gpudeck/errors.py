# SPDX-License-Identifier: Apache-2.0
"""Every error of gpudeck, in one tree.

GpudeckError                      a reason in CamelCase and a sentence for people
├── RetryableError                the same call may succeed later (after_seconds)
│   ├── UnavailableError          a peer (API server, adapter, kubelet) does not answer now
│   ├── ConflictError             somebody else changed the object first
│   ├── ExpiredError              a watch or list position is too old (HTTP 410)
│   ├── LeadershipLostError       the Lease is held by somebody else or was not renewed in time
│   └── BusyError                 the thing is in use by another holder
└── TerminalError                 repeating the call unchanged cannot help
    ├── NotFoundError             the object or card does not exist
    ├── AlreadyExistsError        the object exists with other content
    ├── InvalidError              bad input; names the field, the value and what is allowed
    ├── ForbiddenError            the caller may not do this
    └── UnsupportedError          the hardware or the server lacks the ability

The reason of an error becomes the reason of the condition and of the Event that
report it, without translation. Return codes of a maker's library, HTTP statuses
and OSErrors are translated at the three doors and chained.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Sequence
from typing import TypeVar

E = TypeVar("E", bound=BaseException)


class GpudeckError(Exception):
    """The root: what is wrong, in a word for programs and a sentence for people."""

    reason = "Error"

    def __init__(self, message: str, *, reason: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if reason is not None:
            self.reason = reason

    def __str__(self) -> str:
        return self.message


class RetryableError(GpudeckError):
    """The same call may succeed later; `after_seconds` is a hint, None leaves it to the caller."""

    reason = "Retryable"

    def __init__(
        self, message: str, *, reason: str | None = None, after_seconds: float | None = None
    ) -> None:
        super().__init__(message, reason=reason)
        self.after_seconds = after_seconds


class UnavailableError(RetryableError):
    """A peer does not answer now: refused, timed out, overloaded or restarting."""

    reason = "Unavailable"


class ConflictError(RetryableError):
    """The object changed since it was read, or another field manager owns the field."""

    reason = "Conflict"


class ExpiredError(RetryableError):
    """The resource version of a list or watch is too old; list again."""

    reason = "Expired"


class LeadershipLostError(RetryableError):
    """The Lease is held by somebody else, or could not be renewed in time."""

    reason = "LeadershipLost"


class BusyError(RetryableError):
    """Somebody else holds the thing; the message names the holder."""

    reason = "Busy"


class TerminalError(GpudeckError):
    """Repeating the call unchanged cannot help."""

    reason = "Failed"


class NotFoundError(TerminalError):
    """The object, card or file does not exist."""

    reason = "NotFound"


class AlreadyExistsError(TerminalError):
    """An object of that name exists already."""

    reason = "AlreadyExists"


_LONGEST = 200
"""Characters of a value that an error shows: it stands in conditions and Events."""
_BRIEF = reprlib.Repr()
"""What a few words of YAML make by its aliases has no end that could be waited for."""
_BRIEF.maxlevel, _BRIEF.maxdict, _BRIEF.maxlist = 4, 10, 10
_BRIEF.maxstring = _BRIEF.maxother = _BRIEF.maxlong = 2 * _LONGEST
_TOGETHER = 750
"""Characters of the refusals that are shown together: an Event takes 1024 in all (core v1)."""


class InvalidError(TerminalError):
    """Bad input. `field` is its path, `value` what was given, `allowed` what would do."""

    reason = "Invalid"

    def __init__(
        self, message: str, *, reason: str | None = None, field: str = "", allowed: str = ""
    ) -> None:
        super().__init__(message, reason=reason)
        self.field = field
        self.allowed = allowed

    def inside(self, where: str) -> InvalidError:
        """The same of a document that is one of several."""
        return InvalidError(
            f"{where}: {self.message}", reason=self.reason, field=self.field, allowed=self.allowed
        )


def first(group: BaseExceptionGroup[E]) -> E:
    """Return what went wrong first in a TaskGroup, whose tasks may have had groups of their own."""
    found = group.exceptions[0]
    return first(found) if isinstance(found, BaseExceptionGroup) else found


def not_valid(
    field: str, value: object, allowed: str, *, reason: str | None = None
) -> InvalidError:
    """The refusal of a value, in the words that all refusals have; a long one is cut."""
    said = "is missing" if value is None else f"{cut(_BRIEF.repr(value))} is not valid"
    return InvalidError(
        f"{field}: {said}; allowed: {allowed}",
        reason=reason,
        field=field,
        allowed=allowed,
    )


def cut(text: str, longest: int = _LONGEST) -> str:
    """The text, or of a long one its beginning."""
    return text if len(text) <= longest else f"{text[:longest]}…"


def together(found: Sequence[InvalidError]) -> InvalidError:
    """One error for all fields of a document that are wrong; its field is that of the first.

    Names as many of them as an Event can show, and says how many more there are.
    """
    first = found[0]
    said = list(dict.fromkeys(each.message for each in found))
    if len(said) == 1:
        return first
    return InvalidError(
        f"{len(said)} fields are wrong: {numbered(said)}",
        reason=first.reason,
        field=first.field,
        allowed=first.allowed,
    )


def numbered(said: Sequence[str]) -> str:
    """What there is to say, numbered if it is several things; as many as an Event can show."""
    if len(said) == 1:
        return said[0]
    shown: list[str] = []
    length = 0
    for number, each in enumerate(said, 1):
        length += len(each)
        if shown and length > _TOGETHER:
            shown.append(f"and {len(said) - len(shown)} more")
            break
        shown.append(f"({number}) {each}")
    return "; ".join(shown)


def listed(names: Iterable[str], most: int = 16) -> str:
    """Names for a sentence; of many the first, and how many more there are."""
    found = list(names)
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more


class ForbiddenError(TerminalError):
    """The caller is known but may not do this."""

    reason = "Forbidden"


class UnsupportedError(TerminalError):
    """The hardware, the driver or the server lacks the ability."""

    reason = "Unsupported"
