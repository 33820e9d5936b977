# SPDX-License-Identifier: Apache-2.0
"""What containers are told of their devices, and where."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.scenario.dra import standins

from gpudeck import errors
from gpudeck.api import attributes, resource
from gpudeck.api.meta import ObjectMeta
from gpudeck.dra import metadata, offering
from gpudeck.dra.allocations import HeldDevice, Reference
from gpudeck.dra.checkpoint import Given, Metadata

CLAIM = Reference("u1", "t", "c")
CARD = standins.partitionable(1)


def held(name: str = standins.device(1), request: str = "r", **more: Any) -> HeldDevice:
    return HeldDevice(name=name, pool="n", requests=[request], **more)


def described(device: HeldDevice, uuid: str = "") -> dict[str, resource.Attribute]:
    given = {device.key: Given(uuid=uuid)}
    return metadata.describe([device], lambda _: CARD, given, "nvidia")[device.key]


def decoded(content: bytes) -> list[dict[str, Any]]:
    """The objects of a stream, read as any JSON reader does: one after the other."""
    text, found, place = content.decode(), [], 0
    while text[place:].strip():
        value, end = json.JSONDecoder().raw_decode(text[place:])
        found.append(value)
        place += end + len(text[place + end :]) - len(text[place + end :].lstrip())
    return found


def test_a_whole_card_is_told_as_it_is_published_and_how_much_memory_it_has() -> None:
    (published,) = offering.offer([standins.card(1)], offering.Rules(vendor="nvidia")).devices
    found = described(held(), CARD.uuid)
    assert found.pop(attributes.MEMORY).int_ == 80 << 30
    assert found == published.attributes


def test_a_partition_is_told_with_the_uuid_that_it_got_and_its_profile() -> None:
    found = described(held(standins.partition(1, 2)), "MIG-1")
    assert found[attributes.UUID].string == "MIG-1"
    assert found[attributes.PROFILE].string == "1g.20gb"
    assert found[attributes.PARENT_UUID].string == CARD.uuid
    assert found[attributes.MEMORY].int_ == 20 << 30


def test_a_share_is_told_with_the_amounts_agreed_on() -> None:
    share = held("share-0000-11-00-0", share_id="s", memory=8 << 30, cores=25)
    found = described(share, CARD.uuid)
    assert (found[attributes.MEMORY].int_, found[attributes.CORES].int_) == (8 << 30, 25)
    assert found[attributes.UUID].string == found[attributes.PARENT_UUID].string == CARD.uuid


def test_a_share_without_an_agreed_amount_does_not_claim_the_whole_card() -> None:
    assert attributes.MEMORY not in described(held("share-0000-11-00-0", share_id="s"))


def test_a_card_that_nobody_sees_any_more_is_told_by_its_uuid_alone() -> None:
    found = metadata.describe([held()], lambda _: None, {held().key: Given(uuid="GPU-1")}, "x")
    assert found == {held().key: {"uuid": resource.Attribute(string="GPU-1")}}


def test_a_file_is_a_stream_of_the_same_object_in_both_versions_newest_first() -> None:
    told = Metadata(
        pod_claim_name="mine", attributes={held().key: {"type": resource.Attribute(string="gpu")}}
    )
    content = metadata.files(CLAIM, [held()], told)["r"]
    beta, alpha = decoded(content)
    assert beta == {
        "apiVersion": "metadata.resource.k8s.io/v1beta1",
        "kind": "DeviceMetadata",
        "metadata": {"name": "c", "namespace": "t", "uid": "u1", "generation": 1},
        "podClaimName": "mine",
        "requests": [
            {
                "name": "r",
                "devices": [
                    {
                        "driver": "gpu.deckhouse.io",
                        "pool": "n",
                        "name": standins.device(1),
                        "attributes": {"type": {"string": "gpu"}},
                    }
                ],
            }
        ],
    }
    assert alpha == {**beta, "apiVersion": "metadata.resource.k8s.io/v1alpha1"}
    assert content == metadata.files(CLAIM, [held()], told)["r"]


def test_an_alternative_is_named_after_its_request_and_filed_under_the_request() -> None:
    found = metadata.files(CLAIM, [held(request="main", subrequest="big")], Metadata())
    assert list(found) == ["main"]
    assert decoded(found["main"])[0]["requests"][0]["name"] == "main/big"
    assert metadata.path_in_container(CLAIM, "main", None).endswith(
        "/resourceclaims/c/main/gpu.deckhouse.io-metadata.json"
    )


def test_each_request_has_a_file_with_its_own_devices() -> None:
    devices = [held("gpu-a", "x"), held("gpu-b", "y"), held("gpu-c", "x")]
    found = metadata.files(CLAIM, devices, Metadata())
    told = {name: decoded(content)[0]["requests"] for name, content in found.items()}
    assert {
        name: [each["name"] for one in told[name] for each in one["devices"]] for name in told
    } == {"x": ["gpu-a", "gpu-c"], "y": ["gpu-b"]}


def test_a_claim_of_a_template_is_found_by_the_name_that_its_pod_gives_it() -> None:
    assert metadata.path_in_container(CLAIM, "r", "mine") == (
        "/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/mine/r/"
        "gpu.deckhouse.io-metadata.json"
    )


@pytest.mark.parametrize("text", ["../../etc", "a/b", "A", "x" * 64, "-a", "a\n"])
def test_text_that_is_no_name_never_becomes_a_path(text: str) -> None:
    meta = ObjectMeta(annotations={metadata.POD_CLAIM_NAME: text})
    with pytest.raises(errors.InvalidError, match="cannot be part of a path; allowed") as caught:
        metadata.pod_claim_name(resource.ResourceClaim(metadata=meta))
    assert caught.value.field == "metadata.annotations[resource.kubernetes.io/pod-claim-name]"
    with pytest.raises(errors.InvalidError):
        metadata.check(CLAIM, [held(request=text)])


@pytest.mark.parametrize("name", ["..", "a/b", "a" * 254, ""])
def test_a_claim_of_an_impossible_name_or_uid_is_refused(name: str) -> None:
    with pytest.raises(errors.InvalidError, match=r"metadata\.name"):
        metadata.check(Reference("u1", "t", name), [])
    with pytest.raises(errors.InvalidError, match=r"metadata\.uid"):
        metadata.check(Reference(name, "t", "c"), [])


def test_the_longest_names_that_the_api_server_takes_are_allowed() -> None:
    metadata.check(Reference("u1", "t", "a" * 253), [held(request="r" * 63)])


def test_a_claim_without_the_annotation_has_no_name_in_its_pod() -> None:
    assert metadata.pod_claim_name(resource.ResourceClaim()) is None
