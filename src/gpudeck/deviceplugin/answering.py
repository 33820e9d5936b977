# SPDX-License-Identifier: Apache-2.0
"""What the kubelet is answered when a container gets devices.

Pure, and without the maker's library, files or the API server: whatever is away, pods
go on starting. Names of variables, mounts and annotations are those that NVIDIA's
container toolkit reads (device plugin 0.20).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from gpudeck import errors
from gpudeck.api import quantities
from gpudeck.cdi import plugins, spec
from gpudeck.deviceplugin import offering
from gpudeck.errors import InvalidError, UnavailableError
from gpudeck.pluginconfig import model

CDI_CLASS = "gpu"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
_MOUNTED = "/var/run/nvidia-container-devices"
_IMEX = "NVIDIA_IMEX_CHANNELS"


class Way(model.Value, frozen=True):
    """How containers are told of their devices; every flag has its value."""

    strategies: tuple[model.ListStrategy, ...] = (model.ListStrategy.ENVVAR,)
    ids: model.IdStrategy = model.IdStrategy.UUID
    annotation_prefix: str = "cdi.k8s.io/"
    pass_device_specs: bool = False
    imex_channels: tuple[int, ...] = ()
    imex_required: bool = False
    """Without its channels no card is handed out."""
    features: tuple[str, ...] = ()
    """Of `gdrcopy`, `gds`, `mofed`: those that every container with a card has."""


class Mount(model.Value, frozen=True):
    container_path: str
    host_path: str
    read_only: bool = True


class Answer(model.Value, frozen=True):
    """For one container."""

    envs: tuple[tuple[str, str], ...] = ()
    mounts: tuple[Mount, ...] = ()
    nodes: tuple[spec.DeviceNode, ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    cdi_devices: tuple[str, ...] = ()


class Addition(model.Value, frozen=True):
    """What a replica needs where the runtime reads no CDI file."""

    envs: tuple[tuple[str, str], ...] = ()
    mounts: tuple[Mount, ...] = ()


class Ready(model.Value, frozen=True):
    """What was found out before about each unit of the node."""

    nodes: tuple[tuple[str, tuple[spec.DeviceNode, ...]], ...] = ()
    """The device nodes of units, by id, with those that all need."""
    named: tuple[str, ...] = ()
    """Ids of the units that the CDI file on disk has."""
    unready: tuple[tuple[str, str], ...] = ()
    """Why a unit is not in it, by id."""
    additions: tuple[tuple[str, Addition], ...] = ()
    """What replicas need besides their unit, by id of the unit."""
    extras: tuple[str, ...] = ()
    """Fully qualified CDI devices besides the cards: channels, features."""


def answer(resource: offering.Resource, ids: Sequence[str], *, way: Way, ready: Ready) -> Answer:
    """The answer for one container.

    Raises InvalidError for ids that the resource has not, and for more replicas than a container
    may have; UnavailableError where a device cannot be named to the runtime now.
    """
    units = _units(resource, ids)
    _check(units, resource, way, ready)
    names = [unit.index if way.ids is model.IdStrategy.INDEX else unit.id for unit in units]
    strategies = way.strategies
    envs: list[tuple[str, str]] = []
    mounts: list[Mount] = []
    if model.ListStrategy.ENVVAR in strategies:
        envs.append((VISIBLE, ",".join(names)))
        if way.imex_channels:
            envs.append((_IMEX, ",".join(map(str, way.imex_channels))))
    if model.ListStrategy.VOLUME_MOUNTS in strategies:
        # NVIDIA's runtime takes the list from the mounts when the variable names their folder.
        envs = [(VISIBLE, _MOUNTED)] + [each for each in envs if each[0] != VISIBLE]
        mounts = _mounts(names, way)
    if model.CDI.isdisjoint(strategies):
        added = dict(ready.additions)
        for unit in units:
            if part(resource, unit) is not None:
                addition = added.get(unit.id, Addition())
                envs += addition.envs
                mounts += addition.mounts
    if not model.CDI.issuperset(strategies):
        envs += [(f"NVIDIA_{each.upper()}", "enabled") for each in way.features]
    qualified = _qualified(units, resource, way, ready)
    return Answer(
        envs=tuple(envs),
        mounts=tuple(mounts),
        nodes=_nodes(units, ready) if way.pass_device_specs else (),
        annotations=_annotations(ids, qualified, way),
        cdi_devices=qualified if model.ListStrategy.CDI_CRI in strategies else (),
    )


def _units(resource: offering.Resource, ids: Sequence[str]) -> list[offering.Unit]:
    """The units of the devices that a container gets, if it may have them."""
    known = {device.id: device.unit for device in resource.devices}
    unknown = [each for each in ids if each not in known]
    if unknown or not ids:
        raise InvalidError(
            f"{resource.name}: the kubelet chose {errors.listed(unknown, 3) or 'no device'}; "
            "allowed: what this node offers, which may have changed since; a new pod gets that",
            reason="DeviceUnknown",
            field=resource.name,
            allowed="what this node offers",
        )
    if resource.single_only and len(ids) > 1 and any(offering.REPLICA in each for each in ids):
        raise InvalidError(
            f"a container asks for {len(ids)} of {resource.name}; allowed: 1. It is shared, so "
            "more of it gives no larger part of a card (failRequestsGreaterThanOne is set)",
            reason="SharedRequestTooLarge",
            field=resource.name,
            allowed="1",
        )
    units = list({known[each].id: known[each] for each in ids}.values())
    if resource.strategy is model.Strategy.MPS and len(units) > 1:
        raise InvalidError(
            f"a container asks for replicas of {len(units)} cards of {resource.name}; allowed: of "
            "one, for a process finds one MPS daemon",
            reason="SharedRequestTooLarge",
            field=resource.name,
            allowed="1",
        )
    return units


class Part(model.Value, frozen=True):
    """What one replica may take of its unit."""

    strategy: model.Strategy
    memory_bytes: int | None = None
    cores: int | None = None
    """Percent of the multiprocessors."""

    @property
    def suffix(self) -> str:
        """Tells it in names: a runtime may keep what it read of a name that it knows."""
        words = ["mps"] if self.strategy is model.Strategy.MPS else []
        words += [f"{self.memory_bytes >> 20}Mi"] if self.memory_bytes is not None else []
        words += [str(self.cores)] if self.cores is not None else []
        return "-" + "-".join(words)


def part(resource: offering.Resource, unit: offering.Unit) -> Part | None:
    """What a replica of a unit may take; None where it has all that it can get.

    Partitions have their own memory, and the driver keeps no limits within one (NVML 13).
    By MPS each has an equal part unless told else, as with NVIDIA's device plugin 0.20.
    """
    if resource.strategy is None or unit.partition is not None:
        return None
    # Entries of one resource may share some of its cards otherwise than others.
    mine = [each.id for each in resource.devices if each.unit.id == unit.id]
    if not any(offering.REPLICA in each for each in mine):
        return None
    is_mps = resource.strategy is model.Strategy.MPS
    limit = dict(resource.limits).get(unit.id, model.EQUAL if is_mps else "")
    memory = unit.card.memory_bytes
    amount = None
    if limit == model.EQUAL:
        amount = memory // len(mine) if memory is not None else None
    elif limit:
        amount = quantities.parse(limit)
    if is_mps:
        return Part(strategy=resource.strategy, memory_bytes=amount, cores=100 // len(mine))
    return Part(strategy=resource.strategy, memory_bytes=amount) if amount is not None else None


def cdi_name(unit: offering.Unit, way: Way, limited: Part | None = None) -> str:
    """The name of a unit in the CDI file, or of a part of it."""
    name = unit.index if way.ids is model.IdStrategy.INDEX else unit.id
    return name if limited is None else name + limited.suffix


def cdi_device(name: str) -> str:
    """The fully qualified name."""
    return f"{plugins.VENDOR}/{CDI_CLASS}={name}"


def _check(
    units: Iterable[offering.Unit], resource: offering.Resource, way: Way, ready: Ready
) -> None:
    """Refuse a unit of which the answer would lack something; a whole one needs but a variable."""
    needs = way.pass_device_specs or way.imex_required or not model.CDI.isdisjoint(way.strategies)
    missing = [
        unit.id
        for unit in units
        if unit.id not in ready.named and (needs or part(resource, unit) is not None)
    ]
    if missing:
        why = dict(ready.unready)
        reason = why.get(missing[0], f"it is not known yet what containers need of {missing[0]}.")
        raise UnavailableError(f"{resource.name}: {reason}", reason="DeviceNotNamed")


def _qualified(
    units: Iterable[offering.Unit], resource: offering.Resource, way: Way, ready: Ready
) -> tuple[str, ...]:
    if model.CDI.isdisjoint(way.strategies):
        return ()
    found = [cdi_device(cdi_name(unit, way, part(resource, unit))) for unit in units]
    return (*found, *ready.extras)


def _mounts(names: Iterable[str], way: Way) -> list[Mount]:
    paths = [f"{_MOUNTED}/{each}" for each in names]
    paths += [f"{_MOUNTED}/imex/{each}" for each in way.imex_channels]
    return [Mount(container_path=path, host_path="/dev/null") for path in paths]


def _nodes(units: Iterable[offering.Unit], ready: Ready) -> tuple[spec.DeviceNode, ...]:
    known = dict(ready.nodes)
    nodes = [node for unit in units for node in known.get(unit.id, ())]
    return tuple({node.path: node for node in nodes}.values())


def _annotations(
    ids: Sequence[str], qualified: Sequence[str], way: Way
) -> tuple[tuple[str, str], ...]:
    if model.ListStrategy.CDI_ANNOTATIONS not in way.strategies:
        return ()
    # Two containers of a pod must not have one key; the ids are the container's own.
    digest = hashlib.sha256(",".join(sorted(ids)).encode()).hexdigest()[:32]
    key = f"{way.annotation_prefix}nvidia-device-plugin_{digest}"
    return ((key, ",".join(qualified)),)
