# SPDX-License-Identifier: Apache-2.0
"""Opaque configuration: refused with its path, merged by precedence."""

from __future__ import annotations

import msgspec
import pytest

from gpudeck import errors
from gpudeck.api import deviceconfigs, resource


def problem(parameters: bytes, driver: str = "gpu.deckhouse.io") -> str:
    opaque = resource.OpaqueConfig(driver=driver, parameters=msgspec.Raw(parameters))
    try:
        deviceconfigs.check([(opaque, "status.allocation.devices.config[0]")])
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
    text = problem(b"{" + HEAD + b', "sharing": {"strategy": "Mps", "x": 2}, "shraing": 1}')
    assert f'{ROOT}.sharing.strategy: "Mps" is not valid; allowed: TimeSlicing or MPS' in text
    assert f"{ROOT}.sharing.x: 2 is not a field of sharing" in text
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


def given(source: str, requests: list[str], **fields: object) -> resource.AllocatedConfig:
    parameters = {"apiVersion": deviceconfigs.API_VERSION, "kind": "GpuConfig", **fields}
    opaque = resource.OpaqueConfig(
        driver="gpu.deckhouse.io", parameters=msgspec.Raw(msgspec.json.encode(parameters))
    )
    return resource.AllocatedConfig(source=source, requests=requests or None, opaque=opaque)


def test_a_claim_s_configuration_wins_over_the_class_s_field_by_field() -> None:
    configs = [
        given(
            "FromClass", [],
            sharing={"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}},
            memory={"enforce": "Report"},
        ),
        given("FromClaim", ["main"], sharing={"timeSlicingConfig": {"interval": "Short"}}),
        given("FromClaim", ["other"], memory={"enforce": "Driver"}),
    ]  # fmt: skip
    assert deviceconfigs.of_request(configs, "main/sub") == deviceconfigs.DeviceConfig(
        strategy="TimeSlicing", interval="Short", enforce="Report"
    )


def test_nvidia_s_own_configuration_is_taken() -> None:
    text = (
        b'{"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": '
        b'{"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 50}}}'
    )
    assert problem(text) == ""


def test_a_time_slice_is_not_for_mps() -> None:
    text = problem(
        b"{"
        + HEAD
        + b', "sharing": {"strategy": "MPS", "timeSlicingConfig": {"interval": "Short"}}}'
    )
    assert f"{ROOT}.sharing.timeSlicingConfig" in text
    assert "allowed: with strategy TimeSlicing only" in text
    assert problem(b"{" + HEAD + b', "sharing": {"strategy": "MPS"}}') == ""
