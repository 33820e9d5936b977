# SPDX-License-Identifier: Apache-2.0
"""Cards to DRA devices and the counters that they share.

Pure; called by `publishing`. A card is offered whole, in partitions at every place that
the driver names, and in shares; of the last two only what a Ready GPUClass selects, or
what a claim holds. Whole card, partitions and shares of one card exclude each other by
counters, so the scheduler never gives out two kinds at once. Partitions that are not
ours are respected: what overlaps them is not offered. The order is that in which a
first-fit scheduler should take devices: partitions by size, then shares, then cards. Where
there are parts, whole cards come from the last to the first: parts begin with the first
card, so the two meet as late as can be and fewer whole cards are cut up.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence, Set

import msgspec

from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.api import attributes, labels, names, quantities, resource, selectors, versions
from gpudeck.api.v1alpha1 import gpuclass
from gpudeck.api.v1alpha1.gpuclass import GPUClassSpec
from gpudeck.devices import cutting
from gpudeck.devices.identities import PciAddress
from gpudeck.dra import placing, tainting
from gpudeck.errors import InvalidError

_ENGINES = {
    cutting.COPY: "copy_engines",
    cutting.DECODERS: "decoders",
    cutting.ENCODERS: "encoders",
    cutting.JPEG: "jpeg_engines",
    cutting.OFA: "ofa_engines",
}
_ONE_CARD = "card"


class Refusal(msgspec.Struct, frozen=True):
    """Why a card is not offered, as the reason and message of its condition Published."""

    reason: str
    message: str


class SharePolicy(msgspec.Struct, frozen=True):
    """What a share is on this node where a claim does not say; bytes."""

    default_bytes: int = 4 << 30
    step_bytes: int = 128 << 20


class Rules(msgspec.Struct, frozen=True):
    """What decides about an offer besides the cards."""

    vendor: str
    classes: tuple[GPUClassSpec, ...] = ()
    """Of the Ready GPUClasses."""
    ours: frozenset[str] = frozenset()
    """Names of the devices that claims of this node hold."""
    shares: SharePolicy = SharePolicy()
    kept_off: Set[PciAddress] | None = frozenset()
    """The cards that get no new claims, for their partition mode is about to change; None where
    that is not known yet, and what is published now holds."""
    effect: str = tainting.NO_SCHEDULE
    """Of the taint of an unhealthy card."""
    taints_kept: bool = True
    """False where the server drops taints: what should carry one is left out instead."""
    counters_kept: bool = True
    """False where the server drops counters: then only whole cards are offered."""
    shares_kept: bool = True
    """False where the server drops that a device may be allocated several times: no shares."""


class Offer(msgspec.Struct):
    """What a node offers."""

    devices: list[resource.Device]
    counters: list[resource.CounterSet]
    withheld: frozenset[str] = frozenset()
    """Cards, by the name of the whole device, with parts that the server does not let us offer."""


def refusal(card: adapter_pb2.Card, ours: Collection[str] = ()) -> Refusal | None:
    """Why nothing of `card` as a whole may be offered; None if it may.

    `ours` are the names of the devices that claims hold: their partitions do not count.
    """
    if not card.driver.ready:
        reason = card.driver.reason or "DriverNotReady"
        return Refusal(reason, card.driver.message or "The card's driver is not ready.")
    strange = foreign(card, ours)
    if strange:
        listed = ", ".join(f"{each.profile} at {each.start}" for each in strange)
        return Refusal(
            "ForeignPartitions",
            f"The card has partitions that gpudeck did not make ({listed}), so it cannot be used "
            "whole; remove them.",
        )
    if _is_enabled(card) and not card.partition_support.dynamic:
        return Refusal(
            "CardPartitioned",
            "The card is in partitioning mode, so it cannot be used whole; the label "
            f"{labels.MIG_MODE}=disabled turns the mode off.",
        )
    return None


def foreign(card: adapter_pb2.Card, ours: Collection[str]) -> list[adapter_pb2.Partition]:
    """The partitions of a card that belong to no claim of this node."""
    address = PciAddress.parse(card.pci_address)
    known = {
        (named.profile_id, named.start)
        for named in map(names.parse_device, ours)
        if named is not None and named.address == address and named.profile_id is not None
    }
    return [
        each
        for each in card.partitioning.partitions
        if not each.HasField("profile_id") or (each.profile_id, each.start) not in known
    ]


def offer(
    cards: Iterable[adapter_pb2.Card],
    rules: Rules,
    *,
    before: Mapping[str, resource.Device] | None = None,
) -> Offer:
    """The devices to offer and their counters.

    An unhealthy card's devices carry a taint; those of a card of unknown health keep the
    taint, or the lack of one, of `before` (the devices published now).
    """
    ranked: list[tuple[tuple[int, ...], resource.Device]] = []
    counters, withheld = [], set()
    keys = tuple(msgspec.json.encode(spec) for spec in rules.classes)
    for index, card in enumerate(sorted(cards, key=_address)):
        if not card.driver.ready:
            continue
        parts = _Card(card, rules, keys)
        found = parts.devices()
        for rank, device in found:
            known = (before or {}).get(device.name)
            device.taints = tainting.of(card, known, effect=rules.effect, kept_off=rules.kept_off)
            if rules.taints_kept or not device.taints:
                ranked.append(((*rank[:2], index, *rank[2:]), device))
        if parts.counters is not None:
            counters.append(parts.counters)
        if parts.is_withheld:
            withheld.add(names.gpu_device_name(_address(card)))
    ranked.sort(key=lambda each: each[0])
    cut = [device for rank, device in ranked if rank[0] != _WHOLE]
    whole = [device for rank, device in ranked if rank[0] == _WHOLE]
    return Offer(cut + (whole[::-1] if counters else whole), counters, frozenset(withheld))


def device(card: adapter_pb2.Card, name: str, vendor: str) -> resource.Device | None:
    """The device of that name as `offer` describes it, offered now or not; None for another card's.

    Raises InvalidError for a card of an unreadable address.
    """
    named = names.parse_device(name)
    if named is None or named.address != _address(card):
        return None
    return _Card(card, Rules(vendor=vendor), ()).device(named)


def _address(card: adapter_pb2.Card) -> PciAddress:
    return PciAddress.parse(card.pci_address)


def _is_enabled(card: adapter_pb2.Card) -> bool:
    return bool(card.partitioning.mode == adapter_pb2.PARTITIONING_MODE_ENABLED)


_WHOLE = 2
Ranked = tuple[tuple[int, int, int], resource.Device]
"""Kind, size and preference within the card; less comes first."""


class _Card:
    """One card on its way to devices."""

    def __init__(self, card: adapter_pb2.Card, rules: Rules, keys: Sequence[bytes]) -> None:
        self._card, self._rules, self._keys = card, rules, keys
        self._address = _address(card)
        self._foreign = foreign(card, rules.ours)
        self._base = _attributes(card, rules.vendor)
        self.counters: resource.CounterSet | None = None
        self.is_withheld = False
        """Whether the server does not let us offer parts that somebody wants, or holds."""

    def devices(self) -> list[Ranked]:
        """The card's devices, with the counters that they need."""
        rules = self._rules
        whole = [] if refusal(self._card, rules.ours) else [self._whole()]
        partitions, shares = self._partitions(), self._shares() if whole else []
        lost = [] if rules.counters_kept else partitions
        if not (rules.counters_kept and rules.shares_kept):
            lost, shares = [*lost, *shares], []
        self.is_withheld = bool(lost)
        if any(device.name in rules.ours for _, device in lost):
            # The scheduler cannot know of the part, and would give out the card beside it.
            return []
        if not rules.counters_kept:
            return whole
        if not partitions and not shares:
            return whole
        self._count(with_partitions=bool(partitions))
        for _, device in [*shares, *whole]:
            device.consumes_counters = [self._consumption(self._totals())]
        return [*partitions, *shares, *whole]

    def device(self, named: names.DeviceName) -> resource.Device | None:
        """One of the card's devices by name; None for a partition of an unknown profile."""
        if named.type == attributes.TYPE_SHARE:
            return self._share("MPS" if named.mps else "TimeSlicing")
        if named.profile_id is None or named.start is None:
            return self._whole()[1]
        for profile in self._card.partition_support.profiles:
            if profile.profile_id == named.profile_id:
                return self._partition(profile, placing.Place(named.start, 1))
        return None

    def _whole(self) -> Ranked:
        texts = {
            attributes.TYPE: attributes.TYPE_GPU,
            attributes.DEVICE_TYPE: attributes.DEVICE_TYPE_PHYSICAL,
            attributes.UUID: self._card.uuid,
        }
        device = resource.Device(
            name=names.gpu_device_name(self._address),
            attributes=self._base | _texts(texts),
            capacity=_memory(self._card),
        )
        return (_WHOLE, 0, 0), device

    def _shares(self) -> list[Ranked]:
        found = []
        for place, strategy in enumerate((gpuclass.TIME_SLICING, gpuclass.MPS)):
            device = self._share(strategy)
            is_possible = strategy != gpuclass.MPS or self._card.share_support.mps
            # What a claim holds stays, also while nobody keeps daemons: it takes the card.
            if device.name in self._rules.ours or (is_possible and self._is_wanted(device)):
                found.append(((1, 0, place), device))
        return found

    def _share(self, strategy: str) -> resource.Device:
        texts = {
            attributes.TYPE: attributes.TYPE_SHARE,
            attributes.DEVICE_TYPE: attributes.TYPE_SHARE,
            attributes.PARENT_UUID: self._card.uuid,
            attributes.SHARING_STRATEGY: strategy,
        }
        capacity = {
            attributes.CORES: resource.Capacity(
                value="100",
                request_policy=resource.RequestPolicy(
                    default="1", valid_range=resource.CapacityRange(min="1", step="1")
                ),
            )
        }
        if self._card.HasField("memory_bytes"):
            capacity[attributes.MEMORY] = self._shared_memory(self._card.memory_bytes)
        return resource.Device(
            name=names.share_device_name(self._address, mps=strategy == gpuclass.MPS),
            attributes=self._base | _texts(texts),
            capacity=capacity,
            allow_multiple_allocations=True,
        )

    def _shared_memory(self, total: int) -> resource.Capacity:
        step = self._rules.shares.step_bytes
        usable = total // step * step
        default = min(self._rules.shares.default_bytes // step * step or step, usable)
        return resource.Capacity(
            value=quantities.render(total),
            request_policy=resource.RequestPolicy(
                default=quantities.render(default),
                valid_range=resource.CapacityRange(
                    min=quantities.render(step),
                    max=quantities.render(usable),
                    step=quantities.render(step),
                ),
            ),
        )

    # Partitions

    def _partitions(self) -> list[Ranked]:
        card = self._card
        if not card.partition_support.supported:
            return []
        if not card.partition_support.dynamic and not _is_enabled(card):
            return []
        taken = [placing.Place(each.start, max(each.size, 1)) for each in self._foreign]
        found = []
        for profile in card.partition_support.profiles:
            for rank, place in enumerate(_places(card, profile.profile_id)):
                if any(place.overlaps(other) for other in taken):
                    continue
                device = self._partition(profile, place)
                if self._is_wanted(device):
                    found.append(((0, profile.memory_mib, rank), device))
        return found

    def _partition(
        self, profile: adapter_pb2.PartitionProfile, place: placing.Place
    ) -> resource.Device:
        texts = {
            attributes.TYPE: attributes.TYPE_MIG,
            attributes.DEVICE_TYPE: attributes.TYPE_MIG,
            attributes.PARENT_UUID: self._card.uuid,
            attributes.PROFILE: profile.name,
        }
        found = self._base | _texts(texts)
        if self._card.HasField("memory_bytes"):
            found[attributes.CARD_MEMORY] = resource.Attribute(int_=self._card.memory_bytes)
        memory = quantities.render(profile.memory_mib * quantities.MEBIBYTE)
        processors = str(profile.multiprocessors)
        return resource.Device(
            name=names.mig_device_name(
                self._address, profile.name, profile.profile_id, place.start
            ),
            attributes=found,
            capacity={
                attributes.MEMORY: resource.Capacity(value=memory),
                attributes.MULTIPROCESSORS: resource.Capacity(value=processors),
            },
            consumes_counters=[
                self._consumption(
                    cutting.needs(_profile(profile), cutting.Place(place.start, place.size))
                )
            ],
        )

    def _is_wanted(self, device: resource.Device) -> bool:
        if device.name in self._rules.ours:
            return True
        return _selects(self._keys, selectors.traits_of_device(device))

    # Counters

    def _count(self, *, with_partitions: bool) -> None:
        totals = self._totals() if with_partitions else {_ONE_CARD: 1}
        self.counters = resource.CounterSet(
            name=self._set_name(),
            counters={name: resource.Counter(value=str(each)) for name, each in totals.items()},
        )

    def _totals(self) -> dict[str, int]:
        """All that the card has: its memory slices, compute slices and engines."""
        if self.counters is not None and _ONE_CARD in self.counters.counters:
            return {_ONE_CARD: 1}
        return cutting.totals(_model(self._card.partition_support))

    def _consumption(self, needs: Mapping[str, int]) -> resource.CounterConsumption:
        return resource.CounterConsumption(
            counter_set=self._set_name(),
            counters={name: resource.Counter(value=str(each)) for name, each in needs.items()},
        )

    def _set_name(self) -> str:
        return f"card-{self._address.dashed}"


def _model(support: adapter_pb2.PartitionSupport) -> cutting.Model:
    return cutting.Model(support.total_slices, tuple(map(_profile, support.profiles)))


def _profile(found: adapter_pb2.PartitionProfile) -> cutting.Profile:
    counts = {name: getattr(found, field) for name, field in _ENGINES.items()}
    return cutting.Profile(
        profile_id=found.profile_id,
        name=found.name,
        memory_mib=found.memory_mib,
        slices=found.slices,
        engines=tuple((name, count) for name, count in counts.items() if count),
        places=tuple(cutting.Place(each.start, each.size) for each in found.placements),
    )


def _places(card: adapter_pb2.Card, profile_id: int) -> list[placing.Place]:
    """The places of a profile, that first which spoils least."""
    known = tuple(
        placing.Profile(
            profile_id=each.profile_id,
            memory_mib=each.memory_mib,
            slices=each.slices,
            places=tuple(placing.Place(one.start, one.size) for one in each.placements),
        )
        for each in card.partition_support.profiles
    )
    return list(_ordered(known)[profile_id])


@functools.lru_cache(maxsize=32)
def _ordered(profiles: tuple[placing.Profile, ...]) -> dict[int, list[placing.Place]]:
    """The order of every profile of a model of card: it costs some milliseconds once."""
    return {each.profile_id: placing.ordered(each, profiles) for each in profiles}


@functools.lru_cache(maxsize=1024)
def _is_selected(spec: bytes, traits: selectors.Traits) -> bool:
    return selectors.matches(msgspec.json.decode(spec, type=GPUClassSpec), traits)


def _selects(keys: Sequence[bytes], traits: selectors.Traits) -> bool:
    """Whether any class, by its spec as JSON, selects a device; one that cannot be read none."""
    for key in keys:
        try:
            if _is_selected(key, traits):
                return True
        except InvalidError:
            continue  # The class is not Ready for that, and says so itself.
    return False


# Attributes and capacity


def _attributes(card: adapter_pb2.Card, vendor: str) -> dict[str, resource.Attribute]:
    """What all devices of a card have."""
    address = _address(card)
    found = _texts(
        {
            attributes.VENDOR: vendor,
            attributes.PRODUCT_NAME: card.product_name,
            attributes.DEVICE: names.device_label(card.product_name),
            attributes.GPU_UUID: card.uuid,
            attributes.ARCHITECTURE: card.architecture,
            attributes.PCI_BUS_ID: str(address),
            attributes.PCIE_ROOT: card.pcie_root,
        }
    )
    for name, text in _versions(card).items():
        if (version := versions.normalise(text)) is not None:
            found[name] = resource.Attribute(version=version)
    if card.HasField("numa_node"):
        found[attributes.NUMA_NODE] = resource.Attribute(int_=card.numa_node)
    return found


def _texts(texts: Mapping[str, str]) -> dict[str, resource.Attribute]:
    return {
        name: resource.Attribute(string=names.attribute_text(text))
        for name, text in texts.items()
        if text.strip()
    }


def _versions(card: adapter_pb2.Card) -> dict[str, str]:
    found = {attributes.DRIVER_VERSION: card.driver.version}
    if card.compute_api == "CUDA":
        found[attributes.COMPUTE_CAPABILITY] = card.compute_capability
        found[attributes.CUDA_DRIVER_VERSION] = card.api_driver_version
    return found


def _memory(card: adapter_pb2.Card) -> dict[str, resource.Capacity] | None:
    if not card.HasField("memory_bytes"):
        return None  # A made-up number would match selectors by accident.
    return {attributes.MEMORY: resource.Capacity(value=quantities.render(card.memory_bytes))}
