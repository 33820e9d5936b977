# SPDX-License-Identifier: Apache-2.0
"""What is cached holds nothing of the message that it came in."""

from __future__ import annotations

import gc

import msgspec

from gpudeck.api.core import Pod
from gpudeck.api.resource import DeviceClass, ResourceClaim
from gpudeck.kube import detaching


def test_a_type_without_raw_fields_needs_nothing() -> None:
    assert detaching.plan(Pod) is None


def test_a_raw_field_keeps_its_content_and_lets_the_message_go() -> None:
    message = msgspec.json.encode(
        {
            "metadata": {"name": "x", "annotations": {"padding": "y" * 100_000}},
            "spec": {"config": [{"opaque": {"driver": "d", "parameters": {"kind": "K"}}}]},
        }
    )
    found = msgspec.json.decode(message, type=DeviceClass)
    detach = detaching.plan(DeviceClass)
    assert detach is not None
    detach(found)
    assert found.spec is not None
    assert found.spec.config is not None
    opaque = found.spec.config[0].opaque
    assert opaque is not None
    assert isinstance(opaque.parameters, msgspec.Raw)
    assert bytes(opaque.parameters) == b'{"kind":"K"}'
    assert not [each for each in gc.get_referrers(message) if isinstance(each, msgspec.Raw)]


def test_claims_have_raw_fields_in_their_status() -> None:
    assert detaching.plan(ResourceClaim) is not None
