# SPDX-License-Identifier: Apache-2.0
"""Sources of features, each on a small host tree, the odd attributes included."""

from __future__ import annotations

import datetime
import gzip
from pathlib import Path

import pytest

from gpudeck.features.known import Known
from gpudeck.features.sources import (
    cpu,
    kernel,
    local,
    memory,
    network,
    pci,
    reading,
    storage,
    system,
    usb,
)
from gpudeck.host.root import Root

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


class Tree:
    """A host tree below a temporary folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.root = Root(path)

    def write(self, path: str, content: str | bytes) -> None:
        target = self.path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())

    def values(self, folder: str, **values: str) -> None:
        for name, value in values.items():
            self.write(f"{folder}/{name}", value + "\n")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_interfaces_without_a_readable_speed_stay(tree: Tree) -> None:
    net = "sys/class/net"
    tree.values(f"{net}/eth0", speed="25000", operstate="up", mtu="9000")
    tree.values(f"{net}/eth0/device", sriov_totalvfs="8", sriov_numvfs="0")
    tree.values(f"{net}/ifb0", operstate="down")
    tree.values(f"{net}/dn0", speed="-1")
    tree.write(f"{net}/bonding_masters", "")
    known = Known()
    assert network.read(tree.root, known) == []
    assert known.instances["network.device"] == [
        {
            "name": "eth0",
            "operstate": "up",
            "speed": "25000",
            "mtu": "9000",
            "sriov_numvfs": "0",
            "sriov_totalvfs": "8",
        }
    ]
    assert [each["name"] for each in known.instances["network.virtual"]] == ["dn0", "ifb0"]


def test_one_sick_device_of_the_bus_costs_itself(tree: Tree) -> None:
    bus = "sys/bus/pci/devices"
    tree.values(f"{bus}/0000:1b:00.0", **{"class": "0x030200"}, vendor="0x10de", device="0x20b0",
                subsystem_vendor="0x10de", sriov_totalvfs="16")  # fmt: skip
    tree.values(f"{bus}/0000:43:00.0", **{"class": "0x030200"}, vendor="0x10de", device="0x20b0")
    (tree.path / bus / "0000:44:00.0/class").mkdir(parents=True)
    tree.values(f"{bus}/0000:44:00.0", vendor="0x10de", device="0x20b0")
    known = Known()
    left_out = pci.read(tree.root, known)
    assert [each.split(": ")[0] for each in left_out] == ["0000:44:00.0"]
    assert known.instances["pci.device"] == [
        {
            "class": "0302",
            "vendor": "10de",
            "device": "20b0",
            "subsystem_vendor": "10de",
            "sriov_totalvfs": "16",
        },
        {"class": "0302", "vendor": "10de", "device": "20b0"},
    ]


def test_a_source_that_fails_keeps_what_it_gave_before(tree: Tree) -> None:
    tree.values("sys/bus/pci/devices/0000:1b:00.0", **{"class": "0x030200"}, vendor="0x10de",
                device="0x20b0")  # fmt: skip
    before = reading.read(tree.root, reading.Wanted({"pci", "usb"}))
    (tree.path / "sys/bus").rename(tree.path / "sys/gone")
    now = reading.read(tree.root, reading.Wanted({"pci", "usb"}))
    assert now.failed == ("pci",)
    assert reading.keep_failed(now, before).instances == before.known.instances
    assert "pci.device" not in reading.keep_failed(now, None).instances


def test_usb_devices_have_the_classes_of_their_interfaces(tree: Tree) -> None:
    bus = "sys/bus/usb/devices"
    tree.values(f"{bus}/1-1", idVendor="18d1", idProduct="9302", bDeviceClass="00", serial="s1")
    tree.values(f"{bus}/1-1/1-1:1.0", bInterfaceClass="ff")
    tree.values(f"{bus}/1-1/1-1:1.1", bInterfaceClass="0e")
    tree.values(f"{bus}/1-2", idVendor="1d6b", idProduct="0002", bDeviceClass="09")
    tree.values(f"{bus}/1-1:1.0", bInterfaceClass="ff")
    known = Known()
    usb.read(tree.root, known)
    assert [(each["class"], each["vendor"]) for each in known.instances["usb.device"]] == [
        ("0e", "18d1"),
        ("ff", "18d1"),
        ("09", "1d6b"),
    ]


def test_the_kernel_says_version_options_and_modules(tree: Tree) -> None:
    tree.write("proc/sys/kernel/osrelease", "6.8.0-60-generic\n")
    tree.write("proc/modules", "nvidia 1 0 - Live 0x0\nnvidia_uvm 1 0 - Live 0x0\n")
    tree.write("lib/modules/6.8.0-60-generic/modules.builtin", "kernel/drivers/vfio/vfio-pci.ko\n")
    config = (
        b'CONFIG_X86=y\n# CONFIG_A is not set\nCONFIG_VFIO=m\nCONFIG_LOCALVERSION=""\nCONFIG_N=4\n'
    )
    tree.write("proc/config.gz", gzip.compress(config))
    tree.write("sys/fs/selinux/enforce", "1")
    known = Known()
    assert kernel.read(tree.root, known) == []
    assert known.attributes["kernel.version"] == {
        "full": "6.8.0-60-generic",
        "major": "6",
        "minor": "8",
        "revision": "0",
    }
    assert known.attributes["kernel.config"] == {
        "X86": "y",
        "VFIO": "m",
        "LOCALVERSION": "",
        "N": "4",
    }
    assert known.flags["kernel.loadedmodule"] == {"nvidia", "nvidia_uvm"}
    assert known.flags["kernel.enabledmodule"] == {
        "nvidia",
        "nvidia_uvm",
        "vfio-pci",
        "vfio_pci",
    }
    assert known.attributes["kernel.selinux"] == {"enabled": "true"}


def test_a_chosen_configuration_of_the_kernel_is_the_only_one(tree: Tree) -> None:
    tree.write("proc/sys/kernel/osrelease", "6.8.0\n")
    tree.write("boot/config-6.8.0", "CONFIG_A=y\n")
    tree.write("data/{config}", "CONFIG_B=y\n")
    known = Known()
    assert kernel.read(tree.root, known, config="/data/{config}") == []
    assert known.attributes["kernel.config"] == {"B": "y"}
    said = kernel.read(tree.root, Known(), config="/data/none")
    assert said == ["there is no readable configuration of the kernel"]


def test_a_kernel_without_modules_and_a_broken_configuration_say_so(tree: Tree) -> None:
    tree.write("proc/sys/kernel/osrelease", "5.10\n")
    tree.write("proc/config.gz", b"\x1f\x8b broken")
    known = Known()
    assert kernel.read(tree.root, known) == ["there is no readable configuration of the kernel"]
    assert known.attributes["kernel.version"] == {"full": "5.10", "major": "5", "minor": "10"}
    assert known.flags["kernel.loadedmodule"] == set()


def test_processor_flags_have_the_names_that_labels_use(tree: Tree) -> None:
    tree.write(
        "proc/cpuinfo",
        "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n"
        "flags\t\t: fpu tsc sse4_1 sse4_2 pni avx512_vnni amx_tile aes fma abm hypervisor "
        "cat_l3\n\n"
        "processor\t: 1\nflags : avx10\n",
    )
    tree.values("sys/devices/system/cpu/cpu0/topology", thread_siblings_list="0,2",
                physical_package_id="0")  # fmt: skip
    tree.values("sys/devices/system/cpu/cpu2/topology", thread_siblings_list="0,2",
                physical_package_id="1")  # fmt: skip
    known = Known()
    cpu.read(tree.root, known)
    assert known.flags["cpu.cpuid"] == {
        "X87", "SSE4", "SSE42", "SSE3", "AVX512VNNI", "AMXTILE", "AESNI", "FMA3", "LZCNT",
        "HYPERVISOR",
    }  # fmt: skip
    assert known.attributes["cpu.model"] == {
        "vendor_id": "Intel",
        "family": "6",
        "id": "143",
        "hypervisor": "unknown",
    }
    assert known.attributes["cpu.rdt"] == {"RDTL3CA": "true"}
    assert known.attributes["cpu.topology"] == {
        "hardware_multithreading": "true",
        "socket_count": "2",
    }


@pytest.mark.parametrize("folder", ["sys/fs/cgroup", "sys/fs/cgroup/misc"])
def test_keys_of_confidential_machines_are_counted(tree: Tree, folder: str) -> None:
    tree.write("proc/cpuinfo", "processor : 0\nflags : sgx sgx_lc\n")
    tree.write(f"{folder}/misc.capacity", "sev 99\nsev_es 410\ntdx 31\nodd\n")
    tree.values("sys/module/kvm_amd/parameters", sev="Y", sev_es="N", sev_snp="N")
    tree.values("sys/module/kvm_intel/parameters", tdx="Y")
    tree.values("sys/devices/system/node/node0/x86", sgx_total_bytes="1024")
    tree.values("sys/devices/system/node/node1/x86", sgx_total_bytes="2048")
    known = Known()
    cpu.read(tree.root, known)
    assert known.attributes["cpu.security"] == {
        "sev.asids": "99",
        "sev.enabled": "true",
        "sgx.enabled": "true",
        "sgx.epc": "3072",
        "tdx.enabled": "true",
        "tdx.total_keys": "31",
    }
    assert known.flags["cpu.cpuid"] == {"SGX", "SGXLC"}


def test_arm_processors_are_understood(tree: Tree) -> None:
    tree.write("proc/cpuinfo", "processor : 0\nFeatures : fp asimd sve2\nCPU implementer : 0x41\n"
               "CPU architecture: 8\nCPU part : 0xd40\n")  # fmt: skip
    known = Known()
    cpu.read(tree.root, known)
    assert known.flags["cpu.cpuid"] == {"FP", "ASIMD", "SVE2"}
    assert known.attributes["cpu.model"] == {"vendor_id": "ARM", "family": "8", "id": "3392"}


def test_memory_is_counted(tree: Tree) -> None:
    for number in (0, 1):
        (tree.path / f"sys/devices/system/node/node{number}").mkdir(parents=True)
    tree.write("proc/swaps", "Filename Type Size Used Priority\n/dev/sda2 partition 1 0 -2\n")
    tree.values("sys/kernel/mm/hugepages/hugepages-1048576kB", nr_hugepages="4")
    tree.values("sys/kernel/mm/hugepages/hugepages-2048kB", nr_hugepages="0")
    tree.values("sys/bus/nd/devices/dax0.0", devtype="nd_dax", mode="devdax")
    known = Known()
    memory.read(tree.root, known)
    assert known.attributes == {
        "memory.numa": {"is_numa": "true", "node_count": "2"},
        "memory.swap": {"enabled": "true"},
        "memory.hugepages": {"enabled": "true", "hugepages-1Gi": "4", "hugepages-2Mi": "0"},
    }
    assert known.instances["memory.nv"] == [
        {"name": "dax0.0", "devtype": "nd_dax", "mode": "devdax"}
    ]


def test_disks_and_the_operating_system_are_described(tree: Tree) -> None:
    tree.values("sys/block/nvme0n1/queue", rotational="0", dax="0", zoned="none", nr_zones="0")
    tree.write("etc/os-release", 'ID=ubuntu\nVERSION_ID="24.04"\n')
    tree.values("sys/devices/virtual/dmi/id", sys_vendor="NVIDIA", product_name="DGXH100")
    known = Known()
    assert storage.read(tree.root, known) == []
    assert system.read(tree.root, known) == []
    assert known.instances["storage.block"][0]["rotational"] == "0"
    assert known.attributes["system.osrelease"] == {
        "ID": "ubuntu",
        "VERSION_ID": "24.04",
        "VERSION_ID.major": "24",
        "VERSION_ID.minor": "04",
    }
    assert known.attributes["system.dmiid"] == {"sys_vendor": "NVIDIA", "product_name": "DGXH100"}


def test_directives_of_a_file_are_obeyed() -> None:
    text = """
    # a comment
    plain
    nvidia.com/gpu.count=4
    # +no-label
    only-feature=1
    # +no-feature
    only-label=a=b
    # +expiry-time=2020-01-01T00:00:00Z
    old=1
    # +expiry-time=2030-01-01T00:00:00Z
    new=1
    # +nonsense
    """
    found = local.parse(text, NOW)
    assert found.features == {
        "plain": "true",
        "nvidia.com/gpu.count": "4",
        "only-feature": "1",
        "new": "1",
    }
    assert found.labels == {
        "plain": "true",
        "nvidia.com/gpu.count": "4",
        "only-label": "a=b",
        "new": "1",
    }
    assert [each.split(":")[0] for each in found.left_out] == ["line 13"]


def test_hidden_and_large_files_are_passed_over(tree: Tree) -> None:
    folder = "etc/kubernetes/node-feature-discovery/features.d"
    tree.write(f"{folder}/.half", "a=1\n")
    tree.write(f"{folder}/large", "b=1\n" * 20_000)
    tree.write(f"{folder}/10-first", "c=1\nd=1\n")
    tree.write(f"{folder}/20-second", "c=2\n")
    known = Known()
    left_out = local.read(tree.root, known)
    assert len(left_out) == 1
    assert "large" in left_out[0]
    assert known.attributes["local.label"] == {"c": "2", "d": "1"}


def test_rules_of_the_node_itself_give_labels(tree: Tree) -> None:
    folder = "etc/kubernetes/node-feature-discovery/custom.d"
    tree.write("etc/os-release", "ID=ubuntu\n")
    tree.write(
        f"{folder}/mounted/rules.yaml",
        """
        - name: ubuntu
          labels: {mine: "true"}
          matchFeatures:
          - {feature: system.osrelease, matchExpressions: {ID: {op: In, value: [ubuntu]}}}
        - name: bad
          labels: {lost: "true"}
          matchFeatures:
          - {feature: system.osrelease, matchExpressions: {ID: {op: Near}}}
        """,
    )
    tree.write(f"{folder}/broken", "a: [")
    tree.write(f"{folder}/other", "name: no list")
    found = reading.read(tree.root, reading.Wanted({"system", "custom"}))
    assert found.labels == {"mine": "true"}
    assert "rule.matched" not in found.known.attributes
    assert [each.split(": ")[1].rpartition("/")[2] for each in found.left_out] == [
        "broken",
        "other",
        "rules.yaml",
    ]
    assert "[1].matchFeatures[0].matchExpressions[ID].op" in found.left_out[2]


def test_a_host_without_anything_gives_nothing_and_says_what_is_missing(tree: Tree) -> None:
    found = reading.read(tree.root, reading.Wanted(set(reading.SOURCES)))
    assert set(found.failed) == {"cpu", "kernel", "pci"}
    assert found.known.flags == {}
