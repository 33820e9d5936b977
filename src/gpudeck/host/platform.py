# SPDX-License-Identifier: Apache-2.0
"""The machine and its kernel: release, boot id, bare metal or virtual machine.

Everything is read below the host's root. What cannot be told is None, never a guess.
"""

from __future__ import annotations

from gpudeck import errors
from gpudeck.host.root import Root

_CPUINFO_BYTES = 16 * 1024  # The first processor's block; a large machine's file has megabytes.
# Makers in DMI's sys_vendor that only exist as virtual machines, and their products.
_VIRTUAL_VENDORS = (
    "qemu",
    "kvm",
    "vmware",
    "xen",
    "innotek",
    "parallels",
    "bochs",
    "red hat",
    "openstack",
    "google",
    "digitalocean",
    "nutanix",
    "alibaba cloud",
)
_VIRTUAL_PRODUCTS = (
    "kvm",
    "virtual machine",
    "virtual platform",
    "virtualbox",
    "google compute engine",
    "hvm domu",
    "openstack",
    "bhyve",
)


def kernel_release(root: Root) -> str | None:
    """What `uname -r` prints on the node."""
    return _text(root, "/proc/sys/kernel/osrelease")


def boot_id(root: Root) -> str | None:
    """The kernel's random identity of this boot; another value means the node was rebooted."""
    return _text(root, "/proc/sys/kernel/random/boot_id")


def is_bare_metal(root: Root) -> bool | None:
    """False on a virtual machine, by the processor's hypervisor flag or the DMI names.

    x86 processors show the flag in every ordinary guest; Arm has none, so there DMI
    decides alone. None where neither source can be read.
    """
    flags = _processor_flags(root)
    if flags is not None and "hypervisor" in flags:
        return False
    vendor = _text(root, "/sys/class/dmi/id/sys_vendor")
    product = _text(root, "/sys/class/dmi/id/product_name")
    if vendor is None and product is None:
        return None if flags is None else True
    return not _is_virtual(vendor or "", product or "")


def _is_virtual(vendor: str, product: str) -> bool:
    vendor, product = vendor.lower(), product.lower()
    if "amazon ec2" in vendor:  # Names its instance type; `….metal` has no hypervisor below it.
        return ".metal" not in product
    return vendor.startswith(_VIRTUAL_VENDORS) or any(name in product for name in _VIRTUAL_PRODUCTS)


def _processor_flags(root: Root) -> frozenset[str] | None:
    try:
        text = root.read_text("/proc/cpuinfo", limit=_CPUINFO_BYTES)
    except errors.GpudeckError:
        return None
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon and key.strip() == "flags":
            return frozenset(value.split())
    return None


def _text(root: Root, path: str) -> str | None:
    try:
        return root.attribute(path)
    except errors.GpudeckError:
        return None
