# SPDX-License-Identifier: Apache-2.0
"""The labels that every node gets without a rule, from what is known of it. Pure.

Names are `<source>-<name>` in the namespace feature.node.kubernetes.io, values are made valid
or, where that cannot be, left out. What stands in features.d keeps the name that it has there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from gpudeck.api import labels as known_labels
from gpudeck.api import names
from gpudeck.api.nodefeatures import Expression, Rule, Term
from gpudeck.features.known import Element, Known
from gpudeck.features.rules import evaluating, patterns

SOURCES = (
    "cpu",
    "custom",
    "kernel",
    "local",
    "memory",
    "network",
    "pci",
    "storage",
    "system",
    "usb",
)
PCI_FIELDS = ("class", "vendor", "device", "subsystem_vendor", "subsystem_device")
USB_FIELDS = ("class", "vendor", "device", "serial")
_OS_NAMES = ("ID", "VERSION_ID", "VERSION_ID.major", "VERSION_ID.minor", "OSTREE_VERSION")
_PLAIN = {
    "cpu.coprocessor": "cpu-coprocessor.",
    "cpu.cpuid": "cpu-cpuid.",
    "cpu.cstate": "cpu-cstate.",
    "cpu.model": "cpu-model.",
    "cpu.pstate": "cpu-pstate.",
    "cpu.security": "cpu-security.",
    "cpu.sst": "cpu-power.sst_",
    "kernel.version": "kernel-version.",
}
"""Features of which every value is a label, and how its name begins."""
_HIDDEN_VALUES = frozenset({"sgx.epc", "tdx.total_keys", "sev.asids", "sev.encrypted_state_ids"})
CPUID_HIDDEN = (
    "AVX10", "BMI1", "BMI2", "CLMUL", "CMOV", "CX16", "ERMS", "F16C", "HTT", "LZCNT", "MMX",
    "MMXEXT", "NX", "POPCNT", "RDRAND", "RDSEED", "RDTSCP", "SGX", "SGXLC", "SSE", "SSE2", "SSE3",
    "SSE4", "SSE42", "SSSE3", "TDX_GUEST",
)  # fmt: skip


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """Which features become labels; the defaults are node-feature-discovery's."""

    sources: tuple[str, ...] = SOURCES
    """Of whose features there are labels."""
    pci_classes: tuple[str, ...] = ("03", "0b40", "12")
    """Beginnings of the classes of PCI devices."""
    pci_fields: tuple[str, ...] = ("class", "vendor")
    usb_classes: tuple[str, ...] = ("0e", "ef", "fe", "ff")
    usb_fields: tuple[str, ...] = ("class", "vendor", "device")
    cpuid_hidden: tuple[str, ...] = CPUID_HIDDEN
    cpuid_shown: tuple[str, ...] = ()
    """If there are any, only these have labels, hidden or not."""
    kernel_options: tuple[str, ...] = ("NO_HZ", "NO_HZ_IDLE", "NO_HZ_FULL", "PREEMPT")
    whitelist: str = ""
    """A pattern that the name without its namespace must fit."""


def labels(known: Known, choices: Choices) -> dict[str, str]:
    """Return all labels by their full names."""
    built_in = {
        **_plain(known),
        **_cpu(known, choices),
        **_kernel(known, choices),
        **_memory_and_storage(known),
        **_network(known),
        **_devices(known.instances.get("pci.device", ()), "pci", choices),
        **_devices(known.instances.get("usb.device", ()), "usb", choices),
        **_system(known),
        **_rdma(known),
    }
    # The names of these begin with that of their source; those of features.d are anything.
    found = {
        name: value for name, value in built_in.items() if name.partition("-")[0] in choices.sources
    }
    if "local" in choices.sources:
        found.update(known.attributes.get("local.label", {}))
    prefixed = {full_name(name): value for name, value in found.items()}
    return {name: value for name, value in sorted(prefixed.items()) if _fits(name, choices)}


def full_name(name: str) -> str:
    """The name with the namespace that names without one get."""
    return name if "/" in name else f"{known_labels.FEATURE_NAMESPACE}/{name}"


def _fits(name: str, choices: Choices) -> bool:
    if not choices.whitelist:
        return True
    own = name.partition("/")[2]
    # A longer one is no name of a label, and might take too long.
    return len(own) <= 63 and patterns.compiled(choices.whitelist, "--label-whitelist").search(own)


def _plain(known: Known) -> dict[str, str]:
    found = {}
    for feature, start in _PLAIN.items():
        for name, value in known.attributes.get(feature, {}).items():
            if name not in _HIDDEN_VALUES:
                found[start + name] = names.label_value(value)
    return found


def _cpu(known: Known, choices: Choices) -> dict[str, str]:
    flags = known.flags.get("cpu.cpuid", set())
    shown = (
        flags & set(choices.cpuid_shown)
        if choices.cpuid_shown
        else (flags - set(choices.cpuid_hidden))
    )
    found = {f"cpu-cpuid.{flag}": "true" for flag in shown}
    threads = known.attributes.get("cpu.topology", {}).get("hardware_multithreading")
    return {**found, "cpu-hardware_multithreading": threads} if threads is not None else found


def _kernel(known: Known, choices: Choices) -> dict[str, str]:
    options = known.attributes.get("kernel.config", {})
    found = {
        f"kernel-config.{name}": "true"
        if options[name] in "ym"
        else names.label_value(options[name])
        for name in choices.kernel_options
        if options.get(name)
    }
    if known.attributes.get("kernel.selinux", {}).get("enabled") == "true":
        found["kernel-selinux.enabled"] = "true"
    return found


def _memory_and_storage(known: Known) -> dict[str, str]:
    nv = known.instances.get("memory.nv", [])
    block = known.instances.get("storage.block", [])
    has_swap = known.attributes.get("memory.swap", {}).get("enabled") == "true"
    found = {
        "memory-numa": known.attributes.get("memory.numa", {}).get("is_numa") == "true",
        "memory-swap": has_swap,
        "memory-swap.enabled": has_swap,
        "memory-nv.present": bool(nv),
        "memory-nv.dax": any(each.get("devtype") == "nd_dax" for each in nv),
        "storage-nonrotationaldisk": any(each.get("rotational") == "0" for each in block),
    }
    return {name: "true" for name, is_so in found.items() if is_so}


def _network(known: Known) -> dict[str, str]:
    devices = known.instances.get("network.device", [])
    found = {
        "network-sriov.capable": any(_is_positive(each, "sriov_totalvfs") for each in devices),
        "network-sriov.configured": any(_is_positive(each, "sriov_numvfs") for each in devices),
    }
    return {name: "true" for name, is_so in found.items() if is_so}


def _devices(devices: Iterable[Element], bus: str, choices: Choices) -> dict[str, str]:
    is_pci = bus == "pci"
    classes = choices.pci_classes if is_pci else choices.usb_classes
    fields = _chosen(choices.pci_fields if is_pci else choices.usb_fields, is_pci)
    found = {}
    for device in devices:
        if not device.get("class", "").startswith(tuple(each.lower() for each in classes)):
            continue
        name = f"{bus}-" + "_".join(names.label_value(device.get(each, "")) for each in fields)
        found[f"{name}.present"] = "true"
        if _is_positive(device, "sriov_totalvfs"):
            found[f"{name}.sriov.capable"] = "true"
    return found


def _chosen(wanted: Collection[str], is_pci: bool) -> list[str]:
    """The fields in their fixed order; the default where none of them is known."""
    known = PCI_FIELDS if is_pci else USB_FIELDS
    return [each for each in known if each in wanted] or list(known[: 2 if is_pci else 3])


def _system(known: Known) -> dict[str, str]:
    values = known.attributes.get("system.osrelease", {})
    return {
        f"system-os_release.{name}": names.label_value(values[name])
        for name in _OS_NAMES
        if values.get(name)
    }


def _rdma(known: Known) -> dict[str, str]:
    """Two rules that node-feature-discovery has built in."""
    rules = (
        Rule(
            name="rdma.capable",
            labels={"custom-rdma.capable": "true"},
            match_features=[
                Term(
                    feature="pci.device",
                    match_expressions={"vendor": Expression(op="In", value=["15b3"])},
                )
            ],
        ),
        Rule(
            name="rdma.available",
            labels={"custom-rdma.available": "true"},
            match_features=[
                Term(
                    feature="kernel.loadedmodule",
                    match_expressions={
                        "ib_uverbs": Expression(op="Exists"),
                        "rdma_ucm": Expression(op="Exists"),
                    },
                )
            ],
        ),
    )
    found: dict[str, str] = {}
    for rule in rules:
        found.update(evaluating.execute(rule, known, "built in").labels)
    return found


def _is_positive(device: Mapping[str, str], name: str) -> bool:
    text = device.get(name, "0")
    return text.isdigit() and int(text) > 0
