# SPDX-License-Identifier: Apache-2.0
"""What a simulated machine is made of is found in its tree as features of a node."""

from pathlib import Path

import pytest

from gpudeck.features import labelling
from gpudeck.features.known import Known
from gpudeck.features.sources import reading
from gpudeck.host.root import Root
from gpudeck.lab import hosttree, machine, tree, tree_machine

PREFIX = "feature.node.kubernetes.io/"


def found(name: str, folder: Path) -> Known:
    below = hosttree.describe(machine.load(name), boot_id="0b7f2f5e-1c7d-4f55-9d39-5a1c0d5c8a01")
    plain = {path: entry for path, entry in below.items() if not isinstance(entry, tree.Device)}
    tree.apply(plain, folder)
    said = reading.read(Root(folder), reading.Wanted(tuple(reading.SOURCES)))
    assert said.left_out == ()
    return said.known


@pytest.mark.parametrize("name", machine.names())
def test_every_processor_is_known_by_model_and_has_its_own_package(name: str) -> None:
    host = machine.load(name)
    below = tree_machine.describe(host)
    cpuinfo = below["proc/cpuinfo"]
    assert isinstance(cpuinfo, tree.File)
    assert cpuinfo.content.decode().count("processor\t:") == sum(
        1 for path in below if path.endswith("/physical_package_id")
    )
    assert host.cpu.vendor == "ARM" or any(part in host.cpu.model for part in tree_machine.MODELS)


def test_a_training_host_has_the_labels_of_its_parts(tmp_path: Path) -> None:
    labels = labelling.labels(found("h100-x8", tmp_path), labelling.Choices(pci_fields=("vendor",)))
    wanted = {
        "cpu-model.vendor_id": "Intel",
        "cpu-model.family": "6",
        "cpu-model.id": "143",
        "cpu-model.hypervisor": "none",
        "cpu-cpuid.AVX512F": "true",
        "cpu-cpuid.AMXTILE": "true",
        "cpu-hardware_multithreading": "true",
        "kernel-config.NO_HZ": "true",
        "kernel-version.full": "5.15.0-1063-nvidia",
        "memory-numa": "true",
        "network-sriov.capable": "true",
        "storage-nonrotationaldisk": "true",
        "system-os_release.ID": "ubuntu",
        "custom-rdma.capable": "true",
        "custom-rdma.available": "true",
        "pci-10de.present": "true",
    }
    assert {f"{PREFIX}{name}": value for name, value in wanted.items()}.items() <= labels.items()


def test_interfaces_of_network_cards_are_devices_and_the_loopback_is_not(tmp_path: Path) -> None:
    known = found("h100-x8", tmp_path)
    cards = known.instances["network.device"]
    assert [each["name"] for each in cards] == [f"ib{index}" for index in range(8)]
    assert {each["sriov_totalvfs"] for each in cards} == {"16"}
    assert [each["name"] for each in known.instances["network.virtual"]] == ["lo"]


def test_an_arm_host_has_its_own_names(tmp_path: Path) -> None:
    known = found("gb10-x1", tmp_path)
    assert known.attributes["cpu.model"] == {
        "vendor_id": "ARM", "family": "8", "id": "3461", "hypervisor": "none",
    }  # fmt: skip
    assert "SVE2" in known.flags["cpu.cpuid"]
