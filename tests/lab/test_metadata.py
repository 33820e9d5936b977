# SPDX-License-Identifier: Apache-2.0
"""What a container and a claim's status say of the devices, against what the driver says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.lab import Lab, Object, claim, gpu_class, pod

CLASS = "told-part"
FOLDER = "/var/run/kubernetes.io/dra-device-attributes"
DATA = "/var/lib/kubelet/plugins/gpu.deckhouse.io/dra-device-metadata"
FILE = "gpu.deckhouse.io-metadata.json"
_UUID = re.compile(r"UUID: ((?:GPU|MIG)-[0-9a-f-]{36})")


@pytest.fixture
def told(lab: Lab) -> Iterator[Lab]:
    """A pod with a partition by a template and a card by a claim, a container for each."""
    spec = {"vendor": "nvidia", "devices": ["Partition"], "partition": {"profiles": ["1g.10gb"]}}
    wanted = claim("told-part", CLASS)
    template = {
        **wanted,
        "kind": "ResourceClaimTemplate",
        "spec": {"spec": wanted["spec"]},
    }
    lab.apply({**gpu_class(CLASS), "spec": spec}, template, claim("told-card", "h100"))
    lab.apply(two_containers("told"))
    lab.running("told")
    yield lab
    lab.delete("pod", "told")
    lab.kubectl("delete", "gpuclass", CLASS)
    lab.kubectl("delete", "resourceclaimtemplate", "told-part")


def two_containers(name: str) -> Object:
    claims = [
        {"name": "part", "resourceClaimTemplateName": "told-part"},
        {"name": "card", "resourceClaimName": "told-card"},
    ]
    made = pod(name, resourceClaims=claims)
    (main,) = made["spec"]["containers"]
    made["spec"]["containers"] = [
        {**main, "name": each, "resources": {"claims": [{"name": each}]}}
        for each in ("part", "card")
    ]
    return made


def inside(lab: Lab, name: str, container: str, *command: str) -> str:
    return lab.kubectl("exec", name, "-c", container, "--", *command)


def read(lab: Lab, name: str, container: str, place: str) -> Object:
    """The first object of a file, as a container reads it."""
    text = inside(lab, name, container, "cat", f"{FOLDER}/{place}/{FILE}")
    versions = [json.loads(line)["apiVersion"] for line in text.splitlines()]
    assert versions == [f"metadata.resource.k8s.io/{each}" for each in ("v1beta1", "v1alpha1")]
    found: Object = json.loads(text.splitlines()[0])
    return found


def attributes(found: Object) -> dict[str, Any]:
    """The values of the one device."""
    ((device,),) = [each["devices"] for each in found["requests"]]
    return {name: next(iter(each.values())) for name, each in device["attributes"].items()}


def listed(lab: Lab, name: str, container: str) -> list[str]:
    """The UUIDs that nvidia-smi -L prints there."""
    return _UUID.findall(inside(lab, name, container, "nvidia-smi", "-L"))


def statuses(lab: Lab, name: str) -> list[Object]:
    """What the claim's status says of its devices."""
    found = lab.get("resourceclaim", name)
    assert found is not None
    devices: list[Object] = found["status"].get("devices") or []
    return devices


def left(lab: Lab) -> str:
    """Every file of the kind on node-0."""
    look = f"ls -A {DATA}; ls -A /var/run/cdi | grep metadata || true"
    return lab.lab("shell", "node-0", "--", "sh", "-c", look)


def test_a_container_reads_which_devices_it_has_and_so_does_a_reader_of_its_claims(
    told: Lab,
) -> None:
    made = told.get("pod", "told")
    assert made is not None
    names = {
        each["name"]: each["resourceClaimName"] for each in made["status"]["resourceClaimStatuses"]
    }
    part = read(told, "told", "part", "resourceclaimtemplates/part/gpu")
    assert part["metadata"]["name"] == names["part"] != "told-part"
    assert part["podClaimName"] == "part"
    card = read(told, "told", "card", "resourceclaims/told-card/gpu")
    assert card["metadata"]["name"] == "told-card"
    assert listed(told, "told", "card") == [attributes(card)["uuid"]]
    mine = attributes(part)
    assert listed(told, "told", "part") == [mine["parentUUID"], mine["uuid"]]
    assert (mine["profile"], mine["type"]) == ("1g.10gb", "mig")

    for container, folder in (("part", "resourceclaims"), ("card", "resourceclaimtemplates")):
        with pytest.raises(AssertionError, match="No such file"):
            inside(told, "told", container, "ls", f"{FOLDER}/{folder}")
    overwriting = f"echo > {FOLDER}/resourceclaims/told-card/gpu/{FILE}"
    with pytest.raises(AssertionError, match="Read-only"):
        inside(told, "told", "card", "sh", "-c", overwriting)

    (entry,) = told.eventually("the claim says", lambda: statuses(told, names["part"]))
    conditions = {each["type"]: each["status"] for each in entry["conditions"]}
    assert conditions == {"Ready": "True", "Healthy": "True"}
    assert entry["data"]["uuid"] == mine["uuid"]
    assert entry["data"]["parentUUID"] == mine["parentUUID"]
    assert entry["data"]["profile"] == "1g.10gb"
    (entry,) = told.eventually("the claim says", lambda: statuses(told, "told-card"))
    assert entry["data"]["gpuUUID"] == attributes(card)["uuid"]

    told.delete("pod", "told")
    told.eventually("node-0 has no file left", lambda: not left(told).strip())
    told.eventually("the shared claim says nothing", lambda: not statuses(told, "told-card"))


def test_a_pod_that_names_an_extended_resource_finds_the_file_by_its_one_claim(lab: Lab) -> None:
    lab.apply(pod("plain", limits={"gpu.deckhouse.io/h100": 1}))
    lab.running("plain")
    (path,) = inside(
        lab, "plain", "main", "sh", "-c", f"ls {FOLDER}/resourceclaims/*/*/{FILE}"
    ).split()
    place = path.removeprefix(f"{FOLDER}/").removesuffix(f"/{FILE}")
    assert place.startswith("resourceclaims/plain-extended-resources-")
    found = read(lab, "plain", "main", place)
    assert lab.cards_inside("plain") == [attributes(found)["uuid"]]
