# SPDX-License-Identifier: Apache-2.0
"""All cards of the cluster in one list, whoever tells of them, and who holds each.

Three sources, best first: PhysicalGPU objects, in which gpudeck's device plugin says too who
has what; ResourceSlices of GPU drivers (gpudeck's without its objects, NVIDIA's
`gpu.nvidia.com`); any other device plugin, of which the API tells only how many cards a node
has and what its pods asked for: there, which pod has which card of the node is a guess, and
marked as such. A card that two sources tell of is one card.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
from collections.abc import Iterator

from gpudeck.api import attributes, labels, names, quantities
from gpudeck.api.core import Node, Pod
from gpudeck.api.resource import (
    AllocatedDevice,
    Attribute,
    Counter,
    Device,
    ResourceClaim,
    ResourceSlice,
)
from gpudeck.api.v1alpha1.physicalgpu import HolderPod, PhysicalGPU
from gpudeck.devices.identities import PciAddress
from gpudeck.explaining import asking
from gpudeck.explaining.world import World, is_over, node_of

NVIDIA_DRIVER = "gpu.nvidia.com"
DRIVERS = (labels.DRIVER, NVIDIA_DRIVER)
"""DRA drivers whose devices are cards or parts of them."""
WHOLE_BY_PLUGIN = "nvidia.com/gpu"
_REPLICAS, _COUNT = "nvidia.com/gpu.replicas", "nvidia.com/gpu.count"
_PRODUCT, _MEMORY = "nvidia.com/gpu.product", "nvidia.com/gpu.memory"


class Source(enum.StrEnum):
    """Who tells of a card."""

    GPUDECK = "gpudeck"
    DRA = "dra"
    DEVICE_PLUGIN = "device-plugin"


@dataclasses.dataclass(frozen=True)
class Holder:
    """A claim, or by the device plugin a pod, that has a card."""

    namespace: str
    pods: tuple[str, ...] = ()
    claim: str = ""
    is_exact: bool = True
    """False where the API does not tell which card of the node it is."""
    part: str = ""
    """What of the card: a profile or an amount; "" for all of it."""

    @property
    def text(self) -> str:
        """Name the pods, or the claim that no pod uses."""
        if self.pods:
            return ", ".join(f"{self.namespace}/{pod}" for pod in self.pods)
        return f"claim {self.namespace}/{self.claim}"

    @property
    def label(self) -> str:
        """The holder, and what of the card it has."""
        return f"{self.text} ({self.part})" if self.part else self.text


@dataclasses.dataclass
class Card:
    """One card. Facts that nobody tells are "" or None."""

    name: str
    node: str
    source: Source
    uuid: str = ""
    product: str = ""
    memory_mib: int | None = None
    address: str = ""
    driver: str = ""
    gpu: PhysicalGPU | None = None
    device: Device | None = None
    """The whole card as a DRA device, if it is published."""
    parts: list[Device] = dataclasses.field(default_factory=list)
    """DRA devices that are parts of it."""
    held_devices: set[str] = dataclasses.field(default_factory=set)
    """Names of its DRA devices that claims hold."""
    consumed: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    """Of its shared devices, by name: how much of each capacity claims hold."""
    counters: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    """What its devices share, by counter set (KEP-4815)."""
    is_offered: bool = True
    """False for a card beyond what the device plugin says is allocatable."""
    is_plugin_node: bool = False
    """Whether a device plugin hands out the cards of the node now."""
    is_told: bool = False
    """Whether that is gpudeck's, which tells of each card what it is offered as, and who has it."""
    offers: dict[str, int] = dataclasses.field(default_factory=dict)
    """By extended resource: devices of the card that the kubelet may give to somebody."""
    uncounted: str = ""
    """An extended resource of which the kubelet counts nothing, for its device plugin is gone."""
    given: dict[str, int] = dataclasses.field(default_factory=dict)
    """By extended resource: devices of the card that containers have."""
    holders: list[Holder] = dataclasses.field(default_factory=list)

    @property
    def devices(self) -> list[Device]:
        """All its DRA devices."""
        return [*([self.device] if self.device is not None else []), *self.parts]


Key = tuple[str, str, str]
"""Driver, pool and device, as an allocation names them."""


def all_of(world: World) -> list[Card]:
    """Return every card of the cluster, by node and name, with its holders."""
    by_device: dict[Key, Card] = {}
    found = [_from_gpu(gpu, by_device) for gpu in world.gpus.values()]
    known = {
        (card.node, fact): card for card in found for fact in (card.uuid, card.address) if fact
    }
    for each in world.slices:
        if each.spec.driver in DRIVERS:
            found += _from_slice(each, known, by_device)
    _share_counters(world, by_device)
    places = {(card.node, card.address): card for card in found if card.address}
    for claim in world.claims.values():
        _hold(claim, by_device, places)
    for card in found:
        _told(card, world)
    for name, node in world.nodes.items():
        found += _from_plugin(name, node, [card for card in found if card.node == name], world)
    return sorted(found, key=lambda card: (card.node, card.address, card.name))


def is_in_no_slice(card: Card, world: World) -> bool:
    """Whether no driver offers a card of gpudeck; False where slices may not be read.

    The condition Published stays True when the DRA plugin is gone with its pod, while
    the kubelet takes the slices of a driver that left away (Kubernetes 1.37).
    """
    return (
        card.gpu is not None
        and card.device is None
        and not card.parts
        and not card.is_plugin_node
        and "resourceslices" not in world.unreadable
    )


def _from_gpu(gpu: PhysicalGPU, by_device: dict[Key, Card]) -> Card:
    status = gpu.status
    info, state = (status.pci_info, status.current_state) if status else (None, None)
    can = status.capabilities if status else None
    node = (gpu.metadata.labels or {}).get(labels.NODE, "")
    if status and status.node_info and status.node_info.node_name:
        node = status.node_info.node_name
    fallback = info.device.name if info and info.device else None
    card = Card(
        name=gpu.metadata.name,
        node=node,
        source=Source.GPUDECK,
        uuid=(state.uuid if state else None) or "",
        product=(can.product_name if can else None) or fallback or "",
        memory_mib=can.memory_mib if can else None,
        address=info.address if info else "",
        driver=labels.DRIVER,
        gpu=gpu,
    )
    if card.address:
        device = names.gpu_device_name(PciAddress.parse(card.address))
        by_device[labels.DRIVER, names.pool_name(node), device] = card
    return card


def _share_counters(world: World, by_device: dict[Key, Card]) -> None:
    """Give each card the counter sets that its devices consume."""
    totals = {
        (each.spec.driver, each.spec.pool.name, one.name): one
        for each in world.slices
        for one in each.spec.shared_counters or ()
    }
    for (driver, pool, _), card in by_device.items():
        for device in card.devices:
            for taken in device.consumes_counters or ():
                total = totals.get((driver, pool, taken.counter_set))
                if total is not None:
                    card.counters[total.name] = amounts(total.counters)


def amounts(counters: dict[str, Counter]) -> dict[str, int]:
    """Return counters as numbers."""
    return {name: quantities.parse(each.value) for name, each in counters.items()}


def _from_slice(
    part: ResourceSlice, known: dict[tuple[str, str], Card], by_device: dict[Key, Card]
) -> list[Card]:
    """Add the devices of a slice to the cards that are known, and return the new cards."""
    spec = part.spec
    node = spec.node_name or spec.pool.name
    new: list[Card] = []
    for device in spec.devices or ():
        kind = _text(device, spec.driver, attributes.TYPE)
        uuid = _text(device, spec.driver, attributes.UUID)
        whole = kind in ("", attributes.TYPE_GPU)
        identity = uuid if whole else _text(device, spec.driver, "parentUUID")
        address = _text(device, spec.driver, attributes.PCI_BUS_ID)
        key = (spec.driver, spec.pool.name, device.name)
        card = by_device.get(key) or known.get((node, identity)) or known.get((node, address))
        if card is None:
            card = Card(
                device.name, node, Source.DRA, uuid=identity, address=address, driver=spec.driver
            )
            new.append(card)
            known.update({(node, fact): card for fact in (identity, address) if fact})
        by_device[key] = card
        if not whole:
            card.parts.append(device)
        elif card.device is None:
            _describe(card, device, spec.driver)
    return new


def _describe(card: Card, device: Device, driver: str) -> None:
    card.device = device
    card.driver = driver
    card.product = card.product or _text(device, driver, attributes.PRODUCT_NAME)
    capacity = (device.capacity or {}).get(attributes.MEMORY)
    if card.memory_mib is None and capacity is not None:
        card.memory_mib = quantities.parse(capacity.value) // quantities.MEBIBYTE


def attribute(device: Device, driver: str, name: str) -> Attribute | None:
    """Return an attribute by its name; without a domain it is in the driver's."""
    known = device.attributes or {}
    return (
        known.get(name)
        or known.get(f"{driver}/{name}")
        or known.get(name.removeprefix(f"{driver}/"))
    )


def _text(device: Device, driver: str, name: str) -> str:
    found = attribute(device, driver, name)
    return (found.string if found else None) or ""


def results_of(claim: ResourceClaim) -> list[AllocatedDevice]:
    """Return the devices that a claim has to itself; administrators' access holds nothing."""
    status = claim.status
    devices = status.allocation.devices if status and status.allocation else None
    found = (devices.results if devices else None) or []
    return [each for each in found if not each.admin_access]


def _hold(
    claim: ResourceClaim, by_device: dict[Key, Card], places: dict[tuple[str, str], Card]
) -> None:
    reserved = (claim.status.reserved_for if claim.status else None) or []
    holder = Holder(
        namespace=claim.metadata.namespace or "",
        pods=tuple(sorted(each.name for each in reserved if each.resource == "pods")),
        claim=claim.metadata.name,
    )
    for result in results_of(claim):
        card = by_device.get((result.driver, result.pool, result.device))
        if card is None:
            card = _unpublished(result, places)
        if card is None:
            continue
        card.held_devices.add(result.device)
        taken = card.consumed.setdefault(result.device, {})
        for name, amount in (result.consumed_capacity or {}).items():
            plain = name.removeprefix(f"{result.driver}/")
            taken[plain] = taken.get(plain, 0) + quantities.parse(amount)
        mine = dataclasses.replace(holder, part=_part(result, card))
        if mine not in card.holders:
            card.holders.append(mine)


def _part(result: AllocatedDevice, card: Card) -> str:
    """What of the card a result is: a profile, an amount of memory, "" for all of it."""
    named = names.parse_device(result.device) if result.driver == labels.DRIVER else None
    for name, amount in (result.consumed_capacity or {}).items():
        if name.rpartition("/")[2] == attributes.MEMORY:
            by = " by MPS" if named is not None and named.mps else ""
            return quantities.short(quantities.parse(amount)) + by
    device = next((each for each in card.parts if each.name == result.device), None)
    if device is not None:
        return _text(device, result.driver, attributes.PROFILE)
    return named.type if named is not None and named.type != attributes.TYPE_GPU else ""


def _unpublished(result: AllocatedDevice, places: dict[tuple[str, str], Card]) -> Card | None:
    """A device that is in no slice now: allocated before, or its class is gone."""
    address = names.address_of_device(result.device)
    if result.driver != labels.DRIVER or address is None:
        return None
    return places.get((result.pool, str(address)))


# The device plugin


def _told(card: Card, world: World) -> None:
    """Take over what the device plugin of the card's node says of it, if one does."""
    status = card.gpu.status if card.gpu is not None else None
    node = world.nodes.get(card.node)
    mode = ((node.metadata.labels if node else None) or {}).get(labels.ACTIVE_MODE, "")
    offers = (status.extended_resources if status else None) or []
    if card.gpu is None or (not offers and mode != labels.MODE_DEVICE_PLUGIN):
        return
    card.is_plugin_node = card.is_told = True
    counted = (node.status.allocatable if node and node.status else None) or {}
    for each in offers:
        healthy = each.devices if each.healthy is None else each.healthy
        if healthy and counted.get(each.resource) == "0":
            card.uncounted, healthy = each.resource, 0
        card.offers[each.resource] = healthy
    holders = (status.occupancy.plugin if status and status.occupancy else None) or []
    for holder in holders:
        card.given[holder.resource] = card.given.get(holder.resource, 0) + 1
    for (namespace, pod), mine in _by_pod(holders).items():
        card.holders.append(Holder(namespace, (pod,), part=_parts(mine)))


def _by_pod(holders: list[HolderPod]) -> dict[tuple[str, str], list[HolderPod]]:
    found: dict[tuple[str, str], list[HolderPod]] = collections.defaultdict(list)
    for each in holders:
        found[each.namespace, each.pod].append(each)
    return found


def _parts(mine: list[HolderPod]) -> str:
    """What of the card a pod has: profiles and replicas; "" for all of it."""
    counts = collections.Counter(
        (each.profile or "", each.replicas if "::" in each.device else None) for each in mine
    )
    said = []
    for (profile, replicas), count in sorted(counts.items(), key=str):
        words = [f"{count}/{replicas}"] if replicas else []
        words += ["of"] if replicas and profile else []
        words += [profile if count == 1 or replicas else f"{count} {profile}"] if profile else []
        said.append(" ".join(words))
    return ", ".join(filter(None, said))


def plugin_resources(node: Node) -> dict[str, int]:
    """Return how many devices of each kind a device plugin has on the node.

    In DRA mode that is none: what the kubelet still counts then is of a plugin that has ended.
    """
    if (node.metadata.labels or {}).get(labels.ACTIVE_MODE) == labels.MODE_DRA:
        return {}
    capacity = (node.status.capacity if node.status else None) or {}
    return {
        name: count
        for name, text in capacity.items()
        if asking.is_plugin_resource(name) and (count := quantities.parse(text)) > 0
    }


def needs_pods(world: World) -> bool:
    """Whether a node has a device plugin that does not tell who has which card."""
    told = {
        (each.metadata.labels or {}).get(labels.NODE, "")
        for each in world.gpus.values()
        if each.status is not None and each.status.extended_resources
    }
    return any(plugin_resources(node) for name, node in world.nodes.items() if name not in told)


def _from_plugin(name: str, node: Node, known: list[Card], world: World) -> list[Card]:
    """Give the pods of the node's device plugin cards, and return the cards nobody else told of."""
    offered = plugin_resources(node)
    if not offered or any(card.is_told for card in known):
        return []
    new = [] if known else _anonymous(name, node, offered)
    cards = known or new
    for card in cards:
        card.is_plugin_node = True
    free = [card for card in cards if not card.holders]
    units = max(1, sum(offered.values()) // max(1, len(cards)))
    for position, pod in enumerate(_plugin_units(name, world)):
        if free:
            holder = Holder(
                pod.metadata.namespace or "", (pod.metadata.name,), is_exact=len(cards) == 1
            )
            card = free[min(position // units, len(free) - 1)]
            if holder not in card.holders:
                card.holders.append(holder)
    return new


def _anonymous(name: str, node: Node, offered: dict[str, int]) -> list[Card]:
    known = node.metadata.labels or {}
    replicas = max(1, _number(known.get(_REPLICAS)) or 1)
    count = _number(known.get(_COUNT)) or max(1, offered.get(WHOLE_BY_PLUGIN, 0) // replicas)
    allocatable = (node.status.allocatable if node.status else None) or {}
    usable = sum(
        quantities.parse(text)
        for resource, text in allocatable.items()
        if asking.is_plugin_resource(resource)
    )
    whole = usable * count // sum(offered.values())
    memory = _number(known.get(_MEMORY))
    return [
        Card(
            name=f"#{index}",
            node=name,
            source=Source.DEVICE_PLUGIN,
            product=known.get(_PRODUCT, ""),
            memory_mib=memory,
            is_offered=index < whole,
        )
        for index in range(count)
    ]


def _plugin_units(node: str, world: World) -> Iterator[Pod]:
    """Give a pod of the node once for each device that it has from the device plugin."""
    for _, pod in sorted(world.pods.items()):
        if node_of(pod) != node or is_over(pod):
            continue
        for resource, count in asking.extended_resources(pod).items():
            if asking.is_plugin_resource(resource) and not asking.is_by_dra(pod, resource):
                yield from [pod] * count


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None
