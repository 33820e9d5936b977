# SPDX-License-Identifier: Apache-2.0
"""YAML as people write it into ConfigMaps and files: read, or refused for what is wrong with it.

Called by every reader of such a text, which says what the text is called. A text never ends a
process: PyYAML 6 itself recurses as deeply as a text is nested, and lets whatever Python raises
through for a day that no month has, a number of thousands of digits, or a word with the tag of
a number. A key that stands twice is refused, for the first one would do nothing. `1:0` is a
text, as with Kubernetes' own reader, and not the number 60 of YAML 1.1.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import yaml

from gpudeck import errors

DEPTH = 64
"""Far more levels than any of our documents has."""
NODES = 100_000
"""Far more values than any of our documents has that uses aliases."""
BITS = 128
"""Of a number. Python does not write out what is far larger, not even to refuse it."""
_HALVES = re.compile("[\ud800-\udfff]")
"""No JSON can carry them: a refusal with one could not be said."""


class _Loader(yaml.SafeLoader):
    """The safe loader, but for what is nested too deeply, keys that stand twice, and aliases.

    Of those it refuses what stands in itself, and what grows without measure as it is read.
    """

    def __init__(self, text: str | bytes) -> None:
        super().__init__(text)
        self._depth = 0
        self._nodes = 0
        """Those before the one that is read, with each alias written out."""
        self._sizes: dict[str, int] = {}
        """So many nodes stand behind a name, once they have been read."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        # Its stub has no types.
        event: yaml.NodeEvent = self.peek_event()  # type: ignore[no-untyped-call]
        self._depth += 1
        self._nodes += 1
        if self._depth > DEPTH:
            raise _refusal(f"it is nested more deeply than {DEPTH} levels", parent)
        name = event.anchor or ""
        if isinstance(event, yaml.AliasEvent):
            if name in self.anchors and name not in self._sizes:
                raise _refusal(f"*{name} stands in what it is the name of", parent)
            self._nodes += self._sizes.get(name, 0)
            if self._nodes > NODES:
                raise _refusal(f"with its aliases it has more than {NODES} values", parent)
        before = self._nodes
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1
            self._sizes.setdefault(name, self._nodes - before + 1)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in seen:
                    raise _refusal(f"the key {key.value!r} stands twice", key)
                seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        text = super().construct_scalar(node)
        if isinstance(text, str) and not text.isascii() and _HALVES.search(text):
            raise _refusal("half a character", node)
        return text

    def whole(self, node: yaml.ScalarNode) -> int | str:
        if ":" in node.value:
            return str(node.value)
        number = int(self.construct_yaml_int(node))
        if number.bit_length() > BITS:
            raise _refusal(f"a number of {number.bit_length()} bits", node)
        return number

    def fraction(self, node: yaml.ScalarNode) -> float | str:
        return str(node.value) if ":" in node.value else float(self.construct_yaml_float(node))


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.whole)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.fraction)


def _refusal(text: str, place: yaml.Node | None) -> yaml.YAMLError:
    mark = place.start_mark if place is not None else None
    return yaml.MarkedYAMLError(problem=text, problem_mark=mark)


def refused(error: yaml.YAMLError, name: str, *, reason: str | None = None) -> errors.InvalidError:
    """The refusal of a text of that name: what is wrong with it, and where, in one line."""
    allowed = "a YAML document"
    return errors.InvalidError(
        f"{name}: {errors.cut(_shown(error))}; allowed: {allowed}",
        reason=reason,
        field=name,
        allowed=allowed,
    )


def _shown(error: yaml.YAMLError) -> str:
    found = str(error)
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        place = f"line {error.problem_mark.line + 1}, column {error.problem_mark.column + 1}"
        found = f"{place}: {' '.join(filter(None, (error.context, error.problem)))}"
    return " ".join(found.split())


def load(text: str | bytes) -> Any:
    """The one document of a text. Raises yaml.YAMLError, and nothing else."""
    try:
        return yaml.load(text, _Loader)
    except (ValueError, TypeError, OverflowError, LookupError, AttributeError) as error:
        raise yaml.YAMLError(str(error)) from error


def read(text: str | bytes, name: str, *, reason: str | None = None) -> Any:
    """The one document of a text. Raises InvalidError that calls the text by `name`."""
    try:
        return load(text)
    except yaml.YAMLError as error:
        raise refused(error, name, reason=reason) from error
