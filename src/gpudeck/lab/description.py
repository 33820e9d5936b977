# SPDX-License-Identifier: Apache-2.0
"""Say a machine in the words that `simctl create` reads (native/README.md has the grammar).

Pure: `simulation` passes the text on. Everything that NVML numbers (architectures, NVLink
versions, MIG profile indexes) is translated here, so that machine files hold the words
that people use. Facts about hardware stay in the machine files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpudeck.lab import machine, tree_driver

_ARCHITECTURES = {"volta": 5, "turing": 6, "ampere": 7, "ada": 8, "hopper": 9, "blackwell": 10}
_CORES = {"volta": 64, "turing": 64, "ampere": 64, "ada": 128, "hopper": 128, "blackwell": 128}
_BRANDS = {"tesla": 2, "nvidia-rtx": 13, "nvidia": 14}
_NVLINK_VERSIONS = {1: 1, 2: 2, 3: 4, 4: 6, 5: 7}
_COMPUTE_INDEX = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4}
"""NVML's number of the compute instance profile of so many slices; also its id."""
_MODE_CHANGES = {"live": "at-once", "reset": "by-reset", "pending": "pending"}

_SWITCH_WITHOUT_ADDRESS = "0000:00:00.0"
_NO_CLUSTER = "00000000-0000-0000-0000-000000000000"
_HEALTHY_FABRIC = 0x21AA
"""NVML's health mask with every part known and none of them ill."""


def render(host: machine.Machine) -> str:
    """Return the description of `host`, cards in PCI order."""
    major, _, minor = host.driver.cuda.partition(".")
    lines = [
        f"driver {host.driver.version}",
        f"cuda {int(major or 0) * 1000 + int(minor or 0) * 10}",
        f"caps-major {tree_driver.CAPS_MAJOR}",
    ]
    for index in range(len(host.cards)):
        lines += ["", "card", *_card(host, index)]
    return "\n".join(lines) + "\n"


def _card(host: machine.Machine, index: int) -> Iterator[str]:
    card = host.cards[index]
    model = host.model_of(card)
    yield from _identity(host, index)
    yield from _amounts(model)
    yield from _temperature(model.temperature)
    yield from _place(host, index)
    yield from _links(host, index)
    yield f"lacks {' '.join(_lacks(host, card))}"
    if host.driver.open or model.integrated:
        yield f"addressing {2 if model.integrated else 1}"
    if model.fabric:
        yield f"fabric 3 0 {_NO_CLUSTER} {_HEALTHY_FABRIC:x}"
    if model.platform:
        yield from (f"slot {card.module or 0}", "tray 0", "host-id 1", "peer-type 1")
    # nvidia-persistenced runs on servers: the driver stays loaded without clients.
    yield "set persistence 1"
    if model.mig:
        yield from _mig(model.mig)


def _identity(host: machine.Machine, index: int) -> Iterator[str]:
    card = host.cards[index]
    model = host.model_of(card)
    yield f"pci {card.address}"
    yield f"name {model.name}"
    yield f"uuid {card.uuid}"
    yield f"serial {card.serial}"
    yield f"vbios {model.board.vbios}"
    if model.board.part_number:
        yield f"board-part {model.board.part_number}"
    if model.board.gpu_part_number:
        yield f"gpu-part {model.board.gpu_part_number}"
    yield "inforom-image G520.0200.00.05"
    yield "inforom-oem 2.1"
    yield "inforom-ecc 7.16"
    if model.architecture != "volta":
        yield f"gsp {host.driver.version}"
    yield f"pci-id 0x{model.pci.device << 16 | model.pci.vendor:08x}"
    yield f"subsystem-id 0x{model.pci.subsystem_device << 16 | model.pci.subsystem_vendor:08x}"
    yield f"pci-class 0x{model.pci.class_code:06x}"
    yield f"minor {index}"
    yield f"irq {64 + index}"
    yield f"board-id 0x{int(card.address.split(':')[1], 16) << 8:x}"
    if card.module is not None:
        yield f"module-id {card.module}"
    if model.brand:
        yield f"brand {_BRANDS[model.brand]}"
    yield f"architecture {_ARCHITECTURES[model.architecture]}"
    yield f"compute-capability {model.compute_capability}"
    yield f"multiprocessors {model.multiprocessors}"
    yield f"cores {model.multiprocessors * _CORES[model.architecture]}"


def _amounts(model: machine.Model) -> Iterator[str]:
    if model.memory:
        yield f"memory-mib {model.memory.total_mib}"
        yield f"reserved-mib {model.memory.reserved_mib}"
        yield f"bar1-mib {model.memory.bar1_mib}"
        yield f"memory-bus-width {model.memory.bus_bits}"
    for name, watts in (
        ("default", model.power.default_watts),
        ("min", model.power.minimum_watts),
        ("max", model.power.maximum_watts),
        ("idle", model.power.idle_watts),
    ):
        if watts is not None:
            yield f"power-{name}-mw {watts * 1000}"
    yield f"pcie-max-gen {model.pcie.generation}"
    yield f"pcie-max-width {model.pcie.width}"
    if model.remapped_row_banks is not None:
        yield f"remap-banks {model.remapped_row_banks}"
    if model.clocks:
        yield from _clocks(model.clocks)


def _clocks(clocks: machine.Clocks) -> Iterator[str]:
    most, chosen = clocks.maximum, clocks.applications
    named = {
        "max-graphics-mhz": most.graphics,
        "max-sm-mhz": most.graphics,
        "max-memory-mhz": most.memory,
        "max-video-mhz": most.video,
        "app-graphics-mhz": chosen and chosen.graphics,
        "app-memory-mhz": chosen and chosen.memory,
    }
    if clocks.supported:
        named["idle-graphics-mhz"] = clocks.supported[0].graphics.minimum
    for name, megahertz in named.items():
        if megahertz is not None:
            yield f"{name} {megahertz}"
    for entry in clocks.supported:
        graphics = entry.graphics
        yield f"clocks {entry.memory} {graphics.maximum} {graphics.minimum} {graphics.steps}"


def _temperature(degrees: machine.Temperature) -> Iterator[str]:
    limits = degrees.limit or degrees
    yield f"temperature-idle {degrees.idle}"
    yield f"temperature-load {degrees.load}"
    if degrees.limit:
        yield f"temperature-margin-base {degrees.limit.base}"
    for name, limit in (
        ("shutdown", limits.shutdown),
        ("slowdown", limits.slowdown),
        ("gpu-max", limits.maximum),
        ("memory-max", limits.memory_maximum),
    ):
        if limit is not None:
            yield f"temperature-{name} {limit}"


def _place(host: machine.Machine, index: int) -> Iterator[str]:
    """Say what the card shares with others: a number per switch, root port and host bridge."""
    card = host.cards[index]
    if card.numa_node >= 0:
        yield f"numa-node {card.numa_node}"
    yield f"cpu-node {max(card.numa_node, 0)}"
    yield f"cpus {host.cpus_near(card.numa_node)}"
    bridges = [each.behind for each in host.cards]
    yield f"host-bridge {_number([chain[0].rpartition(':')[0] for chain in bridges], index)}"
    if len(card.behind) > 1:
        yield f"pcie-tree {_number([chain[0] for chain in bridges], index)}"
        yield f"pcie-switch {_number([chain[:-1] for chain in bridges], index)}"


def _number(keys: Sequence[object], index: int) -> int:
    """Number equal keys alike, from 1 on."""
    return keys.index(keys[index]) + 1


def _links(host: machine.Machine, index: int) -> Iterator[str]:
    nvlink = host.model_of(host.cards[index]).nvlink
    if nvlink is None:
        return
    yield f"nvlink-version {_NVLINK_VERSIONS[nvlink.version]}"
    yield f"nvlink-count {nvlink.links}"
    yield f"nvlink-mbps {nvlink.megabytes_per_second}"
    if host.nvlink.has_switches:
        yield from _switch_links(host, index, nvlink.links)
    else:
        yield from _pair_links(host, index)


def _switch_links(host: machine.Machine, index: int, links: int) -> Iterator[str]:
    switches = host.nvlink.switches or (_SWITCH_WITHOUT_ADDRESS,)
    identity = {other.address: other.device << 16 | other.vendor for other in host.others}
    for link in range(links):
        switch = switches[link * len(switches) // links]
        remote = index * links + link
        yield f"link {link} switch {switch} {remote} {identity.get(switch, 0):x}"


def _pair_links(host: machine.Machine, index: int) -> Iterator[str]:
    """Give out link numbers at each end in the order of the machine's pairs."""
    used = [0] * len(host.cards)
    for pair in host.nvlink.pairs:
        for _ in range(pair.links):
            near, far = used[pair.start], used[pair.end]
            used[pair.start] += 1
            used[pair.end] += 1
            if index == pair.start:
                yield _link(host, near, pair.end, far)
            elif index == pair.end:
                yield _link(host, far, pair.start, near)


def _link(host: machine.Machine, number: int, peer: int, remote: int) -> str:
    card = host.cards[peer]
    ids = host.model_of(card).pci
    return f"link {number} gpu {card.address} {remote} {ids.device << 16 | ids.vendor:x}"


def _lacks(host: machine.Machine, card: machine.Card) -> list[str]:
    """List what NVML answers with NOT_SUPPORTED on this card."""
    model = host.model_of(card)
    memory, clocks = model.memory, model.clocks
    lacking = {
        "memory": memory is None,
        "bar1": memory is None,
        "memory-temperature": memory is None or not memory.has_temperature,
        "ecc": not model.ecc,
        "retired-pages": not model.retired_pages,
        "remapped-rows": model.remapped_row_banks is None,
        "fan": True,
        "power-limit": model.power.default_watts is None,
        "average-power": not model.average_power,
        "supported-clocks": not (clocks and clocks.supported),
        "application-clocks": not (clocks and clocks.applications),
        "fabric": not model.fabric,
        "platform": not model.platform,
        "gpm": model.architecture not in ("hopper", "blackwell") or model.integrated,
        "module-id": card.module is None,
        "gsp": model.architecture == "volta",
        "addressing": not host.driver.open,
        "board-part": not model.board.part_number,
        "serial": model.integrated,
        "inforom": model.integrated,
        "memory-limits": True,
    }
    return [name for name, is_lacking in lacking.items() if is_lacking]


def _mig(mig: machine.Mig) -> Iterator[str]:
    yield f"mig-slices {mig.compute_slices}"
    yield f"mig-grid {mig.memory_slices}"
    yield f"mig-devices {mig.instances}"
    yield f"mig-change {_MODE_CHANGES[mig.mode_change]}"
    yield f"mig-kept-over-reboot {int(mig.keeps_mode)}"
    yield f"mig-resetless {int(mig.mode_change == 'live')}"
    for profile in mig.profiles:
        yield from _profile(mig, profile)


def _profile(mig: machine.Mig, profile: machine.MigProfile) -> Iterator[str]:
    yield f"profile {profile.nvml}"
    yield f"id {profile.id}"
    yield f"name MIG {profile.name}"
    yield f"slices {profile.slices}"
    yield f"max {profile.maximum}"
    yield f"multiprocessors {profile.multiprocessors}"
    yield f"copy {profile.copy}"
    yield f"decoder {profile.decoder}"
    yield f"encoder {profile.encoder}"
    yield f"jpeg {profile.jpeg}"
    yield f"ofa {profile.ofa}"
    yield f"memory-mib {profile.memory_mib}"
    for start in profile.starts:
        yield f"placement {start} {profile.size} {_instance_id(mig, start, profile.size)}"
    for slices, count in sorted(mig.compute[profile.slices].items()):
        index = _COMPUTE_INDEX[slices]
        multiprocessors = (
            profile.multiprocessors
            if slices == profile.slices
            else slices * mig.compute_multiprocessors
        )
        yield f"compute {index} {index} {slices} {count} {multiprocessors}"


def _instance_id(mig: machine.Mig, start: int, size: int) -> int:
    """Number instances like the nodes of a binary tree over the memory slices.

    The MIG user guide's A100 and A30 samples follow it: 0 is the whole card, 1 and 2 its
    halves, 3 to 6 the quarters and so on.
    """
    return mig.memory_slices // size - 1 + start // size
