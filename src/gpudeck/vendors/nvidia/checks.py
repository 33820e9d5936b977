# SPDX-License-Identifier: Apache-2.0
"""What is wrong with one card now, asked by queries alone.

Runs in the library process. These are the faults that last, so a restarted adapter finds them
again whatever events it missed. Each check is on its own: one that the card lacks says
nothing, one that fails is a fault of its own, and only a lost card ends the reading.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import msgspec
import pynvml

from gpudeck.vendors import contract
from gpudeck.vendors.nvidia.nvml import Nvml, QueryError

Fault = contract.Fault

_FIELD_RECOVERY_ACTION = 230  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
_FIELD_SHUTDOWN_MARGIN = 193  # NVML_FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT, Ada and later.
_THERMAL_READINGS = 3

_ACTIONS = {
    pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET: "a reset of the GPU",
    pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT: "a reboot of the node",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_P2P: "an end of all peer-to-peer work",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET: "an end of all work and a reset of the GPU",
    pynvml.NVML_GPU_RECOVERY_ACTION_BUS_RESET: "a reset of the bus",
    pynvml.NVML_GPU_RECOVERY_ACTION_SYSTEM_REBOOT: "a reboot of the system",
}


def check(nvml: Nvml, handle: Any, reading: contract.CardReading) -> contract.CardReading:
    """Return the reading with what is wrong. Raises QueryError for a lost card."""
    faults: list[Fault] = []
    fields = _guard(faults, reading, lambda: _fields(nvml, handle)) or {}
    for look in (_memory_errors, _remapped_rows, _retired_pages, _throttling):
        found = _guard(faults, reading, functools.partial(look, nvml, handle))
        faults += [each for each in found or () if each not in faults]
    overheated = _guard(faults, reading, lambda: _overheated(nvml, handle, fields))
    faults += overheated or ()
    action = fields.get(_FIELD_RECOVERY_ACTION)
    if action in _ACTIONS:
        text = f"The driver asks for {_ACTIONS[action]}."
        faults.append(Fault(reason="RecoveryActionRequired", message=text))
    return msgspec.structs.replace(
        reading,
        faults=tuple(faults),
        recovery=_recovery(action),
        lifetime=_guard(
            [], reading, lambda: nvml.optional(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle)
        ),
    )


def _guard(faults: list[Fault], reading: contract.CardReading, look: Callable[[], Any]) -> Any:
    """Run one check; an error of it is one more fault, but a lost card is the caller's."""
    try:
        return look()
    except QueryError as error:
        if error.code in (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED):
            raise
        faults.append(Fault(reason=error.reason, message=f"{reading.address}: {error.message}."))
        return None


def _fields(nvml: Nvml, handle: Any) -> dict[int, int]:
    wanted = [_FIELD_RECOVERY_ACTION, _FIELD_SHUTDOWN_MARGIN]
    values = nvml.optional(pynvml.nvmlDeviceGetFieldValues, handle, wanted)
    return {
        int(each.fieldId): _number(each)
        for each in values or ()
        if each.nvmlReturn == pynvml.NVML_SUCCESS
    }


def _number(field: Any) -> int:
    if field.valueType == pynvml.NVML_VALUE_TYPE_SIGNED_INT:
        return int(field.value.siVal)
    if field.valueType == pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG:
        return int(field.value.ullVal)
    return int(field.value.uiVal)


def _recovery(action: int | None) -> contract.Recovery:
    if action is None:
        return contract.Recovery.UNKNOWN
    # Recovering the IMEX domain concerns the links between nodes, not this card.
    return contract.Recovery.NEEDED if action in _ACTIONS else contract.Recovery.NONE


def _memory_errors(nvml: Nvml, handle: Any) -> list[Fault]:
    count = nvml.optional(
        pynvml.nvmlDeviceGetTotalEccErrors,
        handle,
        pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
        pynvml.NVML_VOLATILE_ECC,
    )
    if not count:
        return []
    text = "Uncorrectable ECC errors since the driver was loaded. Reset the GPU or reboot the node."
    return [Fault(reason="UncorrectableEcc", message=text)]


def _remapped_rows(nvml: Nvml, handle: Any) -> list[Fault]:
    rows = nvml.optional(pynvml.nvmlDeviceGetRemappedRows, handle)
    if rows is None:
        return []
    _, _, pending, failure = rows
    if failure:
        text = "Remapping a row of the memory has failed. Ask the maker for a replacement."
        return [Fault(reason="RowRemapFailure", message=text)]
    if pending:
        text = "A row of the memory is to be remapped. Reset the GPU or reboot the node."
        return [Fault(reason="RowRemapPending", message=text)]
    return []


def _retired_pages(nvml: Nvml, handle: Any) -> list[Fault]:
    pending = nvml.optional(pynvml.nvmlDeviceGetRetiredPagesPendingStatus, handle)
    if not pending:
        return []
    text = "Pages of the memory are to be retired. Reset the GPU or reboot the node."
    return [Fault(reason="PageRetirementPending", message=text)]


def _throttling(nvml: Nvml, handle: Any) -> list[Fault]:
    reasons = nvml.optional(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle) or 0
    if not reasons & pynvml.nvmlClocksEventReasonHwThermalSlowdown:
        return []
    text = "The hardware has slowed the card down because of its temperature. Check the cooling."
    return [Fault(reason="ThermalSlowdown", message=text, confirm=_THERMAL_READINGS)]


def _overheated(nvml: Nvml, handle: Any, fields: dict[int, int]) -> list[Fault]:
    fault = Fault(
        reason="Overheated",
        message="The card has reached the temperature at which it shuts down. Check the cooling.",
    )
    limit = fields.get(_FIELD_SHUTDOWN_MARGIN)
    if limit is not None:  # Ada and later tell the distance to a limit.
        margin = nvml.optional(pynvml.nvmlDeviceGetMarginTemperature, handle)
        return [fault] if margin is not None and margin <= limit else []
    absolute = nvml.optional(
        pynvml.nvmlDeviceGetTemperatureThreshold, handle, pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN
    )
    now = nvml.optional(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU)
    return [fault] if absolute and now is not None and now >= absolute else []
