# SPDX-License-Identifier: Apache-2.0
"""All that the plugin knows at one moment, and what each resource says from it.

Pure: `main` replaces it as a whole, `serving` reads it. A change goes in two moments:
first what no longer holds is taken back (`taken_back`), and when the kubelet can no longer
hand it out, it is asked what pods hold, and the rest is offered.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gpudeck.deviceplugin import answering, offering, preferring, topology
from gpudeck.errors import InvalidError, UnavailableError
from gpudeck.kubelet import deviceplugins
from gpudeck.kubelet.wire import deviceplugin_pb2 as pb
from gpudeck.pluginconfig import model


class Standing(model.Value, frozen=True):
    """The moment."""

    offer: offering.Offer = offering.Offer()
    way: answering.Way = answering.Way()
    ready: answering.Ready = answering.Ready()
    policy: model.AllocationPolicy = model.AllocationPolicy.DISTRIBUTED
    withheld: tuple[tuple[str, str], ...] = ()
    """Resource and id of the devices that wait for pods."""


def devices(standing: Standing, name: str) -> list[pb.Device]:
    """The list that the kubelet gets; empty for a resource that is no longer offered."""
    resource = standing.offer.resource(name)
    withheld = {device for each, device in standing.withheld if each == name}
    listed = []
    for device in resource.devices if resource is not None else ():
        is_well = not device.unit.fault and device.id not in withheld
        health = deviceplugins.HEALTHY if is_well else deviceplugins.UNHEALTHY
        listed.append(pb.Device(ID=device.id, health=health, topology=_topology(device.unit)))
    return listed


def _topology(unit: offering.Unit) -> pb.TopologyInfo | None:
    node = unit.site.numa_node
    if node is None or node < 0:
        return None
    return pb.TopologyInfo(nodes=[pb.NUMANode(ID=node)])


def taken_back(before: Standing, offer: offering.Offer) -> Standing:
    """The moment before, without what `offer` no longer has, and with what ails the rest by now."""
    known = ids(before.offer)
    kept = tuple(
        msgspec.structs.replace(
            resource,
            devices=tuple(each for each in resource.devices if each.id in known[key]),
        )
        for resource in offer.resources
        if (key := _key(resource)) in known
    )
    both = offering.Offer(resources=kept, problems=offer.problems)
    return msgspec.structs.replace(before, offer=both)


Key = tuple[str, model.Strategy | None]


def ids(offer: offering.Offer) -> dict[Key, frozenset[str]]:
    """The ids of all devices, by resource and how that is shared: replicas by time and by MPS have
    the same ids, and a pod that holds one keeps the card from the other."""
    return {_key(each): frozenset(one.id for one in each.devices) for each in offer.resources}


def _key(resource: offering.Resource) -> Key:
    return resource.name, resource.strategy


def allocate(standing: Standing, name: str, wanted: Sequence[str]) -> pb.ContainerAllocateResponse:
    """The answer for one container. Raises as `answering.answer` does, and UnavailableError for a
    device that waits, which the kubelet may have chosen before it was told so."""
    waiting = [each for each in wanted if (name, each) in standing.withheld]
    if waiting:
        raise UnavailableError(
            f"{name}: {waiting[0]} is given to nobody now, for a reason that the PhysicalGPU of "
            "its card has; a new pod gets another one",
            reason="DeviceWaits",
        )
    found = answering.answer(
        _resource(standing, name), wanted, way=standing.way, ready=standing.ready
    )
    return pb.ContainerAllocateResponse(
        envs=dict(found.envs),
        mounts=[
            pb.Mount(
                container_path=each.container_path,
                host_path=each.host_path,
                read_only=each.read_only,
            )
            for each in found.mounts
        ],
        devices=[
            pb.DeviceSpec(
                container_path=each.path, host_path=each.host_path, permissions=each.permissions
            )
            for each in found.nodes
        ],
        annotations=dict(found.annotations),
        cdi_devices=[pb.CDIDevice(name=each) for each in found.cdi_devices],
    )


def prefer(
    standing: Standing, name: str, request: pb.ContainerPreferredAllocationRequest
) -> list[str]:
    """The devices that a container should get. Raises InvalidError for what cannot be."""
    resource = _resource(standing, name)
    available = list(request.available_deviceIDs)
    required = list(request.must_include_deviceIDs)
    size = request.allocation_size
    # The kubelet's order is that of a set: ours is the order of the list.
    order = {device.id: number for number, device in enumerate(resource.devices)}
    available.sort(key=lambda each: order.get(each, len(order)))
    if preferring.is_whole(resource):
        scores = topology.scores(device.unit for device in resource.devices)
        return preferring.best_connected(
            available, required, size, lambda one, other: scores.get((one, other), 0)
        )
    units = {device.id: _bucket(device) for device in resource.devices}
    is_mps = resource.strategy is model.Strategy.MPS
    choose = preferring.together if is_mps else preferring.balanced
    return choose(available, required, size, units=units, policy=standing.policy)


def _bucket(device: offering.Device) -> str:
    """What a device is a part of: a replica of its unit, a partition of its card."""
    is_replica = offering.REPLICA in device.id
    return device.unit.id if is_replica else device.unit.card.uuid


def _resource(standing: Standing, name: str) -> offering.Resource:
    resource = standing.offer.resource(name)
    if resource is None:
        raise InvalidError(
            f"{name}: this node does not offer it any more; a new pod is not placed here for it",
            reason="ResourceNotOffered",
            field=name,
        )
    return resource
