# SPDX-License-Identifier: Apache-2.0
"""How often a resource is handed out, as the config file says it: values only."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping

import msgspec

from gpudeck.pluginconfig import model


class Strategy(enum.StrEnum):
    """The values of the label `sharing-strategy`."""

    NONE = "none"
    TIME_SLICING = "time-slicing"
    MPS = "mps"


_STRATEGIES = {
    model.Strategy.TIME_SLICING: Strategy.TIME_SLICING,
    model.Strategy.MPS: Strategy.MPS,
}


class Shared(msgspec.Struct, frozen=True):
    """One resource that is handed out several times."""

    name: str
    """Without the prefix: `gpu`, `mig-1g.10gb`."""
    replicas: int
    renamed: bool = False
    """It is offered under another name, so that its own name never means a part."""


class Sharing(msgspec.Struct, frozen=True):
    """All of a node."""

    strategy: Strategy = Strategy.NONE
    resources: tuple[Shared, ...] = ()

    def of(self, name: str) -> Shared | None:
        """Return how a resource is shared; None for one that is not."""
        for shared in self.resources:
            if shared.name == name and shared.replicas > 1:
                return shared
        return None

    def labelled(self, names: Mapping[str, Iterable[str]]) -> Sharing:
        """The same by what labels call resources; `names` are those that a config gives them."""
        found = []
        for label, resources in names.items():
            shared = next(filter(None, map(self.of, resources)), None)
            if shared is not None:
                found.append(msgspec.structs.replace(shared, name=label))
        return msgspec.structs.replace(self, resources=tuple(found))


def of_config(section: model.Sharing | None) -> Sharing:
    """Return what a config says. Where it shares only some devices, labels tell of those."""
    if section is None:
        return Sharing()
    return Sharing(
        strategy=_STRATEGIES[section.strategy],
        resources=tuple(
            Shared(
                name=each.name.removeprefix(model.PREFIX),
                replicas=each.replicas,
                renamed=section.rename_by_default or each.rename not in (None, each.name),
            )
            for each in section.resources
        ),
    )
