# SPDX-License-Identifier: Apache-2.0
"""docs/reference/node-features.md says what the worker reads, no more and no less."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support.hostfiles import HostFiles

from gpudeck.features import labelling
from gpudeck.features.sources import reading
from gpudeck.features.templates import functions

PAGE = Path(__file__).parents[3] / "docs/reference/node-features.md"
FLAGS = (
    "fpu sgx tdx_guest rdt_a cat_l2 cat_l3 mba cqm cqm_llc cqm_occup_llc cqm_mbm_total "
    "cqm_mbm_local"
)
CPUS = "sys/devices/system/cpu"
FOLDERS: dict[str, dict[str, str]] = {
    f"{CPUS}/cpu0/topology": {"thread_siblings_list": "0,1", "physical_package_id": "0"},
    f"{CPUS}/cpu0/cpufreq": {"base_frequency": "2800000"},
    f"{CPUS}/cpuidle": {"current_driver": "intel_idle"},
    "sys/module/intel_idle/parameters": {"max_cstate": "9"},
    f"{CPUS}/intel_pstate": {"status": "active", "no_turbo": "0"},
    f"{CPUS}/cpufreq/policy0": {"affected_cpus": "0", "scaling_governor": "powersave"},
    "sys/fs/resctrl/info/L3": {"num_closids": "16"},
    "sys/devices/system/node/node0/x86": {"sgx_total_bytes": "1024"},
    "sys/devices/system/node/node1/x86": {"sgx_total_bytes": "1024"},
    "sys/firmware/uv": {"prot_virt_host": "1"},
    "sys/module/kvm_intel/parameters": {"tdx": "Y"},
    "sys/module/kvm_amd/parameters": {"sev": "1", "sev_es": "1", "sev_snp": "Y"},
    "sys/devices/faux/tdx_host": {"version": "1.5.24"},
    "sys/fs/cgroup": {"misc.capacity": "sev 9\nsev_es 8\ntdx 7"},
    "sys/devices/vio/ibm,compression-v1/nx_gzip_caps": {"x": "1"},
    "sys/fs/selinux": {"enforce": "1"},
    "sys/kernel/mm/hugepages/hugepages-2048kB": {"nr_hugepages": "4"},
    "sys/bus/nd/devices/dax0.0": {"devtype": "nd_dax", "mode": "devdax"},
    "sys/class/net/eth0": {"operstate": "up", "speed": "25000", "mtu": "9000"},
    "sys/class/net/eth0/device": {"sriov_numvfs": "2", "sriov_totalvfs": "8"},
    "sys/class/net/lo": {"operstate": "up", "speed": "10", "mtu": "1500"},
    "sys/bus/pci/devices/0000:1b:00.0": {
        "class": "0x030200", "vendor": "0x15b3", "device": "0x20b0", "subsystem_vendor": "0x1",
        "subsystem_device": "0x2", "sriov_totalvfs": "16", "iommu_group/type": "DMA",
        "iommu/intel-iommu/version": "1:0",
    },
    "sys/block/sda/queue": {"dax": "0", "nr_zones": "0", "rotational": "0", "zoned": "none"},
    "sys/bus/usb/devices/1-1": {
        "idVendor": "18d1", "idProduct": "9302", "bDeviceClass": "ff", "serial": "s",
    },
    "sys/devices/virtual/dmi/id": {"sys_vendor": "Maker", "product_name": "Model"},
    "proc": {
        "cpuinfo": "processor : 0\nvendor_id : GenuineIntel\ncpu family : 6\nmodel : 85\n"
        f"model name : A processor @ 2.30GHz\nflags : {FLAGS}\n",
        "sys/kernel/osrelease": "6.8.0-60-generic",
        "modules": "ib_uverbs 1 0 - Live 0x0\nrdma_ucm 1 0 - Live 0x0",
        "swaps": "Filename\n/swap",
    },
    "boot": {"config-6.8.0-60-generic": "CONFIG_NO_HZ=y"},
    "etc": {"os-release": 'ID=x\nVERSION_ID="24.04"'},
    "etc/kubernetes/node-feature-discovery/features.d": {"one": "example.com/a=1"},
}  # fmt: skip
"""A host that has everything, of whatever architecture."""


def rows(heading: str) -> list[list[str]]:
    """The cells of the table below a heading, without its head."""
    section = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def named(cell: str) -> list[str]:
    return re.findall(r"`([^`]*)`", cell)


def fits(name: str, documented: str) -> bool:
    """Whether a name is what a document says, in which `<...>` stands for anything."""
    return re.fullmatch(re.sub("<[^>]*>", ".+", re.escape(documented)), name) is not None


@pytest.fixture
def known(tmp_path: Path) -> reading.Reading:
    tree = HostFiles(tmp_path)
    for folder, values in FOLDERS.items():
        tree.values(folder, **values)
    wanted = reading.Wanted(tuple(labelling.SOURCES), node_name="node-0")
    found = reading.read(tree.root, wanted)
    assert (found.left_out, found.failed) == ((), ())
    return found


def test_all_features_and_their_elements_are_documented(known: reading.Reading) -> None:
    host = known.known
    found: dict[str, tuple[str, set[str]]] = {
        **{name: ("flag", set(flags)) for name, flags in host.flags.items()},
        **{name: ("attribute", set(values)) for name, values in host.attributes.items()},
        **{name: ("instance", {key for each in things for key in each})
           for name, things in host.instances.items()},
    }  # fmt: skip
    told = {named(row[0])[0]: (row[1], named(row[2])) for row in rows("Features")}
    assert told.pop("rule.matched")[0] == "attribute"
    assert {name: kind for name, (kind, _) in told.items()} == {
        name: kind for name, (kind, _) in found.items()
    }
    for name, (_, elements) in found.items():
        for element in elements:
            assert any(fits(element, each) for each in told[name][1]), (name, element)
        for each in told[name][1]:
            assert any(fits(element, each) for element in elements), (name, each)


def test_all_labels_are_documented(known: reading.Reading) -> None:
    found = labelling.labels(known.known, labelling.Choices())
    names = {each.removeprefix("feature.node.kubernetes.io/") for each in found}
    names.remove("example.com/a")
    told = [named(row[0])[0] for row in rows("Labels without a rule")]
    assert [name for name in names if not any(fits(name, each) for each in told)] == []
    assert [each for each in told if not any(fits(name, each) for name in names)] == []


def test_all_functions_of_templates_are_documented() -> None:
    told = [name for row in rows("Templates") for name in named(row[1])]
    assert sorted(told) == sorted(functions.KNOWN)
