# SPDX-License-Identifier: Apache-2.0
"""Which devices are on the PCI bus, from /sys/bus/pci/devices below the host's root.

A device that cannot be read is left out with the reason (`Scan.failures`) and never
stops the rest. An attribute that is missing or has no value is None; NUMA node -1,
the kernel's word for "unknown", is None too. Which devices count as GPUs is not
decided here.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from gpudeck import errors
from gpudeck.host.root import Root

DEVICES = "/sys/bus/pci/devices"
_ADDRESS = re.compile(r"([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})\.([0-7])")
_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")


class PciDevice(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One PCI function. Numbers are as in configuration space."""

    address: str
    """As sysfs spells it: `0000:1b:00.0`, lower case."""
    class_code: int
    """24 bits: base class, sub-class, programming interface, e.g. 0x030200."""
    vendor: int
    device: int
    subsystem_vendor: int | None = None
    subsystem_device: int | None = None
    numa_node: int | None = None
    iommu_group: int | None = None
    pcie_root: str | None = None
    """The host bridge, e.g. `pci0000:15`; devices that share it are near each other."""
    driver: str | None = None
    """Name of the kernel driver that is bound, e.g. `nvidia` or `vfio-pci`."""
    is_virtual_function: bool = False
    functions: tuple[str, ...] = ()
    """Addresses of all functions of the slot, this one included."""

    @property
    def slot(self) -> str:
        """The address without its function: `0000:1b:00`."""
        return self.address.rpartition(".")[0]

    @property
    def function(self) -> int:
        """The function number, 0 to 7."""
        return int(self.address[-1])


class Failure(msgspec.Struct, frozen=True, gc=False):
    """A device that is on the bus and cannot be read."""

    address: str
    message: str


class Scan(msgspec.Struct, frozen=True):
    """What one look at the bus gave, each list by address."""

    devices: tuple[PciDevice, ...]
    failures: tuple[Failure, ...]
    present: tuple[str, ...] = ()
    """Addresses of all functions on the bus, wanted or not, readable or not."""


Wanted = Callable[[int, int], bool]
"""(class code, vendor) → whether the device's other attributes are to be read."""


def scan(root: Root, wanted: Wanted = lambda class_code, vendor: True) -> Scan:
    """Read every device that `wanted` accepts. A host without a PCI bus has no devices."""
    root = root.look()
    names = [name for name in root.list(DEVICES) if _ADDRESS.fullmatch(name)]
    devices, failures = [], []
    for name in names:
        try:
            device = _read(root, name, wanted, names)
        except errors.GpudeckError as error:
            failures.append(Failure(name, error.message))
            continue
        if device is not None:
            devices.append(device)
    return Scan(tuple(devices), tuple(failures), tuple(names))


def read(root: Root, address: str) -> PciDevice | None:
    """Read one device; None if it is not on the bus. Raises as `Root.attribute` does."""
    names = [name for name in root.list(DEVICES) if _ADDRESS.fullmatch(name)]
    return _read(root, address, lambda class_code, vendor: True, names)


def _read(root: Root, address: str, wanted: Wanted, names: list[str]) -> PciDevice | None:
    folder = root.resolve(f"{DEVICES}/{address}")
    class_code = _number(root, f"{folder}/class")
    vendor = _number(root, f"{folder}/vendor")
    if class_code is None or vendor is None:
        if not root.is_directory(folder):
            return None  # Unplugged between the listing and the reading.
        missing = "class" if class_code is None else "vendor"
        raise errors.UnavailableError(f"{folder}/{missing}: no readable value")
    if not wanted(class_code, vendor):
        return None
    slot = address.rpartition(".")[0] + "."
    numa_node = _number(root, f"{folder}/numa_node")
    return PciDevice(
        address=address,
        class_code=class_code,
        vendor=vendor,
        device=_required(root, f"{folder}/device"),
        subsystem_vendor=_number(root, f"{folder}/subsystem_vendor"),
        subsystem_device=_number(root, f"{folder}/subsystem_device"),
        numa_node=numa_node if numa_node is not None and numa_node >= 0 else None,
        iommu_group=_iommu_group(root, folder),
        pcie_root=_pcie_root(folder),
        driver=_last_part(root.link(f"{folder}/driver")),
        is_virtual_function=root.link(f"{folder}/physfn") is not None,
        functions=tuple(name for name in names if name.startswith(slot)),
    )


def _required(root: Root, path: str) -> int:
    value = _number(root, path)
    if value is None:
        raise errors.UnavailableError(f"{path}: no readable value")
    return value


def _number(root: Root, path: str) -> int | None:
    text = root.attribute(path)
    if text is None:
        return None
    try:
        return int(text, 0)
    except ValueError as error:
        raise errors.InvalidError(f"{path}: {text!r} is not a number", field=path) from error


def _iommu_group(root: Root, folder: str) -> int | None:
    name = _last_part(root.link(f"{folder}/iommu_group"))
    return int(name) if name is not None and name.isascii() and name.isdigit() else None


def _pcie_root(folder: str) -> str | None:
    # Arm machines put the bridge below /sys/devices/platform/…, x86 directly below devices.
    return next((part for part in folder.split("/") if _HOST_BRIDGE.fullmatch(part)), None)


def _last_part(target: str | None) -> str | None:
    return target.rpartition("/")[2] if target else None
