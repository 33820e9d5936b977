# SPDX-License-Identifier: Apache-2.0
"""A simulated host's tree says about cards what a real host's /sys, /proc and /dev say."""

import os
import stat
from pathlib import Path, PurePosixPath

import pytest

from gpudeck import errors
from gpudeck.lab import hosttree, machine, tree, tree_driver

BOOT = "0b7f2f5e-1c7d-4f55-9d39-5a1c0d5c8a01"
FIRST = "0000:1b:00.0"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="device nodes need CAP_MKNOD")


def described(name: str) -> tree.Tree:
    return hosttree.describe(machine.load(name), boot_id=BOOT)


def content(below: tree.Tree, path: str) -> str:
    entry = below[path]
    assert isinstance(entry, tree.File)
    return entry.content.decode().rstrip("\n")


def follow(below: tree.Tree, path: str) -> str:
    """Resolve links inside the tree, as a reader below a host root does."""
    done = PurePosixPath()
    for part in PurePosixPath(path).parts:
        entry = below.get(str(done / part))
        if isinstance(entry, tree.Link):
            done = PurePosixPath(os.path.normpath(done / follow_target(below, done, entry)))
        else:
            done = done / part
    return str(done)


def follow_target(below: tree.Tree, folder: PurePosixPath, link: tree.Link) -> str:
    return os.path.relpath(follow(below, os.path.normpath(folder / link.target)), folder)


def written(folder: Path, name: str = "h100-x8") -> tuple[machine.Machine, Path]:
    host = machine.load(name)
    hosttree.write(host, folder / "host", simulation=folder / "simulation", boot_id=BOOT)
    return host, folder / "host"


def snapshot(root: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        kind = stat.S_IFMT(status.st_mode)
        body = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
        target = str(path.readlink()) if path.is_symlink() else ""
        found[str(path.relative_to(root))] = (kind, status.st_mode, status.st_rdev, body, target)
    return found


@pytest.mark.parametrize("name", machine.names())
def test_every_link_of_sysfs_leads_somewhere(name: str) -> None:
    below = described(name)
    places = {str(parent) for path in below for parent in PurePosixPath(path).parents}
    places |= below.keys()
    links = [path for path, entry in below.items() if isinstance(entry, tree.Link)]
    wanted = [path for path in links if path.startswith("sys/")]
    assert wanted
    assert [path for path in wanted if follow(below, path) not in places] == []


def test_a_card_is_identified_as_its_driver_would() -> None:
    below, device = described("h100-x8"), f"sys/bus/pci/devices/{FIRST}"
    real = follow(below, device)
    shown = {
        name: content(below, f"{real}/{name}")
        for name in ("vendor", "device", "subsystem_vendor", "subsystem_device", "class")
    }
    assert shown == {
        "vendor": "0x10de",
        "device": "0x2330",
        "subsystem_vendor": "0x10de",
        "subsystem_device": "0x16c1",
        "class": "0x030200",
    }
    assert follow(below, f"{real}/driver") == "sys/bus/pci/drivers/nvidia"
    assert follow(below, f"sys/bus/pci/drivers/nvidia/{FIRST}") == real


def test_the_pcie_root_is_read_from_the_devices_real_path() -> None:
    real = follow(described("h100-x8"), "sys/bus/pci/devices/0000:c3:00.0")
    assert real == "sys/devices/pci0000:bd/0000:bd:01.0/0000:be:00.0/0000:bf:01.0/0000:c3:00.0"


def test_a_card_knows_its_numa_node_and_cpus() -> None:
    below = described("a100-80gb-x8")
    real = follow(below, "sys/bus/pci/devices/0000:47:00.0")
    assert content(below, f"{real}/numa_node") == "1"
    assert content(below, f"{real}/local_cpulist") == "16-31,144-159"
    assert content(below, "sys/devices/system/node/node1/cpulist") == "16-31,144-159"


def test_a_machine_without_an_iommu_has_no_groups() -> None:
    groups = [path for path in described("t4-x4") if "iommu_group" in path]
    assert groups == []
    assert follow(described("h100-x8"), f"sys/bus/pci/devices/{FIRST}/iommu_group").startswith(
        "sys/kernel/iommu_groups/"
    )


def test_configuration_space_agrees_with_the_files_beside_it() -> None:
    below = described("h100-x8")
    config = below[follow(below, f"sys/bus/pci/devices/{FIRST}") + "/config"]
    assert isinstance(config, tree.File)
    assert len(config.content) == 4096
    assert config.content[:4] == bytes.fromhex("de103023")
    assert config.content[0x2C:0x30] == bytes.fromhex("de10c116")
    assert config.content[0x0A:0x0C] == bytes.fromhex("0203")


def test_the_capability_chain_ends() -> None:
    below = described("h100-x8")
    config = below[follow(below, f"sys/bus/pci/devices/{FIRST}") + "/config"]
    assert isinstance(config, tree.File)
    seen, at = [], config.content[0x34]
    while at:
        seen.append(config.content[at])
        at = config.content[at + 1]
    assert seen == [0x01, 0x05, 0x10, 0x09, 0x11]


def test_bars_are_as_large_as_the_model_says() -> None:
    below = described("h200-x8")
    rows = content(below, follow(below, f"sys/bus/pci/devices/{FIRST}") + "/resource").splitlines()
    sizes = [int(end, 16) - int(start, 16) + 1 for start, end, flags in map(str.split, rows)]
    assert len(rows) == 13
    assert (sizes[0], sizes[2], sizes[4]) == (16 << 20, 256 << 30, 32 << 20)


def test_the_driver_lists_its_cards() -> None:
    host = machine.load("h100-x8")
    below = hosttree.describe(host, boot_id=BOOT)
    lines = content(below, f"proc/driver/nvidia/gpus/{FIRST}/information").splitlines()
    assert lines[0] == "Model: \t\t NVIDIA H100 80GB HBM3"
    assert f"GPU UUID: \t {host.cards[0].uuid}" in lines
    assert "Device Minor: \t 0" in lines
    assert "580.105.08" in content(below, "proc/driver/nvidia/version").splitlines()[0]


def test_capability_minors_are_the_drivers() -> None:
    """Open kernel module: gpu0 gi1 has 12, its compute instances 13 and on; the last is 4322."""
    assert tree_driver.capability_minor(0, 1) == 12
    assert [tree_driver.capability_minor(0, 1, ci) for ci in range(3)] == [13, 14, 15]
    lines = content(described("h100-x8"), "proc/driver/nvidia-caps/mig-minors").splitlines()
    assert lines[:3] == ["config 1", "monitor 2", "gpu0/gi0/access 3"]
    assert lines[-1] == "gpu31/gi14/ci7/access 4322"


def test_device_numbers_agree_with_proc_devices() -> None:
    below = described("h100-x8")
    majors = {
        line.split()[1]: int(line.split()[0])
        for line in content(below, "proc/devices").splitlines()
        if len(line.split()) == 2 and line[0] in " 0123456789"
    }
    assert below["dev/nvidia7"] == tree.Device(195, 7)
    assert below["dev/nvidiactl"] == tree.Device(majors["nvidiactl"], 255)
    assert below["dev/nvidia-uvm"] == tree.Device(majors["nvidia-uvm"], 0)
    assert below["dev/nvidia-caps/nvidia-cap1"] == tree.Device(majors["nvidia-caps"], 1, 0o400)


def test_capability_nodes_of_instances_appear_with_the_instances() -> None:
    caps = [path for path in described("h100-x8") if path.startswith("dev/nvidia-caps/")]
    assert sorted(caps) == ["dev/nvidia-caps/nvidia-cap1", "dev/nvidia-caps/nvidia-cap2"]


def test_a_container_finds_the_ordinary_devices() -> None:
    below = described("h100-x8")
    assert below["dev/null"] == tree.Device(1, 3)
    assert {"dev/shm", "dev/pts", "dev/mqueue", "dev/ptmx", "dev/fd", "dev/tty"} <= below.keys()


def test_render_nodes_are_found_by_path() -> None:
    below = described("h100-x8")
    assert follow(below, f"dev/dri/by-path/pci-{FIRST}-render") == "dev/dri/renderD128"
    assert follow(below, f"dev/dri/by-path/pci-{FIRST}-card") == "dev/dri/card1"
    assert follow(below, "sys/class/drm/card1/device").endswith(FIRST)


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("h100-x8", "usr/lib/x86_64-linux-gnu"),
        ("a30-x2", "usr/lib64"),
        ("gb10-x1", "usr/lib/aarch64-linux-gnu"),
    ],
)
def test_libraries_stand_where_the_distribution_has_them(name: str, folder: str) -> None:
    below = described(name)
    version = machine.load(name).driver.version
    assert follow(below, f"{folder}/libcuda.so") == f"{folder}/libcuda.so.{version}"
    assert f"{folder}/libnvidia-gpucomp.so.{version}" in below


@pytest.mark.parametrize("name", machine.names())
def test_every_device_has_a_name_in_pci_ids(name: str) -> None:
    below = described(name)
    known, vendor = set(), ""
    for line in content(below, "usr/share/misc/pci.ids").splitlines():
        if line.startswith("C "):
            break
        if line[:1] not in ("", "#", "\t"):
            vendor = line[:4]
        elif line.startswith("\t") and not line.startswith("\t\t"):
            known.add((vendor, line[1:5]))
    folders = [path.removesuffix("/vendor") for path in below if path.endswith("/vendor")]
    ids = {
        (content(below, f"{each}/vendor")[2:], content(below, f"{each}/device")[2:])
        for each in folders
    }
    assert ids - known == set()


def test_a_host_of_another_maker_has_its_own_driver() -> None:
    below = described("metax-c500-x8")
    real = follow(below, "sys/bus/pci/devices/0000:1b:00.0")
    assert content(below, f"{real}/vendor") == "0x9999"
    assert follow(below, f"{real}/driver") == "sys/bus/pci/drivers/metax"
    assert {"dev/mxcd", "dev/dri/renderD135", "opt/mxdriver/lib"} <= below.keys()
    assert [path for path in below if "nvidia" in path] == []


def test_the_release_and_boot_are_the_machines() -> None:
    below = described("a30-x2")
    assert content(below, follow(below, "etc/os-release")).startswith('PRETTY_NAME="Red Hat')
    assert content(below, "proc/sys/kernel/random/boot_id") == BOOT
    assert content(below, "proc/sys/kernel/osrelease").endswith("el9_6.x86_64")


@needs_root
def test_writing_makes_real_nodes_and_is_repeatable(tmp_path: Path) -> None:
    _, root = written(tmp_path)
    before = snapshot(root)
    node = (root / "dev/nvidia3").stat()
    assert stat.S_ISCHR(node.st_mode)
    assert (os.major(node.st_rdev), os.minor(node.st_rdev)) == (195, 3)
    written(tmp_path)
    assert snapshot(root) == before


@needs_root
def test_another_machine_leaves_nothing_of_the_first(tmp_path: Path) -> None:
    written(tmp_path, "h100-x8")
    (tmp_path / "host/etc/mine").write_text("keep")
    _, root = written(tmp_path, "metax-c500-x8")
    assert list(root.rglob("*nvidia*")) == []
    assert (root / "etc/mine").read_text() == "keep"


@needs_root
def test_an_interrupted_write_is_completed_by_the_next(tmp_path: Path) -> None:
    _, root = written(tmp_path / "whole")
    host, partial = written(tmp_path / "cut")
    for path in list(partial.rglob("nvidia*"))[::2]:
        if not path.is_dir() or path.is_symlink():
            path.unlink(missing_ok=True)
    hosttree.write(host, partial, simulation=tmp_path / "cut/simulation", boot_id=BOOT)
    assert snapshot(partial) == snapshot(root)


@needs_root
def test_the_live_part_of_proc_is_the_simulations(tmp_path: Path) -> None:
    host, root = written(tmp_path)
    simulation = tmp_path / "simulation"
    assert hosttree.binds(host, root, simulation) == [
        (simulation / "proc/driver/nvidia", root / "proc/driver/nvidia")
    ]
    live = snapshot(simulation / "proc/driver/nvidia")
    assert live == snapshot(root / "proc/driver/nvidia")


@needs_root
def test_an_unplugged_card_is_gone_from_sysfs_and_comes_back(tmp_path: Path) -> None:
    host, root = written(tmp_path)
    before = snapshot(root)
    hosttree.hotplug_remove(host, root, FIRST)
    left = [path for path in root.rglob("*") if FIRST in path.name and "by-path" not in str(path)]
    assert left == []
    assert (root / "dev/nvidia0").exists()
    assert not (root / "sys/class/drm/card1").is_symlink()
    assert (root / "sys/class/drm/card2").exists()
    hosttree.hotplug_add(host, root, FIRST)
    assert snapshot(root) == before


@needs_root
def test_a_lost_card_keeps_its_place_and_reads_all_ones(tmp_path: Path) -> None:
    host, root = written(tmp_path)
    config = root / "sys/bus/pci/devices" / FIRST / "config"
    healthy = config.read_bytes()
    hosttree.lose(host, root, FIRST)
    assert config.read_bytes() == b"\xff" * 4096
    assert (config.parent / "vendor").read_text() == "0x10de\n"
    hosttree.find(host, root, FIRST)
    assert config.read_bytes() == healthy


@needs_root
def test_a_card_that_is_not_there_cannot_be_unplugged(tmp_path: Path) -> None:
    host, root = written(tmp_path)
    with pytest.raises(errors.NotFoundError, match=r"0000:1c:00\.0"):
        hosttree.hotplug_remove(host, root, "0000:1c:00.0")
