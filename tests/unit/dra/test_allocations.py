# SPDX-License-Identifier: Apache-2.0
"""From claims to devices, and from configuration to refusals."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpudeck import errors
from gpudeck.api import resource
from gpudeck.dra import allocations, configs

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
    assert (found.is_exclusive, found.share_id) == (False, "s")


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


def problem(parameters: bytes, driver: str = "gpu.deckhouse.io") -> str:
    opaque = resource.OpaqueConfig(driver=driver, parameters=msgspec.Raw(parameters))
    try:
        configs.check([resource.AllocatedConfig(source="FromClaim", opaque=opaque)])
    except errors.InvalidError as error:
        return str(error)
    return ""


ROOT = "status.allocation.devices.config[0].opaque.parameters"
HEAD = b'"apiVersion": "resource.gpu.deckhouse.io/v1alpha1", "kind": "GpuConfig"'


def test_a_plain_gpu_config_is_accepted() -> None:
    assert problem(b"{" + HEAD + b"}") == ""


def test_configuration_of_other_drivers_is_not_looked_at() -> None:
    assert problem(b'{"kind": "Anything"}', "nic.example.com") == ""


def test_every_unknown_field_is_named_at_once() -> None:
    text = problem(b"{" + HEAD + b', "sharing": {"strategy": "MPS"}, "shraing": 1}')
    assert f'{ROOT}.sharing: {{"strategy":"MPS"}} is not a field of GpuConfig' in text
    assert f"{ROOT}.shraing: 1 is not a field of GpuConfig" in text


@pytest.mark.parametrize(
    ("parameters", "part"),
    [
        (b'{"kind": "GpuConfig"}', f"{ROOT}.apiVersion: null is not valid; allowed: resource.gpu"),
        (b'{"kind": "GpuConfg"}', f'{ROOT}.kind: "GpuConfg" is not valid; allowed: GpuConfig'),
        (b"[]", f"{ROOT}: [] is not valid; allowed: an object"),
        (b"null", f"{ROOT}: null is not valid"),
        (b'{"kind": ["GpuConfig"]}', f"{ROOT}.kind"),
    ],
)
def test_a_wrong_head_is_refused_with_what_is_allowed(parameters: bytes, part: str) -> None:
    assert part in problem(parameters)
