# SPDX-License-Identifier: Apache-2.0
"""Our own kinds, by the CRDs of the chart: what differs from built-in kinds."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from tests.support import expect

from gpudeck import errors
from gpudeck.api.meta import Meta
from gpudeck.api.resources import CUSTOM_RESOURCE_DEFINITION, PHYSICAL_GPU
from gpudeck.api.v1alpha1.physicalgpu import PhysicalGPU
from gpudeck.kube import client, watching

CRDS = Path(__file__).parents[3] / "charts" / "gpudeck" / "crds"


@pytest_asyncio.fixture(autouse=True)
async def _definitions(connection: client.Client) -> None:
    """Apply the CRDs and wait until the kinds are served."""
    for path in sorted(CRDS.glob("*.yaml")):
        body = yaml.safe_load(path.read_text())
        await connection.apply(CUSTOM_RESOURCE_DEFINITION, body, Meta, manager="test")

    async def is_served() -> bool:
        with contextlib.suppress(errors.NotFoundError):
            await connection.list(PHYSICAL_GPU, Meta)
            return True
        return False

    await expect.eventually(is_served, True)


def condition(type_: str, status: str) -> dict[str, str]:
    return {
        "type": type_, "status": status, "reason": "Tested", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip


async def report(
    connection: client.Client, name: str, manager: str, **status: Any
) -> dict[str, str]:
    """Apply a status and return the statuses of all conditions afterwards."""
    body = {"metadata": {"name": name}, "status": status}
    after = await connection.apply(
        PHYSICAL_GPU, body, PhysicalGPU, manager=manager, subresource="status"
    )
    found = (after.status.conditions if after.status else None) or []
    return {each.type: each.status for each in found}


async def test_a_status_in_the_main_write_is_ignored(
    connection: client.Client, unique: str
) -> None:
    body = {"metadata": {"name": unique}, "status": {"phase": "Ready"}}
    made = await connection.apply(PHYSICAL_GPU, body, PhysicalGPU, manager="first")
    assert made.status is None


async def test_each_manager_keeps_its_part_of_a_cards_status(
    connection: client.Client, unique: str
) -> None:
    meta = {"metadata": {"name": unique}}
    await connection.apply(PHYSICAL_GPU, meta, Meta, manager="agent")
    await report(
        connection, unique, "agent",
        nodeInfo={"nodeName": "node-0"}, conditions=[condition("Discovered", "True")],
    )  # fmt: skip
    await report(
        connection, unique, "adapter",
        capabilities={"vendor": "nvidia"}, conditions=[condition("DriverReady", "True")],
    )  # fmt: skip
    both = await report(
        connection, unique, "agent",
        nodeInfo={"nodeName": "node-0"}, conditions=[condition("Discovered", "False")],
    )  # fmt: skip
    assert both == {"Discovered": "False", "DriverReady": "True"}
    found = await connection.get(PHYSICAL_GPU, unique, PhysicalGPU)
    assert found.status is not None
    assert found.status.capabilities is not None
    assert found.status.capabilities.vendor == "nvidia"
    assert found.metadata.generation == 1


async def test_the_holders_of_a_card_are_replaced_by_their_one_owner(
    connection: client.Client, unique: str
) -> None:
    async def hold(*claims: str) -> list[str]:
        found = [
            {"namespace": "default", "name": name, "uid": f"uid-{name}", "device": "gpu-0",
             "shareID": "", "pods": [f"{name}-pod"]}
            for name in claims
        ]  # fmt: skip
        body = {"metadata": {"name": unique}, "status": {"occupancy": {"claims": found}}}
        after = await connection.apply(
            PHYSICAL_GPU, body, PhysicalGPU, manager="controller", subresource="status"
        )
        occupancy = after.status.occupancy if after.status else None
        return [each.name for each in (occupancy.claims if occupancy else None) or ()]

    await connection.apply(PHYSICAL_GPU, {"metadata": {"name": unique}}, Meta, manager="agent")
    assert await hold("one") == ["one"]
    assert await hold("one", "two") == ["one", "two"]
    assert await hold("two") == ["two"]


async def test_a_watch_from_before_the_kind_is_expired(
    connection: client.Client, unique: str
) -> None:
    await connection.apply(PHYSICAL_GPU, {"metadata": {"name": unique}}, Meta, manager="first")
    events = watching.stream(connection, client.path_of(PHYSICAL_GPU), {}, "1")
    with pytest.raises(errors.ExpiredError):
        await anext(events)
