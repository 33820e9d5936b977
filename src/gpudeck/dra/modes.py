# SPDX-License-Identifier: Apache-2.0
"""What is to be done about the partition mode of a card that needs a reset for it.

Pure; called by `switching` for each card in turn. The administrator chooses the mode by a
label, on the card's PhysicalGPU or on the Node for all its cards; without a choice the card
is left as it is. A chosen mode is carried out when nobody holds the card: first new claims
are kept off it, and only then, and while no claim in the API has any of its devices, is
the mode changed. The card says in its condition PartitioningApplied how far that is.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping

import msgspec

from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.api import attributes, conditions, labels, names, resource
from gpudeck.api.meta import Condition
from gpudeck.devices.identities import PciAddress
from gpudeck.dra import offering
from gpudeck.dra.allocations import HeldDevice, Reference
from gpudeck.dra.checkpoint import Content, Entry, State

ENABLED, DISABLED = "enabled", "disabled"
ALLOWED = f"{ENABLED}, {DISABLED}"
_NAMED = 3
"""So many holders are named in a message."""


class Choice(msgspec.Struct, frozen=True, order=True):
    """What a label says."""

    on: str
    """The object that has it, e.g. `Node node-0`."""
    value: str

    def __str__(self) -> str:
        return f"label {labels.MIG_MODE}={self.value} of {self.on}"

    @property
    def is_valid(self) -> bool:
        """Whether the value is one of those allowed."""
        return self.value in (ENABLED, DISABLED)

    @property
    def enabled(self) -> bool:
        """Whether the mode is to be on; only for a valid choice."""
        return self.value == ENABLED


class Holder(msgspec.Struct, frozen=True, order=True):
    """A claim that has a device of the card."""

    name: str
    """`namespace/name`, or how else it is known."""
    is_partition: bool


class Step(enum.StrEnum):
    """What is to be done now."""

    NOTHING = "Nothing"
    WAIT = "Wait"
    SWITCH = "Switch"
    """Nobody is known to hold the card and nobody new comes: change the mode."""


class Decision(msgspec.Struct, frozen=True):
    """The step, and what is said of the card meanwhile."""

    step: Step = Step.NOTHING
    enabled: bool = False
    """The mode that a SWITCH is to bring about."""
    keeps_off: bool = False
    """New claims are to be kept off the card."""
    condition: Condition | None = None
    """None: nothing was chosen, so nothing is said."""


class Situation(msgspec.Struct, frozen=True):
    """What is known of a card besides itself."""

    choice: Choice | None
    holders: tuple[Holder, ...] = ()
    """Those that the card must not be reset under."""
    late: Holder | None = None
    """A claim that was allocated before a change of the mode, so that it cannot be served now: it
    got its device when the scheduler had not heard of the change. It is served first."""
    is_kept_off: bool = False
    """New claims have been kept off the card long enough for every scheduler to know."""
    failure: str = ""
    """Why the last attempt failed, until it is to be repeated."""


def choice(
    card: tuple[str, Mapping[str, str] | None], node: tuple[str, Mapping[str, str] | None]
) -> Choice | None:
    """The choice for a card, from the names and labels of its PhysicalGPU and its Node."""
    for kind, (name, found) in (("PhysicalGPU", card), ("Node", node)):
        value = (found or {}).get(labels.MIG_MODE)
        if value is not None:
            return Choice(on=f"{kind} {name}", value=value)
    return None


def decide(card: adapter_pb2.Card, known: Situation, ours: Iterable[str] = ()) -> Decision:
    """Say what is to be done; `ours` are the names of the devices that claims of the node hold."""
    wish = known.choice
    if wish is None:
        return Decision()
    if not wish.is_valid:
        text = f"The {wish} is not valid; allowed: {ALLOWED}. The card is left as it is."
        return _said(conditions.FALSE, conditions.CHOICE_INVALID, text)
    if not card.driver.ready:
        text = f"The driver does not serve the card now, so the {wish} waits."
        return _said(conditions.FALSE, conditions.WAITING_FOR_CARD, text)
    if card.partitioning.mode == adapter_pb2.PARTITIONING_MODE_NOT_AVAILABLE:
        text = f"The card cannot be partitioned, so the {wish} does not concern it."
        return _said(conditions.TRUE, conditions.NOT_NEEDED, text)
    if card.partition_support.dynamic:
        text = (
            f"The mode of this card follows the claims without a reset, so the {wish} does not "
            "concern it."
        )
        return _said(conditions.TRUE, conditions.NOT_NEEDED, text)
    return _carried_out(card, known, wish, ours)


def _carried_out(
    card: adapter_pb2.Card, known: Situation, wish: Choice, ours: Iterable[str]
) -> Decision:
    is_on = is_enabled(card)
    served = known.late if known.late and known.late.is_partition != is_on else None
    enabled = wish.enabled if served is None else served.is_partition
    intent = f"Partitioning is to be {'enabled' if enabled else 'disabled'} ({_why(wish, served)})"
    if enabled == is_on:
        return _standing(card, known, wish)
    if known.failure:
        text = f"{intent}, but: {known.failure} It is tried again; meanwhile the card is offered."
        return _said(conditions.FALSE, conditions.SWITCH_FAILED, text)
    if known.holders:
        text = f"{intent}; it waits for {_listed(known.holders)}."
        return _waiting(conditions.WAITING_FOR_CLAIMS, text)
    strange = offering.foreign(card, list(ours))
    if strange and not enabled:
        listed = ", ".join(f"{each.profile} at {each.start}" for each in strange)
        text = f"{intent}; it waits until partitions that gpudeck did not make are gone: {listed}."
        return _said(conditions.FALSE, conditions.WAITING_FOR_PARTITIONS, text)
    return Decision(
        step=Step.SWITCH if known.is_kept_off else Step.WAIT,
        enabled=enabled,
        keeps_off=True,
        condition=_condition(conditions.FALSE, conditions.SWITCHING, f"{intent}; it is under way."),
    )


def _standing(card: adapter_pb2.Card, known: Situation, wish: Choice) -> Decision:
    """The card has the mode that it is to have; perhaps it would lose it at its next reset."""
    if card.partitioning.pending == card.partitioning.mode:
        return _said(conditions.TRUE, conditions.APPLIED, f"The card has the mode of the {wish}.")
    if known.failure:
        text = f"The card would lose the mode of the {wish} at its next reset: {known.failure}"
        return _said(conditions.FALSE, conditions.SWITCH_FAILED, text)
    text = f"The card has the mode of the {wish}, but another is pending; that is taken back."
    return Decision(
        step=Step.SWITCH,
        enabled=wish.enabled,
        condition=_condition(conditions.FALSE, conditions.SWITCHING, text),
    )


def is_enabled(card: adapter_pb2.Card) -> bool:
    """Whether the card's mode is on now."""
    return bool(card.partitioning.mode == adapter_pb2.PARTITIONING_MODE_ENABLED)


def holder(claim: Reference, device: str) -> Holder:
    """The claim as holder of a device of that name."""
    return Holder(f"claim {claim}", is_partition=_is_partition(device))


def is_misfit(device: HeldDevice, card: adapter_pb2.Card) -> bool:
    """Whether the device needs the card in the other one of its modes, which a reset brings."""
    if card.partition_support.dynamic or not card.partition_support.supported:
        return False
    return not device.admin_access and _is_partition(device.name) is not is_enabled(card)


def holders_here(content: Content, address: PciAddress, *, is_partition: bool) -> list[Holder]:
    """The claims of the checkpoint that have a device of the card, what is still to be removed and
    what cannot be read included: that counts as `is_partition`, which is whether the card is
    partitioned now."""
    found = {
        Holder(f"claim {entry}", is_partition=_is_partition(device.name))
        for entry in content.claims.values()
        for device in entry.devices
        if _holds(device, address) and not _is_waiting(entry, device, is_on=is_partition)
    }
    found |= {
        Holder(f"the unreadable checkpoint entry of claim {uid}", is_partition=is_partition)
        for uid in content.quarantined
    }
    return sorted(found)


def holders_in_api(
    claims: Iterable[resource.ResourceClaim], pool: str, address: PciAddress
) -> list[Holder]:
    """The claims that are allocated a device of the card, whether or not anything runs."""
    found = set()
    for claim in claims:
        allocation = claim.status.allocation if claim.status else None
        results = allocation.devices.results if allocation and allocation.devices else None
        for each in results or ():
            device = HeldDevice(name=each.device, admin_access=each.admin_access)
            if each.driver == labels.DRIVER and each.pool == pool and _holds(device, address):
                name = f"claim {claim.metadata.namespace}/{claim.metadata.name}"
                found.add(Holder(name, is_partition=_is_partition(each.device)))
    return sorted(found)


def _holds(device: HeldDevice, address: PciAddress) -> bool:
    # Who only looks on does not keep a card from being reset; the driver refuses if it has it open.
    return not device.admin_access and names.address_of_device(device.name) == address


def _is_waiting(entry: Entry, device: HeldDevice, *, is_on: bool) -> bool:
    """Whether a claim cannot have its device yet: its entry comes from the API alone, since the
    checkpoint was lost, and the device needs the card in its other mode."""
    is_assumed = entry.state is State.RECOVERED and entry.spec is None
    return is_assumed and _is_partition(device.name) is not is_on


def _is_partition(device: str) -> bool:
    named = names.parse_device(device)
    return named is not None and named.type == attributes.TYPE_MIG


def _why(wish: Choice, served: Holder | None) -> str:
    return str(wish) if served is None else f"for {served.name}, which came before the change"


def _listed(holders: Iterable[Holder]) -> str:
    found = sorted({each.name for each in holders})
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(found[:_NAMED]) + more


def _said(status: str, reason: str, message: str) -> Decision:
    return Decision(condition=_condition(status, reason, message))


def _waiting(reason: str, message: str) -> Decision:
    return Decision(
        step=Step.WAIT, keeps_off=True, condition=_condition(conditions.FALSE, reason, message)
    )


def _condition(status: str, reason: str, message: str) -> Condition:
    return Condition(
        type=conditions.PARTITIONING_APPLIED, status=status, reason=reason, message=message
    )
