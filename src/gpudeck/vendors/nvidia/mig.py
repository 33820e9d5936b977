# SPDX-License-Identifier: Apache-2.0
"""What MIG offers on a card and what of it exists, as NVML tells it; changes nothing.

Runs in the library process, for `inventory` (every reading) and `instances` (which
changes it). Names, figures and placements are the driver's (case-29): nothing is
computed, no table is ours. A GPU instance without a compute instance is told too, for
it takes its place on the card although nobody can use it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
import pynvml

from gpudeck.vendors import contract
from gpudeck.vendors.nvidia.nvml import Nvml, QueryError

Handle = Any
"""An opaque pointer of NVML."""

Profiles = tuple[contract.PartitionProfile, ...]

_RESETLESS_COMPUTE_CAPABILITY = (9, 0)  # Hopper; for drivers that do not know the field.


class Instance(msgspec.Struct, frozen=True):
    """A GPU instance that exists."""

    handle: Handle
    id: int
    profile_id: int
    placement: contract.Placement


def mode(current: int | None) -> contract.PartitioningMode:
    """Translate the mode; None is a card without MIG."""
    if current is None:
        return contract.PartitioningMode.NOT_AVAILABLE
    if current == pynvml.NVML_DEVICE_MIG_ENABLE:
        return contract.PartitioningMode.ENABLED
    return contract.PartitioningMode.DISABLED


def is_dynamic(nvml: Nvml, handle: Handle, capability: tuple[int, int] | None) -> bool:
    """Whether the mode changes at once. Asked of the driver, guessed only where it cannot say."""
    field = pynvml.NVML_FI_DEV_IS_RESETLESS_MIG_SUPPORTED
    for value in nvml.optional(pynvml.nvmlDeviceGetFieldValues, handle, [field]) or ():
        if value.nvmlReturn == pynvml.NVML_SUCCESS:
            return bool(value.value.uiVal)
    return capability is not None and capability >= _RESETLESS_COMPUTE_CAPABILITY


def read_profiles(nvml: Nvml, handle: Handle) -> Profiles:
    """Every profile of GPU instances, by id; the mode may be off."""
    found = []
    for index in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        # Version 2 is the first with a name; drivers before 470 have none, and then no profile
        # is told rather than one whose name is computed from its size (case-29).
        told = _told(nvml, pynvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, index)
        if told is not None:
            found.append(_profile(nvml, handle, told))
    return tuple(sorted(found, key=lambda each: each.profile_id))


def _profile(nvml: Nvml, handle: Handle, told: Any) -> contract.PartitionProfile:
    return contract.PartitionProfile(
        name=told.name.removeprefix("MIG "),
        profile_id=told.id,
        memory_mib=told.memorySizeMB,
        max_instances=told.instanceCount,
        slices=told.sliceCount,
        multiprocessors=told.multiprocessorCount,
        placements=_read_placements(nvml, handle, told.id),
        copy_engines=told.copyEngineCount,
        decoders=told.decoderCount,
        encoders=told.encoderCount,
        jpeg_engines=told.jpegCount,
        ofa_engines=told.ofaCount,
    )


def _read_placements(nvml: Nvml, handle: Handle, profile_id: int) -> tuple[contract.Placement, ...]:
    ask = pynvml.nvmlDeviceGetGpuInstancePossiblePlacements
    count = ctypes.c_uint(0)
    if _told(nvml, ask, handle, profile_id, None, ctypes.byref(count)) is None:
        return ()
    array = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
    nvml.call(ask, handle, profile_id, array, ctypes.byref(count))
    return tuple(_placement(each) for each in array[: count.value])


def read_instances(nvml: Nvml, handle: Handle, profiles: Profiles) -> list[Instance]:
    """Every GPU instance by its id; the mode must be on."""
    found = []
    for profile in profiles:
        listed = _listed(
            nvml,
            pynvml.nvmlDeviceGetGpuInstances,
            (handle, profile.profile_id),
            pynvml.c_nvmlGpuInstance_t * max(profile.max_instances, 1),
        )
        for instance in listed:
            told = nvml.call(pynvml.nvmlGpuInstanceGetInfo, instance)
            place = _placement(told.placement)
            found.append(Instance(instance, int(told.id), int(told.profileId), place))
    return sorted(found, key=lambda each: each.id)


def compute_profiles(nvml: Nvml, instance: Handle) -> Iterator[Any]:
    """The profiles of compute instances that a GPU instance has, in the order of NVML's enum."""
    shared = pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    ask = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo
    for index in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        told = nvml.optional(ask, instance, index, shared)
        if told is not None:
            yield told


def read_compute_instances(nvml: Nvml, instance: Handle, profile: Any) -> list[Handle]:
    """The compute instances of one profile in a GPU instance."""
    return _listed(
        nvml,
        pynvml.nvmlGpuInstanceGetComputeInstances,
        (instance, profile.id),
        pynvml.c_nvmlComputeInstance_t * max(profile.instanceCount, 1),
    )


class Partitions(NamedTuple):
    """What a card in MIG mode is divided into."""

    found: tuple[contract.Partition, ...] = ()
    numbers: tuple[str, ...] = ()
    """As `CardReading.partition_numbers`."""


def read_partitions(nvml: Nvml, handle: Handle, profiles: Profiles) -> Partitions:
    """Every MIG device, and every GPU instance that has none; the mode must be on."""
    places = {each.id: each for each in read_instances(nvml, handle, profiles)}
    names = {profile.profile_id: profile.name for profile in profiles}
    count = nvml.optional(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0
    found, seen, numbers = [], set(), []
    for index in range(count):
        device = nvml.optional(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
        if device is None:
            numbers.append("")
            continue
        instance = nvml.call(pynvml.nvmlDeviceGetGpuInstanceId, device)
        seen.add(instance)
        found.append(_read_device(nvml, device, instance, places.get(instance)))
        numbers.append(found[-1].uuid)
    found += [
        contract.Partition(
            profile=names.get(each.profile_id, ""),
            uuid="",
            start=each.placement.start,
            size=each.placement.size,
            profile_id=each.profile_id,
        )
        for each in places.values()
        if each.id not in seen
    ]
    ordered = sorted(found, key=lambda each: (each.start, each.uuid))
    return Partitions(tuple(ordered), tuple(numbers))


def _read_device(
    nvml: Nvml, device: Handle, instance: int, at: Instance | None
) -> contract.Partition:
    # "NVIDIA H100 80GB HBM3 MIG 1g.10gb": the part that the driver names the partition by.
    name = nvml.call(pynvml.nvmlDeviceGetName, device)
    compute = nvml.call(pynvml.nvmlDeviceGetComputeInstanceId, device)
    return contract.Partition(
        profile=name.rpartition(" MIG ")[2],
        uuid=nvml.call(pynvml.nvmlDeviceGetUUID, device),
        start=at.placement.start if at is not None else 0,
        size=at.placement.size if at is not None else 0,
        profile_id=at.profile_id if at is not None else None,
        driver_id=f"{instance}/{compute}",
    )


def _listed(
    nvml: Nvml, ask: Callable[..., Any], arguments: tuple[Any, ...], array_type: Any
) -> list[Handle]:
    array, count = array_type(), ctypes.c_uint(0)
    if _told(nvml, ask, *arguments, array, ctypes.byref(count)) is None:
        return []
    return list(array[: count.value])


def _told(nvml: Nvml, ask: Callable[..., Any], *arguments: Any) -> Any:
    """`Nvml.optional`, but what the driver tells to root alone is not taken for absent.

    Placements and instances are so (NVML 580: "requires privileged user").
    """
    try:
        return nvml.call(ask, *arguments)
    except QueryError as error:
        if error.lacking and error.code != pynvml.NVML_ERROR_NO_PERMISSION:
            return None
        raise


def _placement(told: Any) -> contract.Placement:
    return contract.Placement(start=int(told.start), size=int(told.size))
