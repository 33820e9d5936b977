# SPDX-License-Identifier: Apache-2.0
"""Objects of resource.k8s.io as the API server sends them."""

from __future__ import annotations

import msgspec

from gpudeck.api.resource import DeviceClass, ResourceClaim


def test_parameters_of_a_driver_are_kept_as_they_are() -> None:
    text = b'{"spec":{"config":[{"opaque":{"driver":"d","parameters":{"a":[1,{"b":2}]}}}]}}'
    found = msgspec.json.decode(text, type=DeviceClass)
    assert (
        msgspec.json.decode(msgspec.json.encode(found))["spec"] == msgspec.json.decode(text)["spec"]
    )


def test_what_is_not_given_is_not_sent() -> None:
    text = b'{"spec":{"config":[{"opaque":{"driver":"d"}}]}}'
    found = msgspec.json.decode(text, type=DeviceClass)
    (config,) = msgspec.json.decode(msgspec.json.encode(found))["spec"]["config"]
    assert config == {"opaque": {"driver": "d"}}


def test_the_data_of_a_claim_is_decoded_only_by_who_reads_it() -> None:
    text = b'{"status":{"devices":[{"driver":"d","pool":"p","device":"x","data":{"a":1}}]}}'
    found = msgspec.json.decode(text, type=ResourceClaim)
    assert found.status is not None
    (device,) = found.status.devices or ()
    assert isinstance(device.data, msgspec.Raw)
    assert msgspec.json.decode(device.data) == {"a": 1}
