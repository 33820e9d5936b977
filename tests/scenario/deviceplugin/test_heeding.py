# SPDX-License-Identifier: Apache-2.0
"""Which troubles of a card take it from what the kubelet is shown, as an administrator decides."""

from __future__ import annotations

import pytest
from tests.scenario.deviceplugin.conftest import World

from gpudeck import errors
from gpudeck.deviceplugin import main
from gpudeck.vendors import contract
from gpudeck.vendors.nvidia import xids

GPU = "nvidia.com/gpu"


async def raised(world: World, number: int, xid: int) -> None:
    """The driver raises an Xid about a card."""
    world.bench.raise_event(number, xid, xids.fault(xid))


def sick(world: World) -> set[int]:
    """The cards that the kubelet is not to give to anybody."""
    found = world.kubelet.devices(GPU) or {}
    return {int(each[-2:]) for each, health in found.items() if health != "Healthy"}


async def start(world: World, disabled: str = "", enabled: str = "") -> None:
    world.changes = {
        "disable_health_checks": tuple(filter(None, disabled.split(","))),
        "enable_health_checks": tuple(filter(None, enabled.split(","))),
    }
    await world.start()
    await world.offers(gpu=4)


async def test_an_xid_that_is_passed_over_leaves_its_card_healthy(stopped: World) -> None:
    await start(stopped, "48")
    await raised(stopped, 1, 48)
    await raised(stopped, 2, 95)
    await stopped.offers(gpu=3)
    assert sick(stopped) == {2}


async def test_an_xid_of_an_application_counts_where_it_is_enabled(stopped: World) -> None:
    await start(stopped, "xids", "13")
    await raised(stopped, 1, 48)
    await raised(stopped, 0, 31)
    await raised(stopped, 3, 13)
    await stopped.offers(gpu=3)
    assert sick(stopped) == {3}


async def test_with_all_disabled_only_a_card_that_cannot_be_read_is_sick(stopped: World) -> None:
    await start(stopped, "all")
    fault = contract.Fault(reason="UncorrectableEcc", message="Errors.")
    stopped.bench.change_reading(0, faults=(fault,))
    await raised(stopped, 1, 79)
    stopped.bench.change_card(2, error=contract.Fault(reason="GpuLost", message="It is lost."))
    await stopped.offers(gpu=3)
    assert sick(stopped) == {2}


async def test_a_card_comes_back_when_its_xid_is_passed_over_from_now_on(stopped: World) -> None:
    await start(stopped)
    await raised(stopped, 1, 94)
    await raised(stopped, 1, 74)
    await stopped.offers(gpu=3)
    await stopped.end()
    stopped.changes = {}
    await stopped.start()
    await stopped.offers(gpu=3)
    await stopped.end()
    await start(stopped, "74")


async def test_a_word_that_means_nothing_ends_the_plugin_with_what_is_allowed(
    stopped: World,
) -> None:
    stopped.changes = {"disable_health_checks": ("48", "ecc")}
    with pytest.raises(errors.InvalidError, match="--disable-health-checks: 'ecc' is not valid"):
        await main.run(stopped.settings())
