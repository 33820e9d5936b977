# SPDX-License-Identifier: Apache-2.0
"""The feature usb.device: class, vendor, device and serial of each device of the USB buses.

A device whose class stands at its interfaces (class 00) is one instance for each class.
"""

from __future__ import annotations

from gpudeck.features.known import Known
from gpudeck.features.sources.attributes import Attributes
from gpudeck.host.root import Root

DEVICES = "/sys/bus/usb/devices"
_FILES = {"idVendor": "vendor", "idProduct": "device", "serial": "serial"}


def read(root: Root, known: Known) -> list[str]:
    """Add all devices; a host without USB has none."""
    attributes = Attributes(root)
    known.instances["usb.device"] = [
        device
        for name in root.list(DEVICES)
        for device in _device(root, attributes, f"{DEVICES}/{name}")
    ]
    return attributes.left_out


def _device(root: Root, attributes: Attributes, folder: str) -> list[dict[str, str]]:
    values = attributes.of(folder, _FILES)
    if "idProduct" not in values:
        return []  # An interface or a hub's port.
    device = {_FILES[name]: value for name, value in values.items()}
    own = attributes.get(f"{folder}/bDeviceClass") or "00"
    classes = [own] if own != "00" else _interface_classes(root, attributes, folder)
    return [{"class": each, **device} for each in classes]


def _interface_classes(root: Root, attributes: Attributes, folder: str) -> list[str]:
    found = {
        attributes.get(f"{folder}/{name}/bInterfaceClass")
        for name in root.list(folder)
        if ":" in name
    }
    return sorted(each for each in found if each)
