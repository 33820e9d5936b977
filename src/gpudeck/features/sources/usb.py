# SPDX-License-Identifier: Apache-2.0
"""The feature usb.device: class, vendor, device and serial of each device of the USB buses.

A device whose class stands at its interfaces (class 00) is one instance for each class.
"""

from __future__ import annotations

from gpudeck import errors
from gpudeck.features.known import Known
from gpudeck.host.root import Root

DEVICES = "/sys/bus/usb/devices"
_FILES = {"vendor": "idVendor", "device": "idProduct", "serial": "serial"}


def read(root: Root, known: Known) -> list[str]:
    """Add all devices; a host without USB has none."""
    found: list[dict[str, str]] = []
    left_out = []
    for name in root.list(DEVICES):
        folder = f"{DEVICES}/{name}"
        try:
            found += _device(root, folder)
        except errors.GpudeckError as error:
            left_out.append(error.message)
    known.instances["usb.device"] = found
    return left_out


def _device(root: Root, folder: str) -> list[dict[str, str]]:
    if root.attribute(f"{folder}/idProduct") is None:
        return []  # An interface or a hub's port.
    values = {name: root.attribute(f"{folder}/{file}") for name, file in _FILES.items()}
    device = {name: value for name, value in values.items() if value is not None}
    own = root.attribute(f"{folder}/bDeviceClass") or "00"
    classes = [own] if own != "00" else _interface_classes(root, folder)
    return [{"class": each, **device} for each in classes]


def _interface_classes(root: Root, folder: str) -> list[str]:
    found = {
        root.attribute(f"{folder}/{name}/bInterfaceClass")
        for name in root.list(folder)
        if ":" in name
    }
    return sorted(each for each in found if each)
