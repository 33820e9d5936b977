# SPDX-License-Identifier: Apache-2.0
"""Cards of the simulated models, as readings: for the tests of labels."""

from __future__ import annotations

import msgspec

from gpudeck.gfd import labelling
from gpudeck.lab import machine
from gpudeck.vendors import contract, health, records

DRIVER = contract.DriverState(
    ready=True, reason="DriverReady", message="", version="580.95.05", api_version="13.0"
)
MODES = contract.PartitioningMode


def host(name: str) -> list[contract.CardReading]:
    """The cards of a simulated machine; MIG is off where there is MIG."""
    found = machine.load(name)
    cards = []
    for card in found.cards:
        model = found.model_of(card)
        mig = model.mig
        cards.append(
            contract.CardReading(
                address=card.address,
                uuid=card.uuid,
                product_name=model.name,
                compute_capability=model.compute_capability,
                memory_bytes=model.memory.total_mib << 20 if model.memory else None,
                mode=MODES.DISABLED if mig else MODES.NOT_AVAILABLE,
                profiles=tuple(_profile(each) for each in mig.profiles) if mig else (),
            )
        )
    return cards


def _profile(told: machine.MigProfile) -> contract.PartitionProfile:
    return contract.PartitionProfile(
        name=told.name,
        profile_id=told.id,
        memory_mib=told.memory_mib,
        max_instances=told.maximum,
        slices=told.slices,
        multiprocessors=told.multiprocessors,
        copy_engines=told.copy,
        decoders=told.decoder,
        encoders=told.encoder,
        jpeg_engines=told.jpeg,
        ofa_engines=told.ofa,
    )


def split(card: contract.CardReading, *profiles: str) -> contract.CardReading:
    """The card in MIG mode with a device of each of these profiles."""
    ids = {each.name: each.profile_id for each in card.profiles}
    partitions = tuple(
        contract.Partition(
            profile=name,
            uuid=f"MIG-{index}",
            start=index,
            size=1,
            profile_id=ids.get(name.removeprefix("1c.")),
        )
        for index, name in enumerate(profiles)
    )
    return msgspec.structs.replace(card, mode=MODES.ENABLED, partitions=partitions)


def node(
    cards: list[contract.CardReading], *, class_code: int = 0x030200, machine_type: str = ""
) -> labelling.Node:
    """A node with these cards."""
    states = tuple(
        records.CardState(
            site=contract.Site(address=card.address, class_code=class_code),
            reading=card,
            driver=DRIVER,
            health=health.Health(verdict=health.Verdict.HEALTHY, reason="", message="", since=0),
        )
        for card in cards
    )
    return labelling.Node(records.Inventory(cards=states, driver=DRIVER), machine=machine_type)
