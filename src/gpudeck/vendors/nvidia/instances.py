# SPDX-License-Identifier: Apache-2.0
"""Makes and removes MIG instances, and turns MIG on and off where the card allows it at once.

Runs in the library process, called by `session` for the actions of the contract. Each
function may be repeated after an end at any instruction: what is there already is the
answer, what is half made is finished, and what fails is undone. A partition here is a
GPU instance and the one compute instance that has all of its slices.
"""

from __future__ import annotations

import ctypes
from typing import Any

import pynvml

from gpudeck import errors, logs
from gpudeck.host import root as host
from gpudeck.vendors import contract
from gpudeck.vendors.nvidia import mig, users
from gpudeck.vendors.nvidia.nvml import Nvml, QueryError

log = logs.get(__name__)


class Instances:
    """One card's MIG, for the time of one action."""

    def __init__(
        self, nvml: Nvml, handle: mig.Handle, card: contract.CardReading, root: host.Root
    ) -> None:
        self._nvml = nvml
        self._root = root
        self._handle = handle
        self._card = card

    def make(self, action: contract.MakePartition) -> contract.Partition:
        """`MakePartition`."""
        profile = self._profile(action.profile_id)
        if action.placement not in profile.placements:
            raise self._misplaced(profile, action.placement)
        turned_on = self._card.mode is not contract.PartitioningMode.ENABLED
        if turned_on:
            self.set_mode(True)
        try:
            return self._make(action)
        except errors.GpudeckError:
            if turned_on:
                self._undo("turn MIG off", lambda: self.set_mode(False))
            raise

    def remove(self, action: contract.RemovePartition) -> None:
        """`RemovePartition`."""
        if self._card.mode is not contract.PartitioningMode.ENABLED:
            return
        try:
            for instance in mig.read_instances(self._nvml, self._handle, self._card.profiles):
                if _is_at(instance, action.profile_id, action.placement):
                    self._destroy(instance.handle)
        except QueryError as error:
            if error.code == pynvml.NVML_ERROR_IN_USE:
                found = users.named(self._root, self._users()) or "the process that uses it"
                raise errors.BusyError(
                    f"{self._card.address}: the partition at {_text(action.placement)} is still "
                    f"in use; end {found}.",
                    reason="PartitionInUse",
                ) from error
            raise

    def set_mode(self, enabled: bool, *, may_reset: bool = False) -> None:
        """`SetPartitioning`."""
        current, pending = self._nvml.call(pynvml.nvmlDeviceGetMigMode, self._handle)
        if current == pending == int(enabled):
            return
        if current != int(enabled):
            self._check_change(enabled, may_reset=may_reset)
        try:
            status = self._nvml.call(pynvml.nvmlDeviceSetMigMode, self._handle, int(enabled))
        except QueryError as error:
            if error.code == pynvml.NVML_ERROR_IN_USE:
                raise self._mode_refused(enabled, error.code) from error
            raise
        if status == pynvml.NVML_SUCCESS:
            log.info("MIG mode changed", card=self._card.address, enabled=enabled)
            return
        if not may_reset:
            # The driver keeps a refused wish for the next reset; nobody would expect it then.
            self._nvml.call(pynvml.nvmlDeviceSetMigMode, self._handle, current)
        elif status == pynvml.NVML_ERROR_RESET_REQUIRED:
            log.info("MIG mode waits for a reset", card=self._card.address, enabled=enabled)
            return
        raise self._mode_refused(enabled, status)

    def _check_change(self, enabled: bool, *, may_reset: bool) -> None:
        address, word = self._card.address, "on" if enabled else "off"
        if self._card.mode is contract.PartitioningMode.NOT_AVAILABLE:
            raise errors.UnsupportedError(
                f"{address}: the card has no MIG.", reason="PartitioningNotAvailable"
            )
        if not self._card.dynamic and not may_reset:
            raise errors.UnsupportedError(
                f"{address}: turning MIG {word} needs a reset of this card, which the "
                "administrator asks for by the label gpu.deckhouse.io/mig-mode.",
                reason="PartitioningNeedsReset",
            )
        if self._card.partitions:
            there = ", ".join(f"{each.profile} at {each.start}" for each in self._card.partitions)
            raise errors.BusyError(
                f"{address}: MIG cannot be turned off while the card has partitions: {there}.",
                reason="CardPartitioned",
            )
        pids = self._users() if may_reset else frozenset[int]()
        if pids:
            raise errors.BusyError(
                f"{address}: MIG cannot be turned {word} while "
                f"{'processes use' if len(pids) > 1 else 'a process uses'} the card; "
                f"end {users.named(self._root, pids)}.",
                reason="CardInUse",
            )

    def _users(self) -> frozenset[int]:
        """The processes that work on the card; those of other PID namespaces may be missing."""
        found = frozenset[int]()
        for ask in (
            pynvml.nvmlDeviceGetComputeRunningProcesses,
            pynvml.nvmlDeviceGetGraphicsRunningProcesses,
        ):
            found |= {int(each.pid) for each in self._nvml.optional(ask, self._handle) or ()}
        return found

    def _mode_refused(self, enabled: bool, status: int) -> errors.GpudeckError:
        address, word = self._card.address, "on" if enabled else "off"
        if status == pynvml.NVML_ERROR_IN_USE:
            pids = self._users() or users.of_cards(self._root, [address])
            found = users.named(self._root, pids) or "it, monitoring programs included"
            return errors.BusyError(
                f"{address}: MIG cannot be turned {word} while a process uses the card; "
                f"end {found}.",
                reason="CardInUse",
            )
        return errors.UnsupportedError(
            f"{address}: the driver does not turn MIG {word} without a reset of the card "
            f"(status {status}).",
            reason="PartitioningNeedsReset",
        )

    def _make(self, action: contract.MakePartition) -> contract.Partition:
        instance, is_new = self._find_or_create(action)
        try:
            self._complete(instance, action)
            for each in mig.read_partitions(self._nvml, self._handle, self._card.profiles).found:
                if each.driver_id.startswith(f"{instance.id}/"):
                    return each
            raise errors.UnavailableError(
                f"{self._card.address}: the driver does not show the partition that it made at "
                f"{_text(action.placement)}; are the nodes in /dev/nvidia-caps there?",
                reason="PartitionNotVisible",
            )
        except errors.GpudeckError:
            if is_new:
                self._undo("remove the GPU instance", lambda: self._destroy(instance.handle))
            raise

    def _find_or_create(self, action: contract.MakePartition) -> tuple[mig.Instance, bool]:
        nvml, wanted = self._nvml, action.placement
        for instance in mig.read_instances(nvml, self._handle, self._card.profiles):
            if _is_at(instance, action.profile_id, wanted):
                return instance, False
            if _overlap(instance.placement, wanted):
                raise self._conflict(wanted, instance)
        place = pynvml.c_nvmlGpuInstancePlacement_t(start=wanted.start, size=wanted.size)
        try:
            made = nvml.call(
                pynvml.nvmlDeviceCreateGpuInstanceWithPlacement,
                self._handle,
                action.profile_id,
                ctypes.byref(place),
            )
        except QueryError as error:
            raise self._refused(action, error) from error
        told = nvml.call(pynvml.nvmlGpuInstanceGetInfo, made)
        return mig.Instance(made, int(told.id), action.profile_id, wanted), True

    def _complete(self, instance: mig.Instance, action: contract.MakePartition) -> None:
        """Have the one compute instance of all slices, which makes the GPU instance usable."""
        nvml = self._nvml
        slices = self._profile(action.profile_id).slices
        whole: Any = None
        for profile in mig.compute_profiles(nvml, instance.handle):
            there = mig.read_compute_instances(nvml, instance.handle, profile)
            if there and profile.sliceCount == slices:
                return
            if there:
                raise errors.ConflictError(
                    f"{self._card.address}: the GPU instance at {_text(instance.placement)} is "
                    "split into compute instances that gpudeck did not make; remove them.",
                    reason="PartitionSplit",
                )
            if whole is None and profile.sliceCount == slices:
                whole = profile
        if whole is None:
            raise errors.UnsupportedError(
                f"{self._card.address}: the driver offers no compute instance of {slices} slices "
                f"for the profile {action.profile_id}.",
                reason="PartitionUnsupported",
            )
        nvml.call(pynvml.nvmlGpuInstanceCreateComputeInstance, instance.handle, whole.id)

    def _destroy(self, instance: mig.Handle) -> None:
        """Remove a GPU instance with all that is in it. Raises QueryError."""
        for profile in list(mig.compute_profiles(self._nvml, instance)):
            for compute in mig.read_compute_instances(self._nvml, instance, profile):
                self._nvml.call(pynvml.nvmlComputeInstanceDestroy, compute)
        self._nvml.call(pynvml.nvmlGpuInstanceDestroy, instance)

    def _undo(self, what: str, step: Any) -> None:
        """Best effort: the error that led here is what the caller needs to know."""
        try:
            step()
        except errors.GpudeckError as error:
            log.warning("Cannot undo", card=self._card.address, what=what, why=error.message)

    def _profile(self, profile_id: int) -> contract.PartitionProfile:
        for profile in self._card.profiles:
            if profile.profile_id == profile_id:
                return profile
        known = ", ".join(f"{each.profile_id} ({each.name})" for each in self._card.profiles)
        raise errors.UnsupportedError(
            f"{self._card.address}: the card has no profile {profile_id}; it has: {known}.",
            reason="PartitionUnsupported",
        )

    def _conflict(self, wanted: contract.Placement, instance: mig.Instance) -> errors.ConflictError:
        lying = self._profile(instance.profile_id).name
        return errors.ConflictError(
            f"{self._card.address}: {_text(wanted)} is taken by a partition {lying} at "
            f"{_text(instance.placement)}.",
            reason="PartitionConflict",
        )

    def _refused(self, action: contract.MakePartition, error: QueryError) -> errors.GpudeckError:
        if error.code == pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES:
            return errors.ConflictError(
                f"{self._card.address}: the driver has no room for profile {action.profile_id} at "
                f"{_text(action.placement)}.",
                reason="PartitionConflict",
            )
        return error

    def _misplaced(
        self, profile: contract.PartitionProfile, wanted: contract.Placement
    ) -> errors.UnsupportedError:
        allowed = ", ".join(_text(each) for each in profile.placements)
        return errors.UnsupportedError(
            f"{self._card.address}: {profile.name} cannot lie at {_text(wanted)}; "
            f"allowed: {allowed}.",
            reason="PartitionUnsupported",
        )


def _is_at(instance: mig.Instance, profile_id: int, placement: contract.Placement) -> bool:
    return instance.profile_id == profile_id and instance.placement == placement


def _overlap(one: contract.Placement, other: contract.Placement) -> bool:
    return one.start < other.start + other.size and other.start < one.start + one.size


def _text(placement: contract.Placement) -> str:
    return f"slices {placement.start} to {placement.start + placement.size - 1}"
