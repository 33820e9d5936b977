# SPDX-License-Identifier: Apache-2.0
"""The part of a simulated host's tree that is there without any card.

System release, kernel version, boot id, NUMA nodes, DMI and the ordinary device nodes (a
container that mounts the host's /dev as its own needs them). Pure: it returns a `tree.Tree`
for `hosttree`. The text follows what Linux prints; only what some program reads is there.
"""

from __future__ import annotations

import uuid

from gpudeck.lab import machine, machine_rules, tree

_NAMES = uuid.UUID("7d1f3a52-41f0-5b0b-9f7e-6a1de0c2b9a4")


def describe(host: machine.Machine, *, boot_id: str) -> tree.Tree:
    """Return the files of `host` that no card adds to."""
    return {
        **_release(host),
        **_proc(host, boot_id),
        **_numa(host),
        **_dmi(host),
        **_dev(),
    }


def _release(host: machine.Machine) -> tree.Tree:
    release = host.os
    lines = [
        f'PRETTY_NAME="{release.pretty_name}"',
        f'NAME="{release.name}"',
        f'VERSION_ID="{release.version_id}"',
        f'VERSION="{release.version_id} ({release.codename})"',
        f"VERSION_CODENAME={release.codename}",
        f"ID={release.id}",
        f"ID_LIKE={release.like}",
    ]
    return {
        "usr/lib/os-release": tree.text("\n".join(lines), 0o644),
        "etc/os-release": tree.Link("../usr/lib/os-release"),
        "etc/hostname": tree.text(host.host, 0o644),
        "etc/machine-id": tree.text(uuid.uuid5(_NAMES, host.host).hex),
        "bin": tree.Link("usr/bin"),
        "sbin": tree.Link("usr/sbin"),
        "lib": tree.Link("usr/lib"),
        "lib64": tree.Link("usr/lib64"),
        "usr/bin": tree.Folder(),
        "usr/sbin": tree.Folder(),
        "usr/lib64": tree.Folder(),
        "run": tree.Folder(),
        "tmp": tree.Folder(0o1777),
        "var/lib": tree.Folder(),
    }


def _proc(host: machine.Machine, boot_id: str) -> tree.Tree:
    memory_kib = sum(node.memory_mib for node in host.numa_nodes) * 1024
    return {
        "proc/sys/kernel/osrelease": tree.text(host.kernel),
        "proc/sys/kernel/ostype": tree.text("Linux"),
        "proc/sys/kernel/hostname": tree.text(host.host),
        "proc/sys/kernel/random/boot_id": tree.text(boot_id),
        "proc/version": tree.text(f"Linux version {host.kernel} (gcc 11.4.0) #1 SMP"),
        "proc/cmdline": tree.text(
            f"BOOT_IMAGE=/vmlinuz-{host.kernel} root=/dev/sda2 ro"
            + (" intel_iommu=on iommu=pt" if host.iommu else "")
        ),
        "proc/meminfo": tree.text(
            f"MemTotal:       {memory_kib} kB\nMemFree:        {memory_kib} kB\n"
            f"MemAvailable:   {memory_kib} kB"
        ),
    }


def _numa(host: machine.Machine) -> tree.Tree:
    nodes = range(len(host.numa_nodes))
    listing = "0" if len(nodes) == 1 else f"0-{len(nodes) - 1}"
    below: tree.Tree = {
        f"sys/devices/system/node/{name}": tree.text(listing)
        for name in ("online", "possible", "has_cpu", "has_memory", "has_normal_memory")
    }
    for index, node in enumerate(host.numa_nodes):
        folder = f"sys/devices/system/node/node{index}"
        kib = node.memory_mib * 1024
        below[f"{folder}/cpulist"] = tree.text(node.cpus)
        below[f"{folder}/cpumap"] = tree.text(cpu_mask(machine_rules.cpus(node.cpus)))
        below[f"{folder}/distance"] = tree.text(
            " ".join("10" if other == index else "21" for other in nodes)
        )
        below[f"{folder}/meminfo"] = tree.text(
            f"Node {index} MemTotal:       {kib} kB\nNode {index} MemFree:        {kib} kB"
        )
    all_cpus = sorted(cpu for node in host.numa_nodes for cpu in machine_rules.cpus(node.cpus))
    for name in ("online", "possible", "present"):
        below[f"sys/devices/system/cpu/{name}"] = tree.text(f"0-{all_cpus[-1]}")
    return below


def cpu_mask(cpus: frozenset[int]) -> str:
    """Return CPUs as sysfs prints a mask: groups of 32 bits, the highest first."""
    words = max(cpus, default=0) // 32 + 1
    bits = sum(1 << cpu for cpu in cpus)
    return ",".join(f"{bits >> (32 * word) & 0xFFFFFFFF:08x}" for word in reversed(range(words)))


def _dmi(host: machine.Machine) -> tree.Tree:
    identity = uuid.uuid5(_NAMES, f"{host.host}/dmi")
    values = {
        "sys_vendor": host.board.vendor,
        "product_name": host.board.product,
        "product_version": host.board.version,
        "board_vendor": host.board.vendor,
        "board_name": host.board.product,
        "bios_vendor": "American Megatrends International, LLC.",
        "bios_version": "1.05.03",
        "chassis_type": "23",
        "chassis_vendor": host.board.vendor,
    }
    private = {
        "product_uuid": str(identity),
        "product_serial": f"SN{identity.hex[:10].upper()}",
    }
    folder = "sys/devices/virtual/dmi/id"
    return {
        **{f"{folder}/{name}": tree.text(value) for name, value in values.items()},
        **{f"{folder}/{name}": tree.text(value, 0o400) for name, value in private.items()},
        "sys/class/dmi/id": tree.Link("../../devices/virtual/dmi/id"),
    }


def _dev() -> tree.Tree:
    return {
        "dev/null": tree.Device(1, 3),
        "dev/zero": tree.Device(1, 5),
        "dev/full": tree.Device(1, 7),
        "dev/random": tree.Device(1, 8),
        "dev/urandom": tree.Device(1, 9),
        "dev/tty": tree.Device(5, 0),
        "dev/console": tree.Device(5, 1, 0o600),
        "dev/ptmx": tree.Link("pts/ptmx"),
        "dev/fd": tree.Link("/proc/self/fd"),
        "dev/stdin": tree.Link("/proc/self/fd/0"),
        "dev/stdout": tree.Link("/proc/self/fd/1"),
        "dev/stderr": tree.Link("/proc/self/fd/2"),
        "dev/pts": tree.Folder(),
        "dev/shm": tree.Folder(0o1777),
        "dev/mqueue": tree.Folder(0o1777),
    }
