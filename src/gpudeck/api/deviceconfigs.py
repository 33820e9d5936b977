# SPDX-License-Identifier: Apache-2.0
"""Opaque configuration of our driver in claims, classes and allocations, decoded strictly.

Pure. A typing error must be refused with its path, not ignored; all errors are reported at
once. The same kinds of NVIDIA's driver (`resource.nvidia.com/v1beta1`, 0.5.0) are taken too,
so that claims written for it go on working. What a checkpoint remembers never comes here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from gpudeck import errors
from gpudeck.api import labels, resource
from gpudeck.errors import InvalidError

API_VERSION = "resource.gpu.deckhouse.io/v1alpha1"
NVIDIA_API_VERSION = "resource.nvidia.com/v1beta1"
GPU_CONFIG, MIG_CONFIG = "GpuConfig", "MigDeviceConfig"

TIME_SLICING, MPS = "TimeSlicing", "MPS"
DRIVER, REPORT = "Driver", "Report"
_STRATEGIES = (TIME_SLICING, MPS)
_INTERVALS = ("Default", "Short", "Medium", "Long")
_ANYTHING = None
"""A field of NVIDIA's that is taken and has no effect here."""

Schema = Mapping[str, Any]
"""Fields: to the values allowed, to a schema of their own, or to anything."""

_SHARING: Schema = {"strategy": _STRATEGIES, "timeSlicingConfig": {"interval": _INTERVALS}}
_MIG_SHARING: Schema = {"strategy": (TIME_SLICING,)}
_MPS: Schema = dict.fromkeys(
    (
        "defaultActiveThreadPercentage",
        "defaultPinnedDeviceMemoryLimit",
        "defaultPerDevicePinnedMemoryLimit",
        "multiUser",
    ),
    _ANYTHING,
)
SCHEMAS: Mapping[str, Mapping[str, Schema]] = {
    API_VERSION: {
        GPU_CONFIG: {"sharing": _SHARING, "memory": {"enforce": (DRIVER, REPORT)}},
        MIG_CONFIG: {"sharing": _MIG_SHARING},
    },
    NVIDIA_API_VERSION: {
        GPU_CONFIG: {"sharing": {**_SHARING, "mpsConfig": _MPS}},
        MIG_CONFIG: {"sharing": {**_MIG_SHARING, "mpsConfig": _MPS}},
    },
}


class DeviceConfig(msgspec.Struct, frozen=True):
    """What a device's configuration says; None where it says nothing."""

    strategy: str | None = None
    interval: str | None = None
    enforce: str | None = None

    def over(self, earlier: DeviceConfig) -> DeviceConfig:
        """This configuration where it says something, else the earlier one."""
        return DeviceConfig(
            strategy=self.strategy or earlier.strategy,
            interval=self.interval or earlier.interval,
            enforce=self.enforce or earlier.enforce,
        )


def problems(parameters: object, path: str) -> list[InvalidError]:
    """Everything that is wrong with opaque parameters of our driver, which stand at `path`."""
    content = _decoded(parameters)
    if not isinstance(content, dict):
        return [_problem(path, content, f"an object with apiVersion {API_VERSION} and a kind")]
    kinds = SCHEMAS.get(str(content.get("apiVersion")))
    found = []
    if kinds is None:
        allowed = " or ".join(SCHEMAS)
        found.append(_problem(f"{path}.apiVersion", content.get("apiVersion"), allowed))
        kinds = SCHEMAS[API_VERSION]
    schema = kinds.get(str(content.get("kind")))
    if schema is None:
        found.append(_problem(f"{path}.kind", content.get("kind"), " or ".join(kinds)))
    if found or schema is None:
        return found
    known = {"apiVersion": _ANYTHING, "kind": _ANYTHING, **schema}
    return _compared(content, known, path, content["kind"]) + _contradictions(content, path)


def _contradictions(content: Mapping[str, Any], path: str) -> list[InvalidError]:
    """Fields that are right by themselves but not beside each other."""
    sharing = content.get("sharing")
    if not isinstance(sharing, dict) or sharing.get("strategy") != MPS:
        return []
    if "timeSlicingConfig" not in sharing:
        return []
    where = f"{path}.sharing.timeSlicingConfig"
    return [_problem(where, sharing["timeSlicingConfig"], f"with strategy {TIME_SLICING} only")]


def decode(parameters: object) -> DeviceConfig:
    """Read parameters in which `problems` found nothing."""
    content = _decoded(parameters)
    sharing = content.get("sharing") or {}
    return DeviceConfig(
        strategy=sharing.get("strategy"),
        interval=(sharing.get("timeSlicingConfig") or {}).get("interval"),
        enforce=(content.get("memory") or {}).get("enforce"),
    )


def of_request(configs: Iterable[resource.AllocatedConfig], request: str) -> DeviceConfig:
    """What an allocation's configuration says of the results of a request.

    Those of the class come first, those of the claim win (Kubernetes 1.37 lists them so); one
    for a main request holds for its subrequests `main/sub` as well.
    """
    found = DeviceConfig()
    for each in configs:
        if each.opaque is None or each.opaque.driver != labels.DRIVER:
            continue
        if not each.requests or {request, request.partition("/")[0]} & set(each.requests):
            found = decode(each.opaque.parameters).over(found)
    return found


def all_problems(
    configs: Iterable[tuple[resource.OpaqueConfig | None, str]],
) -> list[InvalidError]:
    """Everything wrong in configurations of our driver, each with its path."""
    return [
        problem
        for opaque, path in configs
        if opaque is not None and opaque.driver == labels.DRIVER
        for problem in problems(opaque.parameters, f"{path}.opaque.parameters")
    ]


def check(configs: Sequence[tuple[resource.OpaqueConfig | None, str]]) -> None:
    """Raise InvalidError that names `all_problems` of configurations, if there are any."""
    found = all_problems(configs)
    if found:
        raise errors.together(found)


def _compared(
    content: Mapping[str, Any], schema: Schema, path: str, kind: str
) -> list[InvalidError]:
    found = []
    for name, value in content.items():
        where = f"{path}.{name}"
        if name not in schema:
            allowed = f"only {', '.join(sorted(schema))}"
            found.append(_problem(where, value, allowed, f"is not a field of {kind}"))
            continue
        wanted = schema[name]
        if isinstance(wanted, Mapping):
            if isinstance(value, dict):
                found += _compared(value, wanted, where, name)
            else:
                found.append(_problem(where, value, f"an object with {', '.join(wanted)}"))
        elif wanted is not _ANYTHING and value not in wanted:
            found.append(_problem(where, value, " or ".join(wanted)))
    return found


def _decoded(parameters: object) -> Any:
    if not isinstance(parameters, msgspec.Raw):
        return None
    try:
        return msgspec.json.decode(parameters)
    except (msgspec.DecodeError, RecursionError):
        return bytes(parameters).decode(errors="replace")


def _problem(path: str, value: Any, allowed: str, what: str = "is not valid") -> InvalidError:
    text = msgspec.json.encode(value).decode()
    shown = text if len(text) <= 80 else text[:77] + "..."
    return InvalidError(
        f"{path}: {shown} {what}; allowed: {allowed}",
        reason="InvalidDeviceConfig",
        field=path,
        allowed=allowed,
    )
