# SPDX-License-Identifier: Apache-2.0
"""From claims to devices, and from configuration to refusals."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpudeck import errors
from gpudeck.api import resource
from gpudeck.dra import allocations

CLAIM = allocations.Reference("u1", "t", "c")


def claim(*results: dict[str, Any], uid: str = "u1") -> resource.ResourceClaim:
    return msgspec.convert(
        {
            "metadata": {"name": "c", "namespace": "t", "uid": uid},
            "status": {"allocation": {"devices": {"results": list(results)}}},
        },
        resource.ResourceClaim,
    )


def result(**changes: Any) -> dict[str, Any]:
    ours = {"request": "r", "driver": "gpu.deckhouse.io", "pool": "n", "device": "gpu-a"}
    return {**ours, **changes}


def test_only_results_of_our_driver_count_and_in_their_order() -> None:
    found = allocations.devices(
        claim(result(device="b"), result(driver="nic.example.com"), result(device="a")), CLAIM, "n"
    )
    assert [each.name for each in found] == ["b", "a"]


def test_a_subrequest_is_known_by_its_main_request() -> None:
    (found,) = allocations.devices(claim(result(request="main/small")), CLAIM, "n")
    assert found.requests == ["main"]


def test_admin_access_and_shares_are_remembered() -> None:
    (found,) = allocations.devices(claim(result(adminAccess=True, shareID="s")), CLAIM, "n")
    assert (found.admin_access, found.share_id, found.key) == (True, "s", "gpu-a-s")


def test_another_claim_of_the_same_name_is_refused() -> None:
    with pytest.raises(errors.ConflictError, match="UID u2, not u1"):
        allocations.devices(claim(result(), uid="u2"), CLAIM, "n")


def test_a_claim_that_is_not_allocated_may_be_so_later() -> None:
    with pytest.raises(errors.RetryableError, match="not allocated"):
        allocations.devices(
            msgspec.convert({"metadata": {"uid": "u1"}}, resource.ResourceClaim), CLAIM, "n"
        )


def test_a_device_of_another_nodes_pool_is_refused() -> None:
    with pytest.raises(errors.InvalidError, match="pool 'm'; allowed on this node: 'n'"):
        allocations.devices(claim(result(pool="m")), CLAIM, "n")


CARD, SHARE = "gpu-0000-1b-00-0", "share-0000-1b-00-0"
SMALL, LARGE = "mig-0000-1b-00-0-1g10gb-19-3", "mig-0000-1b-00-0-3g40gb-9-0"


def held(name: str, size: int | None = None, **changes: Any) -> allocations.HeldDevice:
    return allocations.HeldDevice(name=name, size=size, **changes)


@pytest.mark.parametrize(
    ("mine", "theirs", "excludes"),
    [
        (held(CARD), held(CARD), True),
        (held(CARD), held("gpu-0000-1c-00-0"), False),
        (held(CARD), held(SMALL, 1), True),
        (held(CARD), held(SHARE, share_id="a"), True),
        (held(SHARE, share_id="a"), held(SHARE, share_id="b"), False),
        (held(SHARE, share_id="a"), held(f"{SHARE}-mps", share_id="b"), True),
        (held(SHARE, share_id="a"), held(SMALL, 1), True),
        (held(SMALL, 1), held(SMALL, 1), True),
        (held(SMALL, 1), held(LARGE, 4), True),
        (held("mig-0000-1b-00-0-1g10gb-19-4", 1), held(LARGE, 4), False),
        (held("mig-0000-1c-00-0-1g10gb-19-3", 1), held(LARGE, 4), False),
        (held(CARD, admin_access=True), held(CARD), False),
        (held(SMALL, 1, admin_access=True), held(LARGE, 4), False),
    ],
)
def test_what_excludes_what_on_a_card(
    mine: allocations.HeldDevice, theirs: allocations.HeldDevice, excludes: bool
) -> None:
    assert (mine.excludes(theirs), theirs.excludes(mine)) == (excludes, excludes)


@pytest.mark.parametrize(
    ("device", "is_made"),
    [
        (held(CARD), False),
        (held(SHARE, share_id="a"), False),
        (held(f"{SHARE}-mps", share_id="a"), True),
        (held(SMALL, 1), True),
        (held(SMALL, 1, admin_access=True), False),
    ],
)
def test_what_the_adapter_has_to_undo(device: allocations.HeldDevice, is_made: bool) -> None:
    assert device.is_made is is_made


def test_two_shares_of_one_device_in_one_claim_have_keys_of_their_own() -> None:
    found = allocations.devices(
        claim(result(device=SHARE, shareID="a"), result(device=SHARE, shareID="b")), CLAIM, "n"
    )
    assert [each.key for each in found] == [f"{SHARE}-a", f"{SHARE}-b"]


def test_an_allocation_is_the_same_when_it_has_the_same_devices_for_the_same_requests() -> None:
    first = [held("gpu-a", requests=["r0"]), held("gpu-b", requests=["r1"])]
    swapped = [held("gpu-a", requests=["r1"]), held("gpu-b", requests=["r0"])]
    found = [held("gpu-b"), held("gpu-a")]
    assert allocations.same(first, first[::-1])
    assert allocations.same(found, first)
    assert not allocations.same(first, swapped)
    assert not allocations.same(first, first[:1])
    assert not allocations.same(first, [held("gpu-a", requests=["r0"], admin_access=True)])
