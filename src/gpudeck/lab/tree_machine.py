# SPDX-License-Identifier: Apache-2.0
"""The part of a simulated host's tree that says what the machine is made of, but for its cards.

Processors, network interfaces, a disk, huge pages, swap and the kernel's configuration:
what features of a node are read from. Pure: it returns a `tree.Tree` for `hosttree`. The text
follows what Linux prints; only what some program reads is there.
"""

from __future__ import annotations

import re

from gpudeck.lab import machine, machine_rules, tree, tree_pci

MODELS = {
    "8570": (6, 207),
    "8480C": (6, 143),
    "8458P": (6, 143),
    "6448Y": (6, 143),
    "6338": (6, 106),
    "6248": (6, 85),
    "E5-2698 v4": (6, 79),
    "EPYC 9354": (25, 17),
    "EPYC 7763": (25, 1),
    "EPYC 7742": (23, 49),
}
"""Family and model by a part of the name."""
_OLDEST_AVX512, _OLDEST_AMX = (6, 85), (6, 143)
_FLAGS = (
    "fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush mmx fxsr sse "
    "sse2 ht syscall nx rdtscp lm constant_tsc rep_good nopl nonstop_tsc cpuid pni pclmulqdq ssse3 "
    "fma cx16 sse4_1 sse4_2 movbe popcnt aes xsave avx f16c rdrand lahf_lm abm fsgsbase bmi1 avx2 "
    "smep bmi2 erms rdseed adx smap clflushopt xsaveopt xsavec xgetbv1"
)
_SHARING = "cqm rdt_a cat_l3 mba cqm_llc cqm_occup_llc cqm_mbm_total cqm_mbm_local"
_INTEL_FLAGS = f"vmx ss dts acpi tm pbe ibrs ibpb stibp {_SHARING} flush_l1d"
_AMD_FLAGS = f"svm sse4a misalignsse topoext cpb clzero sha_ni wbnoinvd ibrs ibpb stibp {_SHARING}"
_AVX512 = "avx512f avx512dq avx512cd avx512bw avx512vl avx512_vnni"
_AMX = "amx_bf16 amx_tile amx_int8 avx512_bf16 avx_vnni gfni vaes sha_ni serialize"
_ARM_FEATURES = (
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm sve sve2 bf16"
)
_NETWORK = {0x020000: "enp", 0x020700: "ib"}
"""How interfaces of network cards are named, by class."""
_CONFIG = """\
# Linux/x86 {0} Kernel Configuration
CONFIG_64BIT=y
CONFIG_SMP=y
CONFIG_HZ=250
CONFIG_NO_HZ=y
CONFIG_NO_HZ_COMMON=y
CONFIG_NO_HZ_FULL=y
# CONFIG_NO_HZ_IDLE is not set
# CONFIG_PREEMPT is not set
CONFIG_PREEMPT_VOLUNTARY=y
CONFIG_MODULES=y
CONFIG_MODULE_SIG=y
CONFIG_CGROUPS=y
CONFIG_CPUSETS=y
CONFIG_NAMESPACES=y
CONFIG_OVERLAY_FS=m
CONFIG_VFIO=y
CONFIG_VFIO_PCI=m
CONFIG_KVM=m
CONFIG_HUGETLBFS=y
CONFIG_TRANSPARENT_HUGEPAGE=y
CONFIG_PCI=y
CONFIG_PCI_IOV=y
CONFIG_HOTPLUG_PCI=y
CONFIG_DRM=m
CONFIG_DEFAULT_HOSTNAME="(none)"
CONFIG_LSM="landlock,lockdown,yama,integrity,apparmor"
"""
_DISK = "sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1"


def describe(host: machine.Machine) -> tree.Tree:
    """Return the files of `host`."""
    return {
        "proc/cpuinfo": tree.text(_cpuinfo(host)),
        "proc/swaps": tree.text("Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority"),
        f"boot/config-{host.kernel}": tree.text(_CONFIG.format(host.kernel), 0o644),
        "sys/devices/virtual/misc/kvm/dev": tree.text("10:232"),
        **_topology(host),
        **_huge_pages(),
        **_interfaces(host),
        **_disk(),
    }


def _packages(host: machine.Machine) -> dict[int, int]:
    return {
        cpu: index
        for index, node in enumerate(host.numa_nodes)
        for cpu in machine_rules.cpus(node.cpus)
    }


def _cpuinfo(host: machine.Machine) -> str:
    packages = _packages(host)
    return "\n".join(
        f"processor\t: {cpu}\n{_processor(host.cpu)}physical id\t: {packages[cpu]}\n"
        for cpu in sorted(packages)
    )


def _processor(cpu: machine.Processor) -> str:
    if cpu.vendor == "ARM":
        return (
            f"model name\t: {cpu.model}\nFeatures\t: {_ARM_FEATURES}\n"
            "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: 0xd85\n"
        )
    family, number = next((ids for part, ids in MODELS.items() if part in cpu.model), (6, 79))
    return (
        f"vendor_id\t: {cpu.vendor}\ncpu family\t: {family}\nmodel\t\t: {number}\n"
        f"model name\t: {cpu.model}\nflags\t\t: {_flags(cpu, family, number)}\n"
    )


def _flags(cpu: machine.Processor, family: int, number: int) -> str:
    if cpu.vendor == "AuthenticAMD":
        return f"{_FLAGS} {_AMD_FLAGS}" + (f" {_AVX512}" if (family, number) >= (25, 17) else "")
    has = [_FLAGS, _INTEL_FLAGS]
    has += [_AVX512] * ((family, number) >= _OLDEST_AVX512)
    has += [_AMX] * ((family, number) >= _OLDEST_AMX)
    return " ".join(has)


def _topology(host: machine.Machine) -> tree.Tree:
    below: tree.Tree = {}
    siblings = _siblings(host)
    for cpu, package in _packages(host).items():
        folder = f"sys/devices/system/cpu/cpu{cpu}/topology"
        below[f"{folder}/physical_package_id"] = tree.text(str(package))
        below[f"{folder}/thread_siblings_list"] = tree.text(siblings.get(cpu, str(cpu)))
    return below


def _siblings(host: machine.Machine) -> dict[int, str]:
    """Threads of one core: two ranges of one length, as `0-55,112-167`, are first and second."""
    found = {}
    for node in host.numa_nodes:
        ranges = re.fullmatch(r"(\d+)-(\d+),(\d+)-(\d+)", node.cpus)
        if ranges is None:
            continue
        first, last, second, end = map(int, ranges.groups())
        if last - first == end - second:
            for cpu in range(first, last + 1):
                other = cpu - first + second
                found[cpu] = found[other] = f"{cpu},{other}"
    return found


def _huge_pages() -> tree.Tree:
    folder = "sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages"
    return {folder.format(size): tree.text("0", 0o644) for size in (2048, 1048576)}


def _interfaces(host: machine.Machine) -> tree.Tree:
    below = _interface("lo", "sys/devices/virtual/net/lo", operstate="unknown", mtu="65536")
    cards = [
        each
        for each in tree_pci.functions(host)
        if each.ids.class_code in _NETWORK and each.driver is not None
    ]
    for index, card in enumerate(cards):
        name = f"{_NETWORK[card.ids.class_code]}{index}"
        folder = f"{card.folder}/net/{name}"
        below |= _interface(name, folder, operstate="up", mtu="4092", speed="400000")
        below[f"{folder}/device"] = tree.relative(f"{folder}/device", card.folder)
        below[f"{card.folder}/sriov_totalvfs"] = tree.text("16")
        below[f"{card.folder}/sriov_numvfs"] = tree.text("0", 0o644)
    return below


def _interface(name: str, folder: str, **values: str) -> tree.Tree:
    below: tree.Tree = {f"{folder}/{key}": tree.text(value) for key, value in values.items()}
    at = f"sys/class/net/{name}"
    return {**below, at: tree.relative(at, folder)}


def _disk() -> tree.Tree:
    values = {"rotational": "0", "zoned": "none", "nr_zones": "0", "dax": "0"}
    below: tree.Tree = {f"{_DISK}/queue/{name}": tree.text(value) for name, value in values.items()}
    return {**below, "sys/block/nvme0n1": tree.relative("sys/block/nvme0n1", _DISK)}
