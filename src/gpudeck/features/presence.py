# SPDX-License-Identifier: Apache-2.0
"""Which NodeFeatures count for a node now, those that went a moment ago among them. Pure.

Times are the caller's, in seconds of one clock that only goes forward.
"""

from __future__ import annotations

import msgspec

from gpudeck.features.packing import PackedFeature, node_of


class _Held(msgspec.Struct):
    feature: PackedFeature
    until: float | None = None
    """When one that is gone ceases to count; None while it is there."""


class Presence:
    """Holds NodeFeatures by node; one that is gone counts for `absent_seconds` more."""

    def __init__(self, absent_seconds: float) -> None:
        self._absent_seconds = absent_seconds
        self._began = 0.0
        self._of: dict[str, dict[str, _Held]] = {}

    def begin(self, now: float) -> None:
        """Say that all that is there is known from now on."""
        self._began = now

    def patience(self, now: float) -> float | None:
        """How long nothing may be removed yet, as after a start; None if no longer."""
        left = self._began + self._absent_seconds - now
        return left if left > 0 else None

    def change(
        self, key: str, old: PackedFeature | None, new: PackedFeature | None, now: float
    ) -> set[str]:
        """Take a change and return the nodes it touches."""
        touched = set()
        if old is not None and (new is None or node_of(old) != node_of(new)):
            node = node_of(old)
            touched.add(node)
            if new is None and self._absent_seconds > 0:
                self._of[node][key].until = now + self._absent_seconds
            else:
                self._of[node].pop(key, None)
        if new is not None:
            touched.add(node_of(new))
            self._of.setdefault(node_of(new), {})[key] = _Held(new)
        return touched

    def of(self, node: str, now: float) -> tuple[list[PackedFeature], float | None]:
        """The NodeFeatures that count for a node, and after how many seconds to ask again."""
        held = self._of.get(node, {})
        for key in [key for key, each in held.items() if each.until and each.until <= now]:
            del held[key]
        if not held:
            self._of.pop(node, None)
        waits = [each.until - now for each in held.values() if each.until is not None]
        return [each.feature for each in held.values()], min(waits, default=None)
