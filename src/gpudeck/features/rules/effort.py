# SPDX-License-Identifier: Apache-2.0
"""How much work one rule may make of one node, counted in steps, so that it is the same anywhere.

Each part of a rule is bounded for itself, but a rule may have thousands of them, and a node
thousands of names: the sum is bounded here. `evaluating` opens an account for each rule, and
whoever works for it spends from it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from gpudeck.errors import InvalidError

RULE_STEPS = 1_000_000
"""About a second. A simple pattern and the 4,500 names of a kernel's configuration take 36,000."""
HURRIED_STEPS = 10_000
"""Some ten milliseconds; the rules of a GPU project take a tenth on a node with eight cards."""
_hurried: ContextVar[list[int] | None] = ContextVar("hurried", default=None)
_left: ContextVar[list[int] | None] = ContextVar("left", default=None)


@contextlib.contextmanager
def bounded(steps: int = RULE_STEPS) -> Iterator[None]:
    """Let what runs in the block spend so much; without a block there is no bound."""
    token = _left.set([steps])
    try:
        yield
    finally:
        _left.reset(token)


class NotSoonError(Exception):
    """What was begun in a hurry takes longer, and is to be done where it holds up nobody."""


@contextlib.contextmanager
def hurried() -> Iterator[None]:
    """Let all that runs in the block take a moment, whatever it is for. Raises NotSoonError."""
    token = _hurried.set([HURRIED_STEPS])
    try:
        yield
    finally:
        _hurried.reset(token)


def spend(steps: int) -> None:
    """Say what was done. InvalidError if the rule has done too much."""
    moment = _hurried.get()
    if moment is not None:
        moment[0] -= steps
        if moment[0] < 0:
            raise NotSoonError
    left = _left.get()
    if left is None:
        return
    left[0] -= steps
    if left[0] < 0:
        allowed = "simpler patterns and templates, or fewer names that they look at"
        raise InvalidError(f"it takes too long; allowed: {allowed}", allowed=allowed)
