# SPDX-License-Identifier: Apache-2.0
"""The feature pci.device: one instance for each function on the PCI bus.

Names and spelling are node-feature-discovery's: four digits of class, vendor, device and
their subsystems, `sriov_totalvfs`, `iommu_group/type`, `iommu/intel-iommu/version`. A device
that cannot be read is left out by its address, the others stay.
"""

from __future__ import annotations

from gpudeck import errors
from gpudeck.features.known import Known
from gpudeck.features.sources.attributes import Attributes
from gpudeck.host import pci
from gpudeck.host.root import Root

_MORE = ("sriov_totalvfs", "iommu_group/type", "iommu/intel-iommu/version")


def read(root: Root, known: Known) -> list[str]:
    """Add all devices. UnavailableError where there is no bus: an absent mount is no empty bus."""
    if not root.is_directory(pci.DEVICES):
        raise errors.UnavailableError(f"{pci.DEVICES} is not there", reason="PciBusUnreadable")
    scan = pci.scan(root)
    attributes = Attributes(root)
    known.instances["pci.device"] = [_device(attributes, each) for each in scan.devices]
    failures = [f"{each.address}: {each.message}" for each in scan.failures]
    return [*failures, *attributes.left_out]


def _device(attributes: Attributes, device: pci.PciDevice) -> dict[str, str]:
    numbers = {
        "vendor": device.vendor,
        "device": device.device,
        "subsystem_vendor": device.subsystem_vendor,
        "subsystem_device": device.subsystem_device,
    }
    found = {"class": f"{device.class_code >> 8:04x}"}
    found.update({name: f"{number:04x}" for name, number in numbers.items() if number is not None})
    return {**found, **attributes.of(f"{pci.DEVICES}/{device.address}", _MORE)}
