# SPDX-License-Identifier: Apache-2.0
"""Features of the domain cpu, on small host trees of several processors."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.hostfiles import HostFiles

from gpudeck.features import labelling
from gpudeck.features.known import Known
from gpudeck.features.sources import cpu

CPUS = "sys/devices/system/cpu"
CLOCKS = "sys/devices/system/clocksource/clocksource0"
DMI = "sys/devices/virtual/dmi/id"


@pytest.fixture
def tree(tmp_path: Path) -> HostFiles:
    return HostFiles(tmp_path)


def found(tree: HostFiles, flags: str = "", name: str = "A processor") -> dict[str, dict[str, str]]:
    """What is known of an Intel processor with these flags besides what stands in the tree."""
    tree.write(
        "proc/cpuinfo",
        f"processor : 0\nvendor_id : GenuineIntel\nmodel name : {name}\nflags : fpu {flags}\n",
    )
    known = Known()
    assert cpu.read(tree.root, known) == []
    return known.attributes


def test_processor_flags_have_the_names_that_labels_use(tree: HostFiles) -> None:
    tree.write(
        "proc/cpuinfo",
        "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n"
        "flags\t\t: fpu tsc sse4_1 sse4_2 pni avx512_vnni amx_tile aes fma abm hypervisor "
        "rdt_a cat_l3\n\n"
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
def test_keys_of_confidential_machines_are_counted(tree: HostFiles, folder: str) -> None:
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


def test_arm_processors_are_understood(tree: HostFiles) -> None:
    tree.write("proc/cpuinfo", "processor : 0\nFeatures : fp asimd sve2\nCPU implementer : 0x41\n"
               "CPU architecture: 8\nCPU part : 0xd40\n")  # fmt: skip
    known = Known()
    cpu.read(tree.root, known)
    assert known.flags["cpu.cpuid"] == {"FP", "ASIMD", "SVE2"}
    assert known.attributes["cpu.model"] == {
        "vendor_id": "ARM", "family": "8", "id": "3392", "hypervisor": "none",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "features"),
    [
        ("cqm", []),
        ("cqm cqm_llc", ["RDTMON"]),
        ("cqm cqm_llc cqm_occup_llc cqm_mbm_total", ["RDTMON", "RDTCMT"]),
        ("cqm cqm_llc cqm_mbm_total cqm_mbm_local", ["RDTMON", "RDTMBM"]),
        ("cat_l3", []),
        ("rdt_a cat_l2 mba", ["RDTL2CA", "RDTMBA"]),
    ],
)
def test_caches_and_bandwidth_can_be_shared_out(
    tree: HostFiles, flags: str, features: list[str]
) -> None:
    assert found(tree, flags)["cpu.rdt"] == dict.fromkeys(features, "true")


def test_groups_of_the_cache_are_counted_without_the_default_one(tree: HostFiles) -> None:
    tree.values("sys/fs/resctrl/info/L3", num_closids="16")
    assert found(tree, "rdt_a cat_l3")["cpu.rdt"] == {
        "RDTL3CA": "true",
        "RDTL3CA_NUM_CLOSID": "15",
    }
    assert found(tree, "rdt_a cat_l2")["cpu.rdt"] == {"RDTL2CA": "true"}


@pytest.mark.parametrize(
    ("driver", "deepest", "state"),
    [
        ("intel_idle", "9", {"enabled": "true"}),
        ("intel_idle", "0", {"enabled": "false"}),
        ("acpi_idle", "9", {}),
    ],
)
def test_sleeping_states_are_those_of_intels_driver(
    tree: HostFiles, driver: str, deepest: str, state: dict[str, str]
) -> None:
    tree.values(f"{CPUS}/cpuidle", current_driver=driver)
    tree.values("sys/module/intel_idle/parameters", max_cstate=deepest)
    assert found(tree)["cpu.cstate"] == state


def test_a_governor_is_told_if_all_processors_have_it(tree: HostFiles) -> None:
    tree.values(f"{CPUS}/intel_pstate", status="active", no_turbo="1")
    tree.values(f"{CPUS}/cpufreq/policy0", affected_cpus="0", scaling_governor="performance")
    tree.values(f"{CPUS}/cpufreq/policy1", affected_cpus="", scaling_governor="powersave")
    wanted = {"status": "active", "turbo": "false"}
    assert found(tree)["cpu.pstate"] == {**wanted, "scaling_governor": "performance"}
    tree.values(f"{CPUS}/cpufreq/policy2", affected_cpus="2", scaling_governor="powersave")
    assert found(tree)["cpu.pstate"] == wanted


def test_a_driver_that_is_off_has_no_state(tree: HostFiles) -> None:
    tree.values(f"{CPUS}/intel_pstate", status="off", no_turbo="1")
    assert found(tree)["cpu.pstate"] == {}


NAMED = "Intel(R) Xeon(R) Gold 6252N CPU @ 2.30GHz"


@pytest.mark.parametrize(
    ("name", "base", "nominal", "has_more"),
    [
        (NAMED, "2800000", "", True),
        (NAMED, "2300000", "", False),
        ("INTEL(R) XEON(R) PLATINUM 8480+", "2500000", "2000", True),
        ("INTEL(R) XEON(R) PLATINUM 8480+", "2000000", "2000", False),
        ("INTEL(R) XEON(R) PLATINUM 8480+", "2500000", "", False),
    ],
)
def test_cores_with_a_higher_base_frequency_are_found(
    tree: HostFiles, name: str, base: str, nominal: str, has_more: bool
) -> None:
    tree.values(f"{CPUS}/intel_pstate", status="active")
    tree.values(f"{CPUS}/cpu0/cpufreq", base_frequency="2000000")
    tree.values(f"{CPUS}/cpu1/cpufreq", base_frequency=base)
    tree.values(f"{CPUS}/cpu0/acpi_cppc", nominal_freq=nominal)
    sst = found(tree, name=name)["cpu.sst"]
    assert sst == ({"bf.enabled": "true"} if has_more else {})
    labels = labelling.labels(Known(attributes={"cpu.sst": sst}), labelling.Choices())
    assert ("feature.node.kubernetes.io/cpu-power.sst_bf.enabled" in labels) is has_more


def test_the_compressor_of_power_processors_is_found(tree: HostFiles) -> None:
    assert found(tree)["cpu.coprocessor"] == {}
    tree.write("sys/devices/vio/ibm,compression-v1/nx_gzip_caps/req_max_processed_len", "1")
    assert found(tree)["cpu.coprocessor"] == {"nx_gzip": "true"}


@pytest.mark.parametrize(
    ("flags", "clocks", "made", "expected"),
    [
        ("", "kvm-clock tsc", ("QEMU", ""), "none"),
        ("hypervisor", "kvm-clock tsc acpi_pm", ("QEMU", ""), "kvm"),
        ("hypervisor", "hyperv_clocksource_tsc_page acpi_pm", ("", ""), "msvm"),
        ("hypervisor", "xen tsc", ("", ""), "xenhvm"),
        ("hypervisor", "tsc", ("VMware, Inc.", "VMware7,1"), "vmware"),
        ("hypervisor", "tsc", ("Microsoft Corporation", "Virtual Machine"), "msvm"),
        ("hypervisor", "tsc", ("Amazon EC2", "p5.48xlarge"), "kvm"),
        ("hypervisor", "tsc", ("Somebody", "Something"), "unknown"),
    ],
)
def test_the_hypervisor_is_known_by_its_clock_or_its_firmware(
    tree: HostFiles, flags: str, clocks: str, made: tuple[str, str], expected: str
) -> None:
    tree.values(CLOCKS, available_clocksource=clocks)
    tree.values(DMI, sys_vendor=made[0], product_name=made[1])
    assert found(tree, flags)["cpu.model"]["hypervisor"] == expected


@pytest.mark.parametrize(
    ("made", "expected"),
    [(("Amazon EC2", "c7g.metal"), "none"), (("Amazon EC2", "g5g.xlarge"), "kvm")],
)
def test_without_a_flag_the_firmware_says_whether_there_is_a_hypervisor(
    tree: HostFiles, made: tuple[str, str], expected: str
) -> None:
    tree.write("proc/cpuinfo", "processor : 0\nFeatures : fp asimd\nCPU implementer : 0x41\n")
    tree.values(DMI, sys_vendor=made[0], product_name=made[1])
    known = Known()
    cpu.read(tree.root, known)
    assert known.attributes["cpu.model"]["hypervisor"] == expected


def test_a_mainframe_names_its_hypervisor_and_its_protection(tree: HostFiles) -> None:
    tree.write("proc/cpuinfo", "vendor_id : IBM/S390\nfeatures : esan3 zarch vxe2 dfp\n")
    tree.write(
        "proc/sysinfo", "VM00 Name:            GUEST1\nVM00 Control Program: z/VM    7.3.0\n"
    )
    tree.values("sys/firmware/uv", prot_virt_host="1")
    known = Known()
    cpu.read(tree.root, known)
    assert known.flags["cpu.cpuid"] == {"ESAN3", "ZARCH", "VXE2", "DFP"}
    assert known.attributes["cpu.model"] == {"vendor_id": "IBM/S390", "hypervisor": "z_VM_7.3.0"}
    assert known.attributes["cpu.security"] == {"se.enabled": "true"}


def test_the_version_of_the_tdx_module_is_told_in_parts(tree: HostFiles) -> None:
    tree.values("sys/devices/faux/tdx_host", version="1.5.24")
    assert found(tree)["cpu.security"] == {
        "tdx.module-version.full": "1.5.24",
        "tdx.module-version.major": "1",
        "tdx.module-version.minor": "5",
        "tdx.module-version.revision": "24",
    }
    tree.values("sys/devices/faux/tdx_host", version="none yet")
    assert found(tree)["cpu.security"] == {}


def test_one_sick_attribute_of_a_processor_costs_itself(tree: HostFiles) -> None:
    tree.write("proc/cpuinfo", "processor : 0\nflags : fpu\n")
    tree.values(f"{CPUS}/cpu0/topology", thread_siblings_list="0", physical_package_id="0")
    tree.sick(f"{CPUS}/cpu1/topology/physical_package_id")
    tree.sick("sys/module/kvm_intel/parameters/tdx")
    known = Known()
    assert len(cpu.read(tree.root, known)) == 2
    assert known.flags["cpu.cpuid"] == {"X87"}
    assert known.attributes["cpu.topology"]["socket_count"] == "1"
