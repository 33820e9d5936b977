# SPDX-License-Identifier: Apache-2.0
"""No test leaves a gRPC server or channel open.

Who does not end it leaves that to Python, which may find it in another test, when its loop is
closed and nobody is left to end it: gRPC waits for it then without a limit.
"""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Generator
from typing import Any

import pytest
from grpc.aio import _channel, _server

_open: dict[int, str] = {}
"""Where each server that runs, and each channel that is open, was made."""

_numbers = itertools.count()


def _follow(kind: type[Any], ends: str) -> None:
    """Keep in `_open` each `kind` of which `ends` has not been awaited to its end."""
    make, end = kind.__init__, getattr(kind, ends)

    def made(self: Any, *args: Any, **more: Any) -> None:
        make(self, *args, **more)
        self._number = next(_numbers)
        _open[self._number] = "".join(traceback.format_stack(limit=6)[:-1])

    async def ended(self: Any, *args: Any, **more: Any) -> None:
        await end(self, *args, **more)
        _open.pop(self._number, None)

    kind.__init__ = made  # type: ignore[misc]
    setattr(kind, ends, ended)


_follow(_server.Server, "stop")
_follow(_channel.Channel, "_close")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown() -> Generator[None, Any, Any]:
    result = yield
    left = list(_open.values())
    _open.clear()
    assert not left, "left open, made at\n" + "\n".join(left)
    return result
