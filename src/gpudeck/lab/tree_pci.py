# SPDX-License-Identifier: Apache-2.0
"""The PCI part of a simulated host's /sys: devices, bridges, drivers, IOMMU groups.

Pure: it returns a `tree.Tree` for `hosttree`. Real folders stand below
/sys/devices/pci<root>, bridge in bridge, and everything else links there, as Linux has
it; programs learn a card's PCIe root only from that path. Configuration space holds
identity, BARs and a capability chain as seen on Hopper boards.
"""

from __future__ import annotations

import dataclasses
import struct

from gpudeck.lab import machine, machine_rules, tree, tree_system

CONFIG_BYTES = 4096
_MIB = 1 << 20
_BRIDGE_CLASS = 0x060400
_SPEEDS = {1: "2.5", 2: "5.0", 3: "8.0", 4: "16.0", 5: "32.0", 6: "64.0"}
_ROOT_PORTS = {
    "GenuineIntel": (0x8086, 0x352A),
    "AuthenticAMD": (0x1022, 0x1483),
    "ARM": (0x10DE, 0x22CE),
}
_SWITCH_PORT = (0x1000, 0xC030)
_DRIVERS = {"nvidia": "nvidia", "metax": "metax"}
_PREFETCHABLE_64 = 0x14220C
_MEMORY_32 = 0x40200


@dataclasses.dataclass(frozen=True)
class Function:
    """One PCI function with all that its folder shows."""

    address: str
    behind: tuple[str, ...]
    ids: machine.PciIds
    numa_node: int
    driver: str | None
    bars: tuple[tuple[int, int, int], ...] = ()
    """Start, size in bytes and flags of each of the six; size 0 = not there."""
    generation: int = 3
    width: int = 16
    iommu_group: int | None = None
    secondary_bus: int | None = None

    @property
    def folder(self) -> str:
        """The device's folder below the host root."""
        domain, bus, _ = (self.behind or (self.address,))[0].split(":")
        return "/".join(("sys/devices", f"pci{domain}:{bus}", *self.behind, self.address))


def describe(host: machine.Machine) -> tree.Tree:
    """Return /sys/devices/pci…, /sys/bus/pci, /sys/kernel/iommu_groups for `host`."""
    below: tree.Tree = {
        "sys/bus/pci/devices": tree.Folder(),
        "sys/bus/pci/drivers": tree.Folder(),
        "sys/bus/pci/drivers_probe": tree.File(b"", 0o200),
        "sys/bus/pci/rescan": tree.File(b"", 0o200),
    }
    for function in functions(host):
        below.update(_folder(host, function))
    for driver in sorted({function.driver for function in functions(host) if function.driver}):
        for name in ("bind", "unbind", "new_id", "remove_id", "uevent"):
            below[f"sys/bus/pci/drivers/{driver}/{name}"] = tree.File(b"", 0o200)
    return below


def card_paths(host: machine.Machine, address: str) -> tree.Tree:
    """Return only what the card at `address` adds to /sys (it alone is plugged or unplugged)."""
    for function in functions(host):
        if function.address == address:
            return _folder(host, function)
    return {}


def folder_of(host: machine.Machine, address: str) -> str:
    """Return the folder below the host root of the device at `address`."""
    return next(each.folder for each in functions(host) if each.address == address)


def functions(host: machine.Machine) -> list[Function]:
    """List every PCI function of the host: cards, other devices and the bridges above them."""
    ends = [*_cards(host), *_others(host)]
    bridges: dict[str, Function] = {}
    for end in ends:
        chain = (*end.behind, end.address)
        for depth, bridge in enumerate(end.behind):
            vendor, device = _ROOT_PORTS[host.cpu.vendor] if depth == 0 else _SWITCH_PORT
            bridges.setdefault(
                bridge,
                Function(
                    address=bridge,
                    behind=end.behind[:depth],
                    ids=machine.PciIds(
                        vendor=vendor,
                        device=device,
                        subsystem_vendor=vendor,
                        subsystem_device=0,
                        class_code=_BRIDGE_CLASS,
                        revision=0x04,
                    ),
                    numa_node=end.numa_node,
                    driver="pcieport",
                    secondary_bus=int(chain[depth + 1].split(":")[1], 16),
                ),
            )
    return [*bridges.values(), *ends]


def _cards(host: machine.Machine) -> list[Function]:
    return [
        Function(
            address=card.address,
            behind=card.behind,
            ids=host.model_of(card).pci,
            numa_node=card.numa_node,
            driver=_DRIVERS[host.model_of(card).maker],
            bars=_bars(host.model_of(card), index),
            generation=host.model_of(card).pcie.generation,
            width=host.model_of(card).pcie.width,
            iommu_group=16 + index if host.iommu else None,
        )
        for index, card in enumerate(host.cards)
    ]


def _others(host: machine.Machine) -> list[Function]:
    return [
        Function(
            address=other.address,
            behind=other.behind,
            ids=machine.PciIds(
                vendor=other.vendor,
                device=other.device,
                subsystem_vendor=other.vendor,
                subsystem_device=other.device,
                class_code=other.class_code,
                revision=0,
            ),
            numa_node=other.numa_node,
            driver=other.driver,
            bars=((0x91000000 + index * 0x2000000, 16 * _MIB, _MEMORY_32),),
            iommu_group=64 + index if host.iommu else None,
        )
        for index, other in enumerate(host.others)
    ]


def _bars(model: machine.Model, index: int) -> tuple[tuple[int, int, int], ...]:
    """Lay out the memory regions: 64-bit from Hopper on, a 32-bit first one before."""
    high = 0x200000000000 + (index << 39)
    registers, aperture, third = (
        16 * _MIB,
        (model.memory or machine.Memory(total_mib=0)),
        32 * _MIB,
    )
    wide = (high, aperture.bar1_mib * _MIB, _PREFETCHABLE_64)
    extra = (high + (1 << 38), third, _PREFETCHABLE_64)
    none = (0, 0, 0)
    if model.architecture in ("hopper", "blackwell"):
        first = (high + (1 << 38) + third, registers, _PREFETCHABLE_64)
        return first, none, wide, none, extra, none
    first = (0xA0000000 + index * 0x2000000, registers, _MEMORY_32)
    return first, wide, none, extra, none, none


def _folder(host: machine.Machine, function: Function) -> tree.Tree:
    ids, folder, address = function.ids, function.folder, function.address
    speed = f"{_SPEEDS[function.generation]} GT/s PCIe"
    cpus = host.cpus_near(function.numa_node)
    values = {
        "vendor": f"0x{ids.vendor:04x}",
        "device": f"0x{ids.device:04x}",
        "subsystem_vendor": f"0x{ids.subsystem_vendor:04x}",
        "subsystem_device": f"0x{ids.subsystem_device:04x}",
        "class": f"0x{ids.class_code:06x}",
        "revision": f"0x{ids.revision:02x}",
        "irq": "16",
        "local_cpulist": cpus,
        "local_cpus": tree_system.cpu_mask(machine_rules.cpus(cpus)),
        "modalias": _modalias(ids),
        "resource": _resource(function),
        "power_state": "D0",
        "dma_mask_bits": "47",
        "current_link_speed": "2.5 GT/s PCIe" if function.generation > 1 else speed,
        "current_link_width": str(function.width),
        "max_link_speed": speed,
        "max_link_width": str(function.width),
    }
    writable = {
        "driver_override": "(null)",
        "enable": "1" if function.driver else "0",
        "numa_node": str(function.numa_node),
        "reset_method": "flr bus",
        "uevent": _uevent(function),
    }
    below: tree.Tree = {f"{folder}/{name}": tree.text(text) for name, text in values.items()}
    below |= {f"{folder}/{name}": tree.text(text, 0o644) for name, text in writable.items()}
    below |= {f"{folder}/{name}": tree.File(b"", 0o200) for name in ("remove", "rescan", "reset")}
    below[f"{folder}/config"] = tree.File(config_space(function), 0o644)
    below[f"{folder}/subsystem"] = tree.relative(f"{folder}/subsystem", "sys/bus/pci")
    at = f"sys/bus/pci/devices/{address}"
    below[at] = tree.relative(at, folder)
    return below | _driver_links(function) | _iommu_links(function)


def _driver_links(function: Function) -> tree.Tree:
    if function.driver is None:
        return {}
    driver = f"sys/bus/pci/drivers/{function.driver}"
    link, back = f"{function.folder}/driver", f"{driver}/{function.address}"
    return {
        link: tree.relative(link, driver),
        back: tree.relative(back, function.folder),
    }


def _iommu_links(function: Function) -> tree.Tree:
    if function.iommu_group is None:
        return {}
    group = f"sys/kernel/iommu_groups/{function.iommu_group}"
    link, back = f"{function.folder}/iommu_group", f"{group}/devices/{function.address}"
    return {
        link: tree.relative(link, group),
        back: tree.relative(back, function.folder),
        f"{group}/type": tree.text("DMA-FQ", 0o644),
    }


def _modalias(ids: machine.PciIds) -> str:
    code = ids.class_code
    return (
        f"pci:v{ids.vendor:08X}d{ids.device:08X}sv{ids.subsystem_vendor:08X}"
        f"sd{ids.subsystem_device:08X}bc{code >> 16:02X}sc{code >> 8 & 255:02X}i{code & 255:02X}"
    )


def _uevent(function: Function) -> str:
    ids = function.ids
    return "\n".join(
        [
            *([f"DRIVER={function.driver}"] if function.driver else []),
            f"PCI_CLASS={ids.class_code:X}",
            f"PCI_ID={ids.vendor:04X}:{ids.device:04X}",
            f"PCI_SUBSYS_ID={ids.subsystem_vendor:04X}:{ids.subsystem_device:04X}",
            f"PCI_SLOT_NAME={function.address}",
            f"MODALIAS={_modalias(ids)}",
        ]
    )


def _resource(function: Function) -> str:
    """Print 13 lines: six BARs, the ROM and six of SR-IOV (a kernel with CONFIG_PCI_IOV)."""
    rows = [
        (start, start + size - 1, flags) if size else (0, 0, 0)
        for start, size, flags in function.bars
    ]
    rows += [(0, 0, 0)] * (13 - len(rows))
    return "\n".join(f"0x{start:016x} 0x{end:016x} 0x{flags:016x}" for start, end, flags in rows)


def config_space(function: Function) -> bytes:
    """Return the function's 4096 bytes of configuration space, as root reads them."""
    ids, space = function.ids, bytearray(CONFIG_BYTES)
    # Command 0x0406: memory, bus master, no INTx. Status 0x0010: a capability list follows.
    struct.pack_into("<HHHH", space, 0x00, ids.vendor, ids.device, 0x0406, 0x0010)
    struct.pack_into("<I", space, 0x08, ids.class_code << 8 | ids.revision)
    if function.secondary_bus is not None:
        own = int(function.address.split(":")[1], 16)
        space[0x0E] = 1
        space[0x18:0x1B] = bytes((own, function.secondary_bus, function.secondary_bus))
        space[0x34] = 0x60
    else:
        _write_bars(space, function.bars)
        struct.pack_into("<HH", space, 0x2C, ids.subsystem_vendor, ids.subsystem_device)
        space[0x34] = 0x40
        _write_capabilities(space, function)
    # PCI Express capability: link capabilities and status hold speed and width.
    link = function.generation | function.width << 4
    kind = 0x0062 if function.secondary_bus is not None else 0x0002
    struct.pack_into("<BBH", space, 0x60, 0x10, space[0x61], kind)
    struct.pack_into("<I", space, 0x6C, link)
    struct.pack_into("<H", space, 0x72, 1 | function.width << 4)
    return bytes(space)


def _write_bars(space: bytearray, bars: tuple[tuple[int, int, int], ...]) -> None:
    index = 0
    while index < len(bars):
        start, size, flags = bars[index]
        if size and flags == _PREFETCHABLE_64:
            struct.pack_into("<Q", space, 0x10 + 4 * index, start | 0xC)
            index += 1
        elif size:
            struct.pack_into("<I", space, 0x10 + 4 * index, start)
        index += 1


def _write_capabilities(space: bytearray, function: Function) -> None:
    chain = ((0x40, 0x01), (0x48, 0x05), (0x60, 0x10), (0x9C, 0x09), (0xB0, 0x11))
    for place, (offset, kind) in enumerate(chain):
        following = chain[place + 1][0] if place + 1 < len(chain) else 0
        space[offset : offset + 2] = bytes((kind, following))
    space[0x3D] = 1  # Interrupt pin A.
    space[0x42] = 3  # Version of the power management capability.
    space[0x9E] = 0x14  # A vendor capability this short is that of a card, not of a vGPU.
    struct.pack_into("<I", space, 0x64, 1 << 28)  # Function level reset is possible.
    extended = (
        (0x100, 0x0000),
        (0x12C, 0x0018),
        (0x134, 0x0015),
        (0x1B8, 0x0001),
        (0x2A4, 0x000B),
        (0x2B8, 0x0004),
        (0x2F0, 0x0003),
    )
    for place, (offset, kind) in enumerate(extended):
        following = extended[place + 1][0] if place + 1 < len(extended) else 0
        struct.pack_into("<I", space, offset, kind | 1 << 16 | following << 20)
    aperture = max(size for _, size, _ in function.bars) // _MIB
    exponent = max(aperture, 1).bit_length() - 1
    struct.pack_into("<II", space, 0x138, 1 << exponent + 4, 2 | 1 << 5 | exponent << 8)
    serial = int(function.address.replace(":", "").replace(".", ""), 16)
    struct.pack_into("<Q", space, 0x2F4, 0x48B02D0000000000 | serial)
