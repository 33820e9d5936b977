# SPDX-License-Identifier: Apache-2.0
"""What a claim for whole cards needs, from the inventory of now. Keeps nothing.

Called by `server` in a thread: the vendor reads files of the node. A card that is
unhealthy is not refused here: the scheduler knows of it by its taint, and a claim that
tolerates the taint means it.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpudeck import errors
from gpudeck.adapter import wire
from gpudeck.adapter.v1 import adapter_pb2 as pb
from gpudeck.vendors import contract, records


def prepare(
    vendor: contract.Vendor,
    inventory: records.Inventory,
    request: pb.PrepareRequest,
    shared: wire.Shared,
) -> pb.PrepareResponse:
    """Answer for each claim on its own."""
    answers = []
    for claim in request.claims:
        try:
            answers.append(_prepare_claim(vendor, inventory, claim, request.hook_path, shared))
        except errors.GpudeckError as error:
            answers.append(pb.PreparedClaim(uid=claim.claim.uid, error=wire.error(error)))
    return pb.PrepareResponse(claims=answers)


def unprepare(request: pb.UnprepareRequest) -> pb.UnprepareResponse:
    """Whole cards leave nothing behind."""
    return pb.UnprepareResponse(
        claims=[pb.UnpreparedClaim(uid=each.claim.uid) for each in request.claims]
    )


def _prepare_claim(
    vendor: contract.Vendor,
    inventory: records.Inventory,
    claim: pb.ClaimRequest,
    hook_path: str,
    shared: wire.Shared,
) -> pb.PreparedClaim:
    uses = [contract.Use(card=_reading(inventory, each.pci_address)) for each in claim.devices]
    version = inventory.driver.version
    injection = vendor.inject(uses, driver_version=version, hook_path=hook_path)
    return pb.PreparedClaim(
        uid=claim.claim.uid,
        shared=shared.edits(injection.shared),
        devices=_devices(claim.devices, injection.uses),
    )


def _devices(
    asked: Sequence[pb.DeviceRequest], given: Sequence[contract.UseEdits]
) -> list[pb.PreparedDevice]:
    return [
        pb.PreparedDevice(name=device.name, edits=wire.edits(use.edits))
        for device, use in zip(asked, given, strict=True)
    ]


def _reading(inventory: records.Inventory, address: str) -> contract.CardReading:
    for card in inventory.cards:
        if card.site.address != address:
            continue
        if not card.driver.ready or card.reading is None:
            raise errors.UnavailableError(
                f"{address}: the driver does not serve the card now: {card.driver.message}",
                reason="CardNotReady",
            )
        return card.reading
    known = ", ".join(card.site.address for card in inventory.cards) or "none"
    raise errors.UnavailableError(
        f"{address}: there is no such card on the node; there are: {known}.",
        reason="CardNotFound",
    )
