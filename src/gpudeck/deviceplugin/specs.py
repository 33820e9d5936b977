# SPDX-License-Identifier: Apache-2.0
"""The CDI files of the device plugin: every unit of the node under a name that does not change.

`find` asks the maker's serving side what a container needs of each unit (it reads files
of the node, so it is called in a thread); a unit that cannot be given now is left out with
its reason and costs nobody else anything. Names and kinds are those of NVIDIA's device
plugin 0.20, so pods that were given a name keep it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from gpudeck.cdi import plugins, rendering, spec
from gpudeck.deviceplugin import answering, offering
from gpudeck.errors import GpudeckError
from gpudeck.host import root as host
from gpudeck.pluginconfig import model
from gpudeck.vendors import contract

_EXTRAS = {
    "gdrcopy": ("/dev/gdrdrv",),
    "gds": ("/dev/nvidia-fs*",),
    "mofed": ("/dev/infiniband/uverbs*", "/dev/infiniband/rdma_cm"),
}
_FILES = {"gds": ("/etc/cufile.json", "/run/udev")}
"""What a feature needs besides device nodes, where the node has it (NVIDIA's toolkit 1.20)."""
_FILE_OPTIONS = ("ro", "nosuid", "nodev", "rbind", "rprivate")
_IMEX = "imex-channel"
_IMEX_FOLDER = "/dev/nvidia-caps-imex-channels"


class Found(model.Value, frozen=True):
    """What was found out: for the answers to the kubelet, and for the runtime's folder."""

    ready: answering.Ready
    files: tuple[tuple[str, bytes], ...] = ()
    """File names and what they are to hold."""
    problems: tuple[offering.Problem, ...] = ()


class _Collected:
    """Filled unit by unit."""

    def __init__(
        self,
        vendor: contract.Vendor,
        way: answering.Way,
        *,
        driver: contract.DriverState,
        hook_path: str,
    ) -> None:
        self._vendor = vendor
        self._way = way
        self._driver = driver
        self._hook_path = hook_path
        self.devices: dict[str, spec.ContainerEdits] = {}
        self.shared = spec.NOTHING
        self.nodes: dict[str, tuple[spec.DeviceNode, ...]] = {}
        self.additions: dict[str, answering.Addition] = {}
        self.unready: dict[str, str] = {}
        self.problems: dict[str, offering.Problem] = {}

    def take(self, unit: offering.Unit, part: answering.Part | None) -> None:
        """Ask about a unit; what goes wrong is noted and costs no other one anything."""
        if not self._driver.ready:
            # What its files are is not known, and the files that name them stay as they are.
            self.unready[unit.id] = self._driver.message
            return
        try:
            self._take(unit, part)
        except GpudeckError as error:
            self.unready[unit.id] = error.message
            self.problems[unit.id] = offering.Problem(reason=error.reason, message=error.message)

    def refuse_all(self, message: str) -> None:
        """No unit can be given, for one reason."""
        reason = "ImexChannelMissing"
        self.unready = dict.fromkeys([*self.nodes, *self.unready], f"{message}.")
        self.nodes = {}
        self.problems[reason] = offering.Problem(reason=reason, message=f"{message}.")

    def _take(self, unit: offering.Unit, part: answering.Part | None) -> None:
        card = unit.card
        if unit.partition is None and card.mode is contract.PartitioningMode.ENABLED:
            # The strategy `none` offers cards whole whatever their mode is.
            card = msgspec.structs.replace(card, mode=contract.PartitioningMode.NOT_AVAILABLE)
        uses = [contract.Use(card=card, partition=unit.partition)]
        if part is not None:
            uses.append(contract.Use(card=card, share=share_of(unit, part)))
        answer = self._vendor.inject(
            uses, driver_version=self._driver.version, hook_path=self._hook_path
        )
        own = answer.uses[0].edits
        self.shared = answer.shared
        self.devices[answering.cdi_name(unit, self._way)] = own
        self.nodes[unit.id] = (*answer.shared.device_nodes, *own.device_nodes)
        if part is not None:
            self._take_part(unit, part, own, answer.uses[1])

    def _take_part(
        self,
        unit: offering.Unit,
        part: answering.Part,
        own: spec.ContainerEdits,
        found: contract.UseEdits,
    ) -> None:
        self.devices[answering.cdi_name(unit, self._way, part)] = found.edits
        added = [each for each in found.edits.mounts if each not in own.mounts]
        self.additions[unit.id] = answering.Addition(
            envs=tuple(
                (name, value)
                for name, _, value in (each.partition("=") for each in found.edits.env)
                if f"{name}={value}" not in own.env
            ),
            mounts=tuple(
                answering.Mount(
                    container_path=each.container_path, host_path=each.host_path, read_only=False
                )
                for each in added
            ),
        )
        by_driver = part.strategy is model.Strategy.TIME_SLICING
        if by_driver and (not found.limits_memory or model.CDI.isdisjoint(self._way.strategies)):
            why = found.limits_memory_message or "The driver keeps no limit."
            if found.limits_memory:
                why = "The limit is set by a hook, which no flags.plugin.deviceListStrategy but "
                why += "cdi-cri and cdi-annotations give to containers."
            self.problems[f"{unit.id} memory"] = offering.Problem(
                reason="MemoryLimitNotKept", message=f"{unit.site.address}: {why}"
            )


def share_of(unit: offering.Unit, part: answering.Part) -> contract.Share:
    """A replica in the words of the maker's contract."""
    is_mps = part.strategy is model.Strategy.MPS
    strategies = contract.SharingStrategy
    return contract.Share(
        share_id=f"{unit.id}{part.suffix}",
        memory_bytes=part.memory_bytes,
        cores=part.cores,
        strategy=strategies.MPS if is_mps else strategies.TIME_SLICING,
    )


def pending(vendor: contract.Vendor, offer: offering.Offer) -> dict[str, str]:
    """Why replicas by MPS cannot be used yet, by id of their card. Blocks; changes nothing."""
    found = {}
    for resource in offer.resources:
        if resource.strategy is not model.Strategy.MPS:
            continue
        for unit in {each.unit.id: each.unit for each in resource.devices}.values():
            part = answering.part(resource, unit)
            if part is None:
                continue
            if not unit.card.share_support.mps:
                found[unit.id] = (
                    f"{unit.site.address} cannot be shared by MPS now; is "
                    "nvidia-mps-control-daemon on the node?"
                )
                continue
            use = contract.Use(card=unit.card, share=share_of(unit, part))
            found[unit.id] = vendor.pending(use)
    return {unit_id: why for unit_id, why in found.items() if why}


def find(
    vendor: contract.Vendor,
    offer: offering.Offer,
    way: answering.Way,
    *,
    driver: contract.DriverState,
    hook_path: str,
    root: host.Root,
    before: bytes | None = None,
) -> Found:
    """What containers need of each unit that is offered. Blocks; raises nothing of one unit.

    `before` is the file of the cards as it is: a container that is started again asks for the
    name that its pod was given, whatever the config says by now of partitions, sharing or ids.
    """
    collected = _Collected(vendor, way, driver=driver, hook_path=hook_path)
    for resource in offer.resources:
        for unit in {each.unit.id: each.unit for each in resource.devices}.values():
            collected.take(unit, answering.part(resource, unit))
    extras = _extras(root, way)
    missing = [each for each in way.imex_channels if str(each) not in extras.get(_IMEX, {})]
    if missing and way.imex_required:
        collected.refuse_all(f"imex.channelIDs: the node has no {_IMEX_FOLDER}/channel{missing[0]}")
    for feature in way.features:
        if feature not in extras:
            collected.problems[feature] = _without_feature(feature)
    devices = {**_kept(before, offer), **collected.devices}
    files = [_file(kind, named) for kind, named in extras.items()]
    if collected.devices:
        files.insert(0, _file(answering.CDI_CLASS, devices, collected.shared))
    return Found(
        ready=answering.Ready(
            nodes=tuple(collected.nodes.items()),
            named=tuple(collected.nodes),
            unready=tuple(collected.unready.items()),
            additions=tuple(collected.additions.items()),
            extras=tuple(
                f"{plugins.VENDOR}/{kind}={name}"
                for kind, named in extras.items()
                for name in named
            ),
        ),
        files=tuple(files),
        problems=tuple(collected.problems.values()),
    )


def _file(
    kind: str,
    devices: Mapping[str, spec.ContainerEdits],
    shared: spec.ContainerEdits = spec.NOTHING,
) -> tuple[str, bytes]:
    """The file of a class of devices, and what it is to hold."""
    content = rendering.render_kind(f"{plugins.VENDOR}/{kind}", devices, shared)
    return plugins.file_name(kind), content


def _kept(before: bytes | None, offer: offering.Offer) -> dict[str, spec.ContainerEdits]:
    """Devices of the file that are of a card or partition that is still there, or may be."""
    if before is None:
        return {}
    try:
        found = msgspec.json.decode(before, type=spec.Spec)
    except msgspec.DecodeError:
        return {}
    return {
        each.name: each.container_edits
        for each in found.devices
        if offer.is_partial
        or each.name in offer.names
        or any(each.name.startswith(f"{name}-") for name in offer.names)
    }


def _extras(root: host.Root, way: answering.Way) -> dict[str, dict[str, spec.ContainerEdits]]:
    """Device nodes besides cards that every container with a card gets, where they exist."""
    found: dict[str, dict[str, spec.ContainerEdits]] = {}
    for feature in way.features:
        nodes = _existing(root, _EXTRAS[feature])
        if nodes:
            mounts = [_mounted(root, each) for each in _FILES.get(feature, ()) if root.exists(each)]
            found[feature] = {
                "all": spec.ContainerEdits(device_nodes=tuple(nodes), mounts=tuple(mounts))
            }
    for channel in way.imex_channels:
        nodes = _existing(root, (f"{_IMEX_FOLDER}/channel{channel}",))
        if nodes:
            found.setdefault(_IMEX, {})[str(channel)] = spec.ContainerEdits(
                device_nodes=tuple(nodes)
            )
    return found


def _without_feature(feature: str) -> offering.Problem:
    return offering.Problem(
        reason="FeatureMissing",
        message=f"flags.{feature}Enabled: the node has no {' and no '.join(_EXTRAS[feature])}, so "
        "containers get their cards without.",
    )


def _mounted(root: host.Root, path: str) -> spec.Mount:
    source = root.on_node(root.resolve(path))
    return spec.Mount(host_path=source, container_path=path, options=_FILE_OPTIONS)


def _existing(root: host.Root, patterns: Iterable[str]) -> list[spec.DeviceNode]:
    found = []
    for pattern in patterns:
        folder, _, name = pattern.rpartition("/")
        names = [name]
        if name.endswith("*"):
            names = sorted(each for each in _listed(root, folder) if each.startswith(name[:-1]))
        for each in names:
            path = f"{folder}/{each}"
            if root.device_number(path):
                found.append(spec.DeviceNode(path=path, host_path=root.on_node(path)))
    return found


def _listed(root: host.Root, folder: str) -> list[str]:
    try:
        return list(root.list(folder))
    except GpudeckError:
        return []
