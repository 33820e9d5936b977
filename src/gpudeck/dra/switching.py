# SPDX-License-Identifier: Apache-2.0
"""Carry out what `modes` decides: keep claims off a card, change its partition mode, say so.

Run by `main` beside the plugin's other writers, so by one plugin of a node at a time. Each
pass looks at every card anew and keeps nothing that a restart would miss: the choice is a
label, the mode and the pending mode are the card's, the holders are in the checkpoint and
the API. Under the lock of Prepare a card is taken from all claims (`changing`), and then its
mode is changed without the lock. `publishing` asks here which cards
get no new claims, `reporting` what is said of a card; a failure is forgotten at a restart
and tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Mapping

from gpudeck import logs
from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.api import names, resource, resources
from gpudeck.api.core import Node
from gpudeck.api.meta import Condition
from gpudeck.api.v1alpha1 import physicalgpu
from gpudeck.devices.identities import PciAddress
from gpudeck.dra import adapters, allocations, events, ledger, modes, tainting
from gpudeck.dra.allocations import HeldDevice, Reference
from gpudeck.dra.checkpoint import State
from gpudeck.errors import GpudeckError, UnavailableError
from gpudeck.kube import client, queueing
from gpudeck.kube.caching import Cache

log = logs.get(__name__)

ALL = "modes"
"""The one key of the queue: a pass looks at all cards."""


SETTLE_SECONDS = 5.0
"""From the writing of the taint until every scheduler is thought to have heard of it: one that
has chosen a device before writes that it did some moments later."""
ASK_SECONDS = 15.0
"""Between two looks at the API's claims while one of them keeps a card."""
UNANSWERED_SECONDS = 2.0
"""To the second attempt when the adapter did not answer; each later one takes twice as long."""
REFUSED_SECONDS = 30.0
"""The same when the adapter refused."""
LONGEST_SECONDS = 600.0
TOLD_SECONDS = 10.0
"""How long the outcome may take to come in the adapter's inventory."""


@dataclasses.dataclass(frozen=True)
class _Failure:
    """An attempt that failed; the card is offered as it is until the next one."""

    message: str
    choice: modes.Choice | None
    """What was tried; another choice is tried at once."""
    count: int
    until: float


@dataclasses.dataclass
class _Card:
    """What is remembered of one card between passes."""

    kept_off_since: float | None = None
    failure: _Failure | None = None
    asked_at: float = 0.0
    claims: tuple[modes.Holder, ...] = ()
    """The holders that the API had when it was asked last."""
    late: dict[Reference, str] = dataclasses.field(default_factory=dict)
    """Claims that came to be prepared and need the other mode, with their devices."""


class Switcher:
    """Keeps the partition modes of this node's cards that need a reset as was chosen."""

    def __init__(
        self,
        api: client.Client,
        adapter: adapters.Adapter,
        book: ledger.Ledger,
        node_events: events.NodeEvents,
        *,
        node_name: str,
        node: Cache[Node],
        gpus: Cache[physicalgpu.PhysicalGPU],
    ) -> None:
        self.kept_off: frozenset[PciAddress] | None = None
        """The cards that are to get no new claims; None until that is known."""
        self.conditions: dict[str, Condition] = {}
        """What is said of the cards whose mode was chosen, by the cards' DRA device names."""
        self.published: Callable[[], Mapping[str, resource.Device] | None] = lambda: None
        """The devices that the API server holds; the publisher's."""
        self.ours: Callable[[], frozenset[str]] = book.held_devices
        """The devices that claims of the node hold, or held until a moment ago; the publisher's."""
        self._api = api
        self._adapter = adapter
        self._ledger = book
        self._node, self._gpus = node, gpus
        self._events = node_events
        self._node_name = node_name
        self._queue = queueing.Queue(ALL, first_seconds=1.0, limit_seconds=30.0)
        self._cards: dict[str, _Card] = {}
        self._told: set[modes.Choice] = set()
        """The invalid choices that an Event was made for."""
        self._listeners: list[Callable[[], None]] = []
        self._inventory = asyncio.Event()

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call back when `kept_off` or `conditions` have changed."""
        self._listeners.append(changed)

    def wake(self) -> None:
        """Look again: something that a decision depends on has changed."""
        self._queue.add(ALL)

    def late(self, claim: Reference, device: HeldDevice) -> None:
        """A claim cannot be prepared, for its device needs the card in its other mode."""
        address = names.address_of_device(device.name)
        if address is not None and not device.admin_access:
            self._card(names.gpu_device_name(address)).late[claim] = device.name
            self.wake()

    async def run(self) -> None:
        """Keep the modes for ever; the caches of the Node and of the cards must run beside it."""
        await self._node.synced()
        await self._gpus.synced()
        self._node.subscribe(lambda _: self.wake())
        self._gpus.subscribe(lambda _: self.wake())
        self._adapter.subscribe(self._inventory_changed)
        self.wake()
        await self._queue.work(self._pass)

    def _inventory_changed(self) -> None:
        self._inventory.set()
        self.wake()

    def _card(self, device: str) -> _Card:
        return self._cards.setdefault(device, _Card())

    async def _pass(self, key: str) -> float | None:
        """Decide for every card, then change the first that is to be; seconds to the next pass."""
        cards = self._adapter.cards
        if cards is None or not self._adapter.is_connected:
            return None
        for each in self._cards.values():
            await self._look_for_late(each)
        decisions = {device: self._decide(device, card) for device, card in sorted(cards.items())}
        # Before anything is said: a card that waits for a claim would else say two things in turn.
        ready = {
            name: cards[name] for name, each in decisions.items() if _changes(each, cards[name])
        }
        await self._look_at_claims(ready)
        decisions |= {device: self._decide(device, card) for device, card in ready.items()}
        self._tell(decisions)
        for device, decision in decisions.items():
            if decision.step is modes.Step.SWITCH:
                await self._switch(device, cards[device], enabled=decision.enabled)
                return 0.0
        return self._pause(decisions)

    def _decide(self, device: str, card: adapter_pb2.Card) -> modes.Decision:
        known, choice, now = self._card(device), self._choice(device), _now()
        if choice is None:  # Nothing hangs on what is known, and each Prepare makes us look.
            known.failure = None
            return modes.decide(card, modes.Situation(choice=None))
        is_on = modes.is_enabled(card)
        holders = set(modes.holders_here(self._ledger.glance(), _address(card), is_partition=is_on))
        if now < known.asked_at + ASK_SECONDS:
            holders |= set(known.claims)
        failure = known.failure
        if failure is not None and failure.choice != choice:
            failure = known.failure = None
        late = [modes.holder(claim, name) for claim, name in known.late.items()]
        situation = modes.Situation(
            choice=choice,
            holders=tuple(sorted(holders)),
            late=next((each for each in late if each.is_partition is not is_on), None),
            is_kept_off=self._is_kept_off(device),
            failure=failure.message if failure is not None and now < failure.until else "",
        )
        return modes.decide(card, situation, self.ours())

    def _choice(self, device: str) -> modes.Choice | None:
        node = self._node.objects.get(self._node_name)
        address = names.address_of_device(device)
        name = names.physical_gpu_name(self._node_name, address) if address is not None else ""
        gpu = self._gpus.objects.get(name)
        return modes.choice(
            (name, gpu.metadata.labels if gpu is not None else None),
            (self._node_name, node.metadata.labels if node is not None else None),
        )

    def _is_kept_off(self, device: str) -> bool:
        """Whether all devices of the card that the API server has have carried the taint for long
        enough, or are not there."""
        known, published = self._card(device), self.published()
        address = names.address_of_device(device)
        if published is None or address not in (self.kept_off or ()):
            known.kept_off_since = None
            return False
        mine = [
            each for name, each in published.items() if names.address_of_device(name) == address
        ]
        if not all(tainting.is_kept_off(each) for each in mine):
            known.kept_off_since = None
            return False
        if known.kept_off_since is None:
            known.kept_off_since = _now()
        return _now() >= known.kept_off_since + SETTLE_SECONDS

    def _tell(self, decisions: Mapping[str, modes.Decision]) -> None:
        before = self.kept_off, self.conditions
        addresses = {device: names.address_of_device(device) for device in decisions}
        self.kept_off = frozenset(
            address
            for device, address in addresses.items()
            if address is not None and decisions[device].keeps_off
        )
        self.conditions = {
            device: each.condition
            for device, each in decisions.items()
            if each.condition is not None
        }
        choices = {choice for device in decisions if (choice := self._choice(device)) is not None}
        invalid = {each for each in choices if not each.is_valid}
        for each in sorted(invalid - self._told):
            self._events.choice_invalid(str(each), modes.ALLOWED)
        self._told = invalid
        if before != (self.kept_off, self.conditions):
            for changed in self._listeners:
                changed()

    def _pause(self, decisions: Mapping[str, modes.Decision]) -> float | None:
        """Seconds until time alone may change a decision; None if it will not."""
        moments = []
        for device in decisions:
            known = self._card(device)
            if known.failure is not None:
                moments.append(known.failure.until)
            if decisions[device].keeps_off and known.kept_off_since is not None:
                moments.append(known.kept_off_since + SETTLE_SECONDS)
            if decisions[device].keeps_off and known.claims:
                moments.append(known.asked_at + ASK_SECONDS)
            if known.late:
                moments.append(_now() + ASK_SECONDS)
        ahead = [each - _now() for each in moments if each > _now()]
        return min(ahead, default=None)

    async def _look_at_claims(self, cards: Mapping[str, adapter_pb2.Card]) -> None:
        """Note who has devices of cards in the API. Raises an error of the API server."""
        if not cards:
            return
        listed = await self._api.list(resources.RESOURCE_CLAIM, resource.ResourceClaim)
        pool = names.pool_name(self._node_name)
        for device, card in cards.items():
            known, is_on = self._card(device), modes.is_enabled(card)
            found = modes.holders_in_api(listed.items, pool, _address(card))
            # A claim that needs the card as it is going to be keeps nobody waiting.
            known.claims = tuple(each for each in found if each.is_partition is is_on)
            known.asked_at = _now()

    async def _switch(self, device: str, card: adapter_pb2.Card, *, enabled: bool) -> None:
        """Make one attempt. Raises BusyError while claims keep the node busy."""
        known, address, is_on = self._card(device), _address(card), modes.is_enabled(card)
        choice = self._choice(device)
        async with contextlib.AsyncExitStack() as stack:
            async with self._ledger.opened() as content:
                if self._choice(device) != choice:
                    return
                is_changed = enabled is not is_on
                if is_changed and modes.holders_here(content, address, is_partition=is_on):
                    return
                await stack.enter_async_context(self._ledger.changing.held(device))
            log.info("Changing the partition mode", card=address, enabled=enabled)
            refused = await self._ask(card, enabled=enabled)
            if refused is None:
                known.failure = None
                log.info("Changed the partition mode", card=address, enabled=enabled)
                await self._hear(device, enabled=enabled)
                return
        count = known.failure.count + 1 if known.failure is not None else 0
        pause = UNANSWERED_SECONDS if refused.is_unanswered else REFUSED_SECONDS
        until = _now() + min(pause * 2**count, LONGEST_SECONDS)
        known.failure = _Failure(refused.message, choice, count, until)
        log.warning("Cannot change the partition mode", card=address, why=refused.message)

    async def _ask(self, card: adapter_pb2.Card, *, enabled: bool) -> _Refusal | None:
        try:
            answer = await self._adapter.set_partitioning(card.pci_address, enabled=enabled)
        except UnavailableError as error:
            return _Refusal(f"{_sentence(error.message)}", is_unanswered=True)
        return _Refusal(_sentence(answer.error.message)) if answer.HasField("error") else None

    async def _hear(self, device: str, *, enabled: bool) -> None:
        """Wait until the inventory tells of the new mode, which the answer may overtake."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TOLD_SECONDS):
                while (card := (self._adapter.cards or {}).get(device)) is not None:
                    if modes.is_enabled(card) is enabled:
                        return
                    self._inventory.clear()
                    await self._inventory.wait()

    async def _look_for_late(self, known: _Card) -> None:
        """Forget late claims that are prepared by now, or no longer have their device."""
        for claim, device in list(known.late.items()):
            entry = self._ledger.glance().claims.get(claim.uid)
            if entry is None or entry.state is State.RECOVERED:
                is_served = False
            else:
                is_served = any(each.name == device for each in entry.devices)
            if is_served or not await self._is_allocated(claim, device):
                del known.late[claim]

    async def _is_allocated(self, claim: Reference, device: str) -> bool:
        try:
            found = await self._api.get(
                resources.RESOURCE_CLAIM,
                claim.name,
                resource.ResourceClaim,
                namespace=claim.namespace,
            )
            held = allocations.devices(found, claim, self._node_name)
        except UnavailableError as error:
            return error.reason != "ClaimNotAllocated"  # Else the API server is away: keep it.
        except GpudeckError:
            return False
        return any(each.name == device for each in held)


@dataclasses.dataclass(frozen=True)
class _Refusal:
    message: str
    is_unanswered: bool = False


def _changes(decision: modes.Decision, card: adapter_pb2.Card) -> bool:
    """Whether the card's mode of now is to become another one."""
    return decision.step is modes.Step.SWITCH and decision.enabled is not modes.is_enabled(card)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _address(card: adapter_pb2.Card) -> PciAddress:
    return PciAddress.parse(card.pci_address)


def _now() -> float:
    return asyncio.get_running_loop().time()
