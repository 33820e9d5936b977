# SPDX-License-Identifier: Apache-2.0
"""`contract.Library` on NVML: runs in a library process, see `vendors.worker`.

`read` and `act` belong to the first thread and `wait` to the second; they share the event set
and the table of handles, both replaced whole. NVML itself is thread-safe.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Sequence
from typing import Any

import msgspec
import pynvml

from gpudeck import errors, logs
from gpudeck.host import root as host
from gpudeck.vendors import contract
from gpudeck.vendors.nvidia import checks, instances, inventory, slicing, xids
from gpudeck.vendors.nvidia.mps import joining
from gpudeck.vendors.nvidia.nvml import Nvml, QueryError

log = logs.get(__name__)

_ANY_INSTANCE = 0xFFFFFFFF
"""The event is not about one instance (nvml.h 13, nvmlEventData_t)."""
_DOUBLE_BIT, _OFF_THE_BUS = 48, 79
_WANTED_EVENTS = (
    pynvml.nvmlEventTypeXidCriticalError
    | pynvml.nvmlEventTypeDoubleBitEccError
    | pynvml.nvmlEventTypeGpuUnavailableError
    | pynvml.nvmlEventTypeGpuRecoveryAction
)
_XID_OF_TYPE = {
    pynvml.nvmlEventTypeDoubleBitEccError: _DOUBLE_BIT,
    pynvml.nvmlEventTypeGpuUnavailableError: _OFF_THE_BUS,
}


class NvmlLibrary:
    """One node's NVML."""

    def __init__(self, settings: contract.VendorSettings, progress: contract.Progress) -> None:
        self._root = host.Root(settings.host_root, on_node=settings.host_root_on_node)
        self._nvml = Nvml(self._root, progress)
        self._inventory = inventory.Inventory(self._nvml, self._root)
        self._set: Any = None
        self._old_sets: list[Any] = []
        self._monitored: dict[str, Any] = {}
        """Address → handle of the cards in the event set."""
        self._unmonitored: dict[str, contract.Fault | None] = {}
        """Address → fault; None for cards that simply have no events (case-08)."""
        self._addresses: dict[int | None, str] = {}
        self._any_card = threading.Event()

    def open(self) -> contract.DriverState:
        """`Library.open`."""
        state = self._nvml.open()
        if state.ready:
            self._set = self._nvml.optional(pynvml.nvmlEventSetCreate)
        return state

    def read(self, address: str) -> contract.CardReading:
        """`Library.read`."""
        try:
            handle = self._inventory.handle(address)
            reading = self._inventory.read(address, handle)
            reading = checks.check(self._nvml, handle, reading)
        except QueryError as error:
            raise _card_error(address, error) from error
        fault = self._monitor(address, handle)
        if fault is None:
            return reading
        return msgspec.structs.replace(reading, faults=(*reading.faults, fault))

    def act(self, address: str, action: contract.Action) -> contract.Partition | None:
        """`Library.act`."""
        try:
            handle = self._inventory.handle(address)
            card = self._inventory.read(address, handle)
            return self._act(handle, card, action)
        except QueryError as error:
            if error.reason in contract.GONE and isinstance(action, contract.RemovePartition):
                return None  # A card that has to start anew has no partitions then.
            if error.reason in contract.GONE and isinstance(action, contract.LeaveMps):
                joining.forget(self._root, address, action.share_id)
                return None
            raise _card_error(address, error) from error

    def _act(
        self, handle: Any, card: contract.CardReading, action: contract.Action
    ) -> contract.Partition | None:
        partitioning = instances.Instances(self._nvml, handle, card, self._root)
        match action:
            case contract.MakePartition():
                return partitioning.make(action)
            case contract.RemovePartition():
                partitioning.remove(action)
            case contract.SetPartitioning():
                partitioning.set_mode(action.enabled, may_reset=action.may_reset)
            case contract.SetTimeSlice():
                slicing.set_time_slice(self._nvml, self._root, card.uuid, action.interval)
            case contract.JoinMps():
                joining.join(self._nvml, handle, self._root, card, action.share_id)
            case contract.LeaveMps():
                joining.leave(self._nvml, handle, self._root, card.address, action.share_id)
        return None

    def wait(self, seconds: float) -> Sequence[contract.CardEvent]:
        """`Library.wait`. Not through `Nvml.call`: what is noted there is the other thread's."""
        if not self._any_card.wait(seconds):
            return ()
        while self._old_sets:
            pynvml.nvmlEventSetFree(self._old_sets.pop())
        try:
            data = pynvml.nvmlEventSetWait_v2(self._set, int(seconds * 1000))
        except pynvml.NVMLError as error:
            if error.value != pynvml.NVML_ERROR_TIMEOUT:
                # A lost card makes every wait fail at once (nvml.h 13); readings tell of it.
                time.sleep(min(seconds, 1.0))
            return ()
        kind, address = int(data.eventType), self._addresses.get(_key(data.device))
        if kind == pynvml.nvmlEventTypeGpuRecoveryAction:
            return (contract.CardEvent(address=address),)
        xid = _XID_OF_TYPE.get(kind, int(data.eventData))
        return (
            contract.CardEvent(
                address=address,
                xid=xid,
                fault=xids.fault(xid),
                instance=_instance(data.gpuInstanceId, data.computeInstanceId),
            ),
        )

    def _monitor(self, address: str, handle: Any) -> contract.Fault | None:
        self._addresses = {**self._addresses, _key(handle): address}
        if address in self._monitored:
            return None
        if address not in self._unmonitored:
            self._unmonitored[address] = self._register(address, handle)
            if address in self._monitored:
                del self._unmonitored[address]
                return None
        return self._unmonitored[address]

    def _register(self, address: str, handle: Any) -> contract.Fault | None:
        try:
            if self._set is not None and self._add(handle):
                self._monitored[address] = handle
                self._any_card.set()
                return None
        except QueryError as error:
            if not error.lacking:
                self._renew_set()
                text = f"{address}: its events cannot be watched: {error.message}."
                return contract.Fault(reason="EventsNotWatched", message=text)
        log.info("Card has no events, its health is known by queries only", card=address)
        return None

    def _add(self, handle: Any) -> bool:
        supported = self._nvml.call(pynvml.nvmlDeviceGetSupportedEventTypes, handle)
        mask = supported & _WANTED_EVENTS
        if mask:
            self._nvml.call(pynvml.nvmlDeviceRegisterEvents, handle, mask, self._set)
        return bool(mask)

    def _renew_set(self) -> None:
        """A set in which a registration failed must be given up (nvml.h 13): fill another."""
        self._old_sets.append(self._set)
        self._set = self._nvml.call(pynvml.nvmlEventSetCreate)
        for handle in self._monitored.values():
            self._add(handle)


def _instance(gpu_instance: int, compute_instance: int) -> str:
    """The partition of an event as `mig` numbers it; a missing compute instance means any."""
    if gpu_instance == _ANY_INSTANCE:
        return ""
    compute = "" if compute_instance == _ANY_INSTANCE else str(compute_instance)
    return f"{gpu_instance}/{compute}"


def _key(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


def _card_error(address: str, error: QueryError) -> errors.GpudeckError:
    message = f"{address}: {error.message}."
    if error.reason == "CardNotInDriver":
        return errors.NotFoundError(message, reason=error.reason)
    return errors.UnavailableError(message, reason=error.reason)
