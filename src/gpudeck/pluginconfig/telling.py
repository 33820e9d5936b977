# SPDX-License-Identifier: Apache-2.0
"""Tells a process, and its log, which config holds: each once while it does."""

from __future__ import annotations

from collections.abc import Callable

from gpudeck import logs
from gpudeck.pluginconfig import selecting

log = logs.get(__name__)

Show = Callable[[selecting.Selected], None]


class Telling:
    """What holds, for those that choose it."""

    def __init__(self, show: Show) -> None:
        self._show = show
        self.selected: selecting.Selected | None = None

    def use(self, selected: selecting.Selected) -> None:
        """This one holds now, or why another was not taken has changed."""
        if selected == self.selected:
            return
        if selected.problem is not None:
            log.warning(
                "The config is not used",
                kept=selected.name or "none",
                reason=selected.problem.reason,
                error=selected.problem.message,
            )
        else:
            log.info("Using config", config=selected.name or "none", origin=selected.origin)
        self.selected = selected
        self._show(selected)
