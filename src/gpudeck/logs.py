# SPDX-License-Identifier: Apache-2.0
"""Log lines: a constant message, then key=value pairs; one line an event, on stderr.

Every process calls `configure` once. `get` returns an adapter whose keyword
arguments become the pairs: `log.info("Published resource slices", devices=8)`.
Values that hold blanks or quotes are quoted, so a line stays one line.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Mapping, MutableMapping
from typing import Any

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@+%,*[]")
_PASSED_ON = ("exc_info", "stack_info", "stacklevel")


def configure(level: str = "info") -> None:
    """Send log lines of `level` (debug, info, warning, error) and above to stderr."""
    stream = logging.StreamHandler(sys.stderr)
    stream.setFormatter(
        logging.Formatter("%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")
    )
    logging.Formatter.converter = time.gmtime
    root = logging.getLogger("gpudeck")
    root.handlers[:] = [stream]
    root.propagate = False
    root.setLevel(level.upper())


def render(pairs: Mapping[str, object]) -> str:
    """Return `a=1 b="two words"`; anything but plain characters is JSON-quoted."""
    return " ".join(f"{key}={_quote(value)}" for key, value in pairs.items() if value is not None)


def _quote(value: object) -> str:
    text = str(value)
    return text if text and _PLAIN.issuperset(text) else json.dumps(text, ensure_ascii=False)


class Log(logging.LoggerAdapter[logging.Logger]):
    """A logger whose extra keyword arguments are the line's key=value pairs."""

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        passed = {key: kwargs.pop(key) for key in _PASSED_ON if key in kwargs}
        pairs = render({**(self.extra or {}), **kwargs})
        return (f"{msg} {pairs}" if pairs else msg), passed

    def bind(self, **pairs: object) -> Log:
        """Return a log that adds `pairs` to every line."""
        return Log(self.logger, {**(self.extra or {}), **pairs})


def get(name: str, **pairs: object) -> Log:
    """Return the log of a part, e.g. `logs.get(__name__)`."""
    return Log(logging.getLogger(name), pairs)
