# SPDX-License-Identifier: Apache-2.0
"""The features of the domain cpu: cpuid, model, topology, cstate, pstate, rdt, security.

What a processor can do is read from /proc/cpuinfo, because the instruction CPUID would speak
of the machine that this process runs on, not of the host root. So a feature that the kernel
does not use or has switched off is absent. The names are those of node-feature-discovery,
which differ from the kernel's here and there (`_NAMES`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpudeck import errors
from gpudeck.features.known import Known
from gpudeck.host.root import Root

_BYTES = 16 * 1024  # The first processor's block; a large machine's file has megabytes.
_CPUS = "/sys/devices/system/cpu"
_NAMES = {
    "3dnow": "AMD3DNOW",
    "3dnowext": "AMD3DNOWEXT",
    "abm": "LZCNT",
    "aes": "AESNI",
    "cpb": "CPBOOST",
    "cx8": "CMPXCHG8",
    "fma": "FMA3",
    "fpu": "X87",
    "ht": "HTT",
    "ibt": "CETIBT",
    "lahf_lm": "LAHF",
    "mwaitx": "MWAITX",
    "pclmulqdq": "CLMUL",
    "pni": "SSE3",
    "sep": "SYSEE",
    "sha_ni": "SHA",
    "sse4_1": "SSE4",
    "sse4_2": "SSE42",
    "topoext": "TOPEXT",
    "user_shstk": "CETSS",
}
_KEPT = {"flush_l1d": "FLUSH_L1D", "hybrid_cpu": "HYBRID_CPU", "md_clear": "MD_CLEAR",
         "sev_es": "SEV_ES", "sev_snp": "SEV_SNP", "tdx_guest": "TDX_GUEST",
         "srbds_ctrl": "SRBDS_CTRL"}  # fmt: skip
_KNOWN = frozenset(
    """
    ADX AESNI AMD3DNOW AMD3DNOWEXT AMXBF16 AMXCOMPLEX AMXFP16 AMXFP8 AMXINT8 AMXTF32 AMXTILE
    AMXTRANSPOSE APX_F AVX AVX10 AVX2 AVX512BF16 AVX512BITALG AVX512BW AVX512CD AVX512DQ AVX512ER
    AVX512F AVX512FP16 AVX512IFMA AVX512PF AVX512VBMI AVX512VBMI2 AVX512VL AVX512VNNI
    AVX512VP2INTERSECT AVX512VPOPCNTDQ AVXIFMA AVXNECONVERT AVXVNNI AVXVNNIINT16 AVXVNNIINT8 BMI1
    BMI2 CETIBT CETSS CLDEMOTE CLMUL CLZERO CMOV CMPCCXADD CMPXCHG8 CPBOOST CPPC CX16 ENQCMD ERMS
    F16C FLUSH_L1D FMA3 FMA4 FSRM FXSR FXSROPT GFNI HLE HTT HYBRID_CPU HYPERVISOR IBPB IBRS INVLPGB
    LAHF LAM LZCNT MD_CLEAR MMX MMXEXT MOVBE MOVDIR64B MOVDIRI MPX NRIPS NX OSXSAVE PCONFIG POPCNT
    PREFETCHI RDPRU RDRAND RDSEED RDTSCP RTM SERIALIZE SEV SEV_ES SEV_SNP SGX SGXLC SHA SM3_X86
    SM4_X86 SME SRBDS_CTRL SSE SSE2 SSE3 SSE4 SSE42 SSE4A SSSE3 STIBP SUCCOR SVM SYSCALL SYSEE TBM
    TDX_GUEST TME TOPEXT TSXLDTRK VAES VMCBCLEAN VMX VPCLMULQDQ VTE WAITPKG WBNOINVD X87 XGETBV1 XOP
    XSAVE XSAVEC XSAVEOPT XSAVES
    """.split()  # noqa: SIM905 (a list of a hundred words reads better so)
)
"""What node-feature-discovery knows on x86; of the kernel's other words nothing is said."""
_VENDORS = {
    "GenuineIntel": "Intel",
    "AuthenticAMD": "AMD",
    "HygonGenuine": "Hygon",
    "CentaurHauls": "VIA",
    "  Shanghai  ": "Zhaoxin",
}
_ARM = {"0x41": "ARM", "0x46": "Fujitsu", "0x48": "HiSilicon", "0x4e": "NVIDIA", "0xc0": "Ampere"}
_RDT = {
    "cqm": "RDTMON",
    "cqm_occup_llc": "RDTCMT",
    "cqm_mbm_total": "RDTMBM",
    "cat_l3": "RDTL3CA",
    "cat_l2": "RDTL2CA",
    "mba": "RDTMBA",
}


def read(root: Root, known: Known) -> list[str]:
    """Add what is known of the processors. NotFoundError where /proc is not there."""
    block = first_block(root.read_text("/proc/cpuinfo", limit=_BYTES))
    flags = (block.get("flags") or block.get("Features") or "").split()
    found = {cpuid_name(flag) for flag in flags}
    known.flags["cpu.cpuid"] = found & _KNOWN if "flags" in block else found
    known.attributes["cpu.model"] = model(block, flags)
    known.attributes["cpu.rdt"] = {_RDT[flag]: "true" for flag in flags if flag in _RDT}
    known.attributes["cpu.topology"] = _topology(root)
    known.attributes["cpu.cstate"] = _present(
        {"enabled": _cstate(root.attribute("/sys/module/intel_idle/parameters/max_cstate"))}
    )
    known.attributes["cpu.pstate"] = _pstate(root)
    known.attributes["cpu.security"] = _security(root, flags)
    return []


def first_block(text: str) -> dict[str, str]:
    """The values of the first processor of /proc/cpuinfo."""
    values: dict[str, str] = {}
    for line in text.partition("\n\n")[0].splitlines():
        key, colon, value = line.partition(":")
        if colon:
            values[key.strip()] = value.strip()
    return values


def cpuid_name(flag: str) -> str:
    """The name of a kernel's flag in labels: `avx512_vnni` is AVX512VNNI, `sse4_1` is SSE4."""
    return _NAMES.get(flag) or _KEPT.get(flag) or flag.replace("_", "").upper()


def model(block: Mapping[str, str], flags: list[str]) -> dict[str, str]:
    """Maker, family and number of the model, and whether there is a hypervisor below."""
    vendor = block.get("vendor_id") or block.get("CPU implementer")
    names = {
        "vendor_id": _VENDORS.get(vendor or "") or _ARM.get(vendor or "") or vendor,
        "family": block.get("cpu family") or _decimal(block.get("CPU architecture")),
        "id": block.get("model") or _decimal(block.get("CPU part")),
    }
    if flags and "flags" in block:
        names["hypervisor"] = "unknown" if "hypervisor" in flags else "none"
    return _present(names)


def _decimal(text: str | None) -> str | None:
    try:
        return str(int(text, 0)) if text is not None else None
    except ValueError:
        return None


def _topology(root: Root) -> dict[str, str]:
    threads, sockets = False, set()
    for name in root.list(_CPUS):
        if not re.fullmatch(r"cpu[0-9]+", name):
            continue
        siblings = root.attribute(f"{_CPUS}/{name}/topology/thread_siblings_list") or ""
        threads = threads or bool(re.search("[-,]", siblings))
        sockets.add(root.attribute(f"{_CPUS}/{name}/topology/physical_package_id"))
    sockets.discard(None)
    if not sockets:
        return {}
    return {"hardware_multithreading": _word(threads), "socket_count": str(len(sockets))}


def _cstate(deepest: str | None) -> str | None:
    return None if deepest is None else _word(deepest != "0")


def _pstate(root: Root) -> dict[str, str]:
    status = root.attribute(f"{_CPUS}/intel_pstate/status")
    if status is None:
        return {}
    no_turbo = root.attribute(f"{_CPUS}/intel_pstate/no_turbo")
    governors = {
        root.attribute(f"{_CPUS}/cpufreq/{name}/scaling_governor")
        for name in root.list(f"{_CPUS}/cpufreq")
        if name.startswith("policy")
    } - {None}
    turbo = None if no_turbo is None else _word(no_turbo == "0")
    found = {"status": status, "turbo": turbo}
    if status == "active" and len(governors) == 1:
        found["scaling_governor"] = governors.pop()
    return _present(found)


def _security(root: Root, flags: list[str]) -> dict[str, str]:
    """Only what is so, as node-feature-discovery has it: a feature that is off has no name.

    With a feature that has a limited number of keys comes their number.
    """
    amd, intel = "/sys/module/kvm_amd/parameters", "/sys/module/kvm_intel/parameters"
    sgx_bytes = _sgx_bytes(root) if "sgx" in flags else 0
    found = {
        "sgx.enabled": sgx_bytes > 0,
        "tdx.enabled": _is_on(root, f"{intel}/tdx"),
        "tdx.protected": "tdx_guest" in flags,
        "se.enabled": _is_on(root, "/sys/firmware/uv/prot_virt_host"),
        "sev.enabled": _is_on(root, f"{amd}/sev"),
        "sev.es.enabled": _is_on(root, f"{amd}/sev_es"),
        "sev.snp.enabled": _is_on(root, f"{amd}/sev_snp"),
    }
    capacity = _capacity(root)
    amounts = {
        "sgx.epc": str(sgx_bytes) if sgx_bytes else None,
        "tdx.total_keys": capacity.get("tdx") if found["tdx.enabled"] else None,
        "sev.asids": capacity.get("sev") if found["sev.enabled"] else None,
        "sev.encrypted_state_ids": capacity.get("sev_es") if found["sev.es.enabled"] else None,
    }
    return {name: "true" for name, is_so in found.items() if is_so} | _present(amounts)


def _capacity(root: Root) -> dict[str, str]:
    """What the cgroup controller misc has to give, by name; of the second or the first version."""
    for path in ("/sys/fs/cgroup/misc.capacity", "/sys/fs/cgroup/misc/misc.capacity"):
        try:
            lines = root.read_text(path).splitlines()
        except errors.GpudeckError:
            continue
        pairs = (line.split() for line in lines)
        return {pair[0]: pair[1] for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
    return {}


def _sgx_bytes(root: Root) -> int:
    folder = "/sys/devices/system/node"
    total = 0
    for name in root.list(folder):
        text = root.attribute(f"{folder}/{name}/x86/sgx_total_bytes") or "0"
        total += int(text) if text.isdigit() else 0
    return total


def _is_on(root: Root, path: str) -> bool:
    try:
        return root.attribute(path) in ("Y", "1")
    except errors.GpudeckError:
        return False


def _present(values: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}


def _word(is_so: bool) -> str:
    return "true" if is_so else "false"
