# SPDX-License-Identifier: Apache-2.0
"""The features of the domain cpu: cpuid, model, topology, rdt, coprocessor, and `power`'s.

What a processor can do is read from /proc/cpuinfo, because the instruction CPUID would speak
of the machine that this process runs on, not of the host root. So a feature that the kernel
does not use or has switched off is absent. The names are those of node-feature-discovery,
which differ from the kernel's here and there (`_NAMES`). `power` and `confidential` read what
is not in that file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from gpudeck.features.known import Known
from gpudeck.features.sources import confidential, power
from gpudeck.features.sources.attributes import ABSENT, Attributes
from gpudeck.host.root import Root

_BYTES = 16 * 1024  # The first processor's block; a large machine's file has megabytes.
_CPUS = "/sys/devices/system/cpu"
_NAMES = {
    "3dnow": "AMD3DNOW",
    "3dnowext": "AMD3DNOWEXT",
    "abm": "LZCNT",
    "aes": "AESNI",
    "apx": "APX_F",
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
    LAHF LAM LZCNT MD_CLEAR MMX MMXEXT MOVBE MOVDIR64B MOVDIRI MPX MSRLIST NRIPS NX OSXSAVE PCONFIG
    POPCNT PREFETCHI RDPRU RDRAND RDSEED RDTSCP RTM SERIALIZE SEV SEV_ES SEV_SNP SGX SGXLC SHA
    SM3_X86 SM4_X86 SME SRBDS_CTRL SSE SSE2 SSE3 SSE4 SSE42 SSE4A SSSE3 STIBP SUCCOR SVM SYSCALL
    SYSEE TBM TDX_GUEST TME TOPEXT TSXLDTRK VAES VMCBCLEAN VMX VPCLMULQDQ VTE WAITPKG WBNOINVD
    WRMSRNS X87 XGETBV1 XOP XSAVE XSAVEC XSAVEOPT XSAVES
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
    "RDTMON": {"cqm", "cqm_llc"},
    "RDTCMT": {"cqm", "cqm_llc", "cqm_occup_llc"},
    "RDTMBM": {"cqm", "cqm_llc", "cqm_mbm_total", "cqm_mbm_local"},
    "RDTL3CA": {"rdt_a", "cat_l3"},
    "RDTL2CA": {"rdt_a", "cat_l2"},
    "RDTMBA": {"rdt_a", "mba"},
}
"""The kernel's words for the bits of CPUID that node-feature-discovery v0.19 asks for."""
_CLASSES = "/sys/fs/resctrl/info/L3/num_closids"
_CLOCKS = {
    "kvm-clock": "kvm",
    "hyperv_clocksource_tsc_page": "msvm",
    "hyperv_clocksource_msr": "msvm",
    "xen": "xenhvm",
}
"""A clock that only one hypervisor gives its guests."""
_MAKERS = {"VMware": "vmware", "QEMU": "qemu", "Xen": "xenhvm", "Amazon EC2": "kvm",
           "Google": "kvm"}  # fmt: skip


def read(root: Root, known: Known) -> list[str]:
    """Add what is known of the processors. NotFoundError where /proc is not there."""
    block = first_block(root.read_text("/proc/cpuinfo", limit=_BYTES))
    attributes = Attributes(root)
    words = (block.get("flags") or block.get("Features") or block.get("features") or "").split()
    found = {cpuid_name(word) for word in words}
    known.flags["cpu.cpuid"] = found & _KNOWN if "flags" in block else found
    known.attributes["cpu.model"] = {
        **model(block),
        "hypervisor": _hypervisor(root, attributes, words if "flags" in block else None),
    }
    known.attributes["cpu.rdt"] = _rdt(set(words), attributes)
    known.attributes["cpu.topology"] = _topology(root, attributes)
    gzip = root.exists("/sys/devices/vio/ibm,compression-v1/nx_gzip_caps")
    known.attributes["cpu.coprocessor"] = {"nx_gzip": "true"} if gzip else {}
    known.attributes["cpu.cstate"] = power.cstate(attributes)
    known.attributes["cpu.pstate"] = power.pstate(root, attributes)
    known.attributes["cpu.sst"] = power.sst(root, attributes, block)
    known.attributes["cpu.security"] = confidential.read(root, attributes, words)
    return attributes.left_out


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


def model(block: Mapping[str, str]) -> dict[str, str]:
    """Maker, family and number of the model."""
    vendor = block.get("vendor_id") or block.get("CPU implementer")
    names = {
        "vendor_id": _VENDORS.get(vendor or "") or _ARM.get(vendor or "") or vendor,
        "family": block.get("cpu family") or _decimal(block.get("CPU architecture")),
        "id": block.get("model") or _decimal(block.get("CPU part")),
    }
    return {name: value for name, value in names.items() if value is not None}


def _hypervisor(root: Root, attributes: Attributes, flags: Collection[str] | None) -> str:
    """The hypervisor below, as its CPUID names it; `flags` are x86's, None elsewhere.

    `none` is no hypervisor, `unknown` one that neither its clock nor the firmware names.
    """
    program = _control_program(root)
    if program:
        return program
    if flags is not None and "hypervisor" not in flags:
        return "none"
    clocks = attributes.get("/sys/devices/system/clocksource/clocksource0/available_clocksource")
    for clock in (clocks or "").split():
        if clock in _CLOCKS:
            return _CLOCKS[clock]
    made = attributes.of("/sys/devices/virtual/dmi/id", ("sys_vendor", "product_name"))
    maker, product = made.get("sys_vendor", ""), made.get("product_name", "")
    if product == "Virtual Machine" and maker.startswith("Microsoft"):
        return "msvm"
    named = next((name for start, name in _MAKERS.items() if maker.startswith(start)), None)
    if named is not None and not product.endswith("metal"):
        return named
    return "none" if flags is None else "unknown"


def _control_program(root: Root) -> str:
    """The hypervisor that /proc/sysinfo of s390x names; empty elsewhere."""
    try:
        text = root.read_text("/proc/sysinfo")
    except ABSENT:
        return ""
    found = re.search(r"Control Program:[ \t]*(\S.*)", text)
    return re.sub(r"[^-A-Za-z0-9_.]+", "_", found[1].strip()) if found is not None else ""


def _rdt(words: set[str], attributes: Attributes) -> dict[str, str]:
    found = {name: "true" for name, needed in _RDT.items() if needed <= words}
    classes = attributes.get(_CLASSES) if "RDTL3CA" in found else None
    if classes is not None and classes.isdigit():
        # The default group has one of them.
        found["RDTL3CA_NUM_CLOSID"] = str(int(classes) - 1)
    return found


def _decimal(text: str | None) -> str | None:
    try:
        return str(int(text, 0)) if text is not None else None
    except ValueError:
        return None


def _topology(root: Root, attributes: Attributes) -> dict[str, str]:
    threads, sockets = False, set()
    for name in root.list(_CPUS):
        if not re.fullmatch(r"cpu[0-9]+", name):
            continue
        siblings = attributes.get(f"{_CPUS}/{name}/topology/thread_siblings_list") or ""
        threads = threads or bool(re.search("[-,]", siblings))
        sockets.add(attributes.get(f"{_CPUS}/{name}/topology/physical_package_id"))
    sockets.discard(None)
    if not sockets:
        return {}
    return {
        "hardware_multithreading": "true" if threads else "false",
        "socket_count": str(len(sockets)),
    }
