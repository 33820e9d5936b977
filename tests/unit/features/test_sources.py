# SPDX-License-Identifier: Apache-2.0
"""Sources of features, each on a small host tree, the odd attributes included."""

from __future__ import annotations

import datetime
import gzip
import os
import stat
from pathlib import Path

import pytest
from tests.support.hostfiles import HostFiles

from gpudeck import errors
from gpudeck.features.known import Known
from gpudeck.features.sources import (
    custom,
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
from gpudeck.host.root import HostPath, Root

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture
def tree(tmp_path: Path) -> HostFiles:
    return HostFiles(tmp_path)


def test_interfaces_without_a_readable_speed_stay(tree: HostFiles) -> None:
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


def test_one_sick_device_of_the_bus_costs_itself(tree: HostFiles) -> None:
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


def test_a_source_that_fails_keeps_what_it_gave_before(tree: HostFiles) -> None:
    tree.values("sys/bus/pci/devices/0000:1b:00.0", **{"class": "0x030200"}, vendor="0x10de",
                device="0x20b0")  # fmt: skip
    before = reading.read(tree.root, reading.Wanted({"pci", "usb"}))
    (tree.path / "sys/bus").rename(tree.path / "sys/gone")
    now = reading.read(tree.root, reading.Wanted({"pci", "usb"}), before)
    assert now.failed == ("pci",)
    assert now.known.instances == before.known.instances
    alone = reading.read(tree.root, reading.Wanted({"pci", "usb"}))
    assert "pci.device" not in alone.known.instances


def test_usb_devices_have_the_classes_of_their_interfaces(tree: HostFiles) -> None:
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


def test_the_kernel_says_version_options_and_modules(tree: HostFiles) -> None:
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


def test_a_chosen_configuration_of_the_kernel_is_the_only_one(tree: HostFiles) -> None:
    tree.write("proc/sys/kernel/osrelease", "6.8.0\n")
    tree.write("boot/config-6.8.0", "CONFIG_A=y\n")
    tree.write("data/{config}", "CONFIG_B=y\n")
    known = Known()
    assert kernel.read(tree.root, known, config="/data/{config}") == []
    assert known.attributes["kernel.config"] == {"B": "y"}
    said = kernel.read(tree.root, Known(), config="/data/none")
    assert said == ["there is no readable configuration of the kernel"]


def test_a_kernel_without_modules_and_a_broken_configuration_say_so(tree: HostFiles) -> None:
    tree.write("proc/sys/kernel/osrelease", "5.10\n")
    tree.write("proc/config.gz", b"\x1f\x8b broken")
    known = Known()
    assert kernel.read(tree.root, known) == ["there is no readable configuration of the kernel"]
    assert known.attributes["kernel.version"] == {"full": "5.10", "major": "5", "minor": "10"}
    assert known.flags["kernel.loadedmodule"] == set()


def test_memory_is_counted(tree: HostFiles) -> None:
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


def test_disks_and_the_operating_system_are_described(tree: HostFiles) -> None:
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


def test_hidden_and_large_files_are_passed_over(tree: HostFiles) -> None:
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


def test_files_of_others_are_read_as_far_as_a_node_feature_holds_them(tree: HostFiles) -> None:
    filling = "#" * (local.LIMIT_BYTES - len("label-0=x\n"))
    for each in range(4):
        tree.write(f"{local.FOLDER[1:]}/{each}", f"label-{each}=x\n{filling}")
    known = Known()
    (left_out,) = local.read(tree.root, known)
    assert left_out.startswith(f"{local.FOLDER}/3 is too large; allowed: at most 65536 bytes, and")
    assert set(known.attributes["local.label"]) == {"label-0", "label-1", "label-2"}


def test_odd_files_of_others_cost_themselves_alone(tree: HostFiles) -> None:
    folder = tree.path / local.FOLDER[1:]
    tree.write(f"{local.FOLDER[1:]}/10-good", "good=1\n")
    os.mkfifo(folder / "20-pipe")
    os.mknod(folder / "30-socket", stat.S_IFSOCK | 0o644)
    (folder / "40-loop").symlink_to("40-loop")
    (folder / "50-dangling").symlink_to("nowhere")
    (folder / "60-folder").mkdir()
    tree.write(f"{local.FOLDER[1:]}/70-wrong", "# +nonsense\n" * 1000 + "better=1\n")
    with (folder / "80-vast").open("wb") as stream:
        stream.truncate(100 << 20)
    tree.write(f"{local.FOLDER[1:]}/90-\udcff", "last=1\n")
    known = Known()
    left_out = local.read(tree.root, known)
    assert known.attributes["local.label"] == {"good": "1", "better": "1", "last": "1"}
    names = [each.partition(local.FOLDER)[2][1:3] for each in left_out]
    assert set(names) == {"20", "30", "40", "70", "80"}
    assert names.count("70") <= 11
    assert "more" in next(each for each in reversed(left_out) if "70-wrong" in each)


def test_what_may_not_be_looked_at_costs_itself_alone(tree: HostFiles) -> None:
    tree.write("etc/os-release", "ID=ubuntu\n")
    for folder, content in (
        (local.FOLDER, "good=1\n"),
        (custom.FOLDER, "[{name: r, labels: {a: b}}]"),
    ):
        tree.write(f"{folder[1:]}/good", content)
    root = Closed(tree.path)
    found = reading.read(root, reading.Wanted({"local", "custom"}))
    assert found.failed == ()
    assert found.known.attributes["local.label"] == {"good": "1"}
    assert found.labels == {"a": "b"}
    assert len(found.left_out) == 2


def test_very_many_files_of_others_are_read_as_far_as_it_goes(tree: HostFiles) -> None:
    for number in range(local.MOST_FILES + 5):
        tree.write(f"{local.FOLDER[1:]}/{number:05d}", f"n{number}=1\n")
    known = Known()
    (left_out,) = local.read(tree.root, known)
    assert len(known.attributes["local.label"]) == local.MOST_FILES
    assert left_out == f"{local.FOLDER}: 5 files are left out; allowed: at most {local.MOST_FILES}"


def test_rules_of_the_node_itself_give_labels(tree: HostFiles) -> None:
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


def test_a_host_without_anything_gives_nothing_and_says_what_is_missing(tree: HostFiles) -> None:
    found = reading.read(tree.root, reading.Wanted(set(reading.SOURCES)))
    assert set(found.failed) == {"cpu", "kernel", "pci"}
    assert found.known.flags == {}


def test_one_sick_attribute_costs_itself_not_what_it_belongs_to(tree: HostFiles) -> None:
    tree.values("sys/class/net/eth0", operstate="up")
    tree.sick("sys/class/net/eth0/speed")
    tree.values("sys/class/net/eth0/device", sriov_totalvfs="8")
    tree.values("sys/block/sda/queue", rotational="0")
    tree.sick("sys/block/sda/queue/dax")
    tree.values("sys/bus/usb/devices/1-1", idVendor="18d1", idProduct="9302", bDeviceClass="ff")
    tree.sick("sys/bus/usb/devices/1-1/serial")
    tree.values("sys/kernel/mm/hugepages/hugepages-1048576kB", nr_hugepages="4")
    tree.sick("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
    tree.write("etc/os-release", "ID=ubuntu\n")
    tree.sick("sys/devices/virtual/dmi/id/sys_vendor")
    found = reading.read(
        tree.root, reading.Wanted(("memory", "network", "storage", "system", "usb"))
    )
    assert found.failed == ()
    assert len(found.left_out) == 5
    assert found.known.instances["network.device"] == [
        {"name": "eth0", "operstate": "up", "sriov_totalvfs": "8"}
    ]
    assert found.known.instances["storage.block"] == [{"name": "sda", "rotational": "0"}]
    assert [each["device"] for each in found.known.instances["usb.device"]] == ["9302"]
    assert found.known.attributes["memory.hugepages"] == {"enabled": "true", "hugepages-1Gi": "4"}
    assert found.known.attributes["system.osrelease"]["ID"] == "ubuntu"


class Closed(Root):
    """A root below whose two folders stands one more that may not be looked at."""

    def list(self, path: HostPath) -> list[str]:
        if str(path).endswith("closed"):
            raise errors.ForbiddenError(f"{path}: Permission denied")
        found = super().list(path)
        return [*found, "closed"] if str(path).endswith(".d") else found

    def is_directory(self, path: HostPath) -> bool:
        if "features.d/closed" in str(path):
            raise errors.ForbiddenError(f"{path}: Permission denied")
        return str(path).endswith("closed") or super().is_directory(path)


class SickDisk(Root):
    """A root whose disk answers with an error (EIO) where a path ends so."""

    end = ""

    def read_bytes(self, path: HostPath, *, limit: int = -1) -> bytes:
        if self.end and str(path).endswith(self.end):
            raise errors.UnavailableError(f"{path}: Input/output error")
        return super().read_bytes(path, limit=limit)


@pytest.mark.parametrize(
    "end", ["features.d/gfd", "custom.d/rules", "os-release", "config.gz", "misc.capacity"]
)
def test_what_files_said_stays_while_their_disk_is_sick(tree: HostFiles, end: str) -> None:
    folder = "etc/kubernetes/node-feature-discovery"
    tree.write(f"{folder}/features.d/gfd", "a=1\n")
    tree.write(f"{folder}/custom.d/rules", "[{name: r, labels: {mine: '1'}}]")
    tree.write("etc/os-release", "ID=x\n")
    tree.write("proc/sys/kernel/osrelease", "6.8.0\n")
    tree.write("proc/config.gz", gzip.compress(b"CONFIG_A=y\n"))
    tree.write("proc/cpuinfo", "flags : fpu\n")
    tree.write("sys/fs/cgroup/misc.capacity", "sev 9\n")
    tree.values("sys/module/kvm_amd/parameters", sev="Y")
    root = SickDisk(tree.path)
    wanted = reading.Wanted(("cpu", "kernel", "local", "custom", "system"))
    before = reading.read(root, wanted)
    root.end = end
    now = reading.read(root, wanted, before)
    assert len(now.failed) == len(now.left_out) == 1
    assert (now.known, now.labels) == (before.known, {"mine": "1"})


def test_rules_of_the_node_see_its_name_and_what_a_sick_source_gave_before(
    tree: HostFiles,
) -> None:
    tree.values("sys/bus/pci/devices/0000:1b:00.0", **{"class": "0x030200"}, vendor="0x10de",
                device="0x20b0")  # fmt: skip
    tree.write(
        "etc/kubernetes/node-feature-discovery/custom.d/rules",
        """
        - name: card
          labels: {card: "true"}
          matchFeatures:
          - {feature: pci.device, matchExpressions: {vendor: ["10de"]}}
          - {feature: system.name, matchExpressions: {nodename: [node-0]}}
        """,
    )
    wanted = reading.Wanted(("pci", "custom"), node_name="node-0")
    before = reading.read(tree.root, wanted)
    assert before.labels == {"card": "true"}
    (tree.path / "sys/bus").rename(tree.path / "sys/gone")
    now = reading.read(tree.root, wanted, before)
    assert (now.failed, now.labels) == (("pci",), {"card": "true"})
    assert reading.read(tree.root, wanted).labels == {}


@pytest.mark.parametrize(
    ("version", "parts"),
    [
        ("24.04", {"major": "24", "minor": "04"}),
        ("9", {"major": "9"}),
        ("4.16.20240101", {"major": "4", "minor": "16"}),
        ("12-SP5", {}),
        ("rolling", {}),
    ],
)
def test_parts_of_a_version_are_numbers(
    tree: HostFiles, version: str, parts: dict[str, str]
) -> None:
    tree.write("etc/os-release", f'ID=x\nVERSION_ID="{version}"\n')
    known = Known()
    system.read(tree.root, known)
    found = known.attributes["system.osrelease"]
    assert {name: found[f"VERSION_ID.{name}"] for name in parts} == parts
    assert sum(name.startswith("VERSION_ID.") for name in found) == len(parts)
