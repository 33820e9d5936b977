# SPDX-License-Identifier: Apache-2.0
"""Read a plugin config strictly: every key known, every value checked, by field path.

Pure; the device plugin and feature discovery read the same file with it. NVIDIA's
own reader (0.20) passes over keys that it does not know and over some that it does;
here the first are refused, and the second work or are said in `Config.notes`.
"""

from __future__ import annotations

import math
import re
from typing import Any

import yaml

from gpudeck.api import documents, quantities
from gpudeck.errors import InvalidError
from gpudeck.pluginconfig import fields, model
from gpudeck.pluginconfig.fields import Field

VERSION = "v1"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_NAME_RULE = (
    "nvidia.com/ and a name of lower-case letters, digits, dashes and dots, "
    "together at most 63 characters"
)
_NAME_LENGTH = 63
_INDEX = re.compile(r"[0-9]+(:[0-9]+)?")
_UUID = re.compile(r"(GPU|MIG)-[0-9A-Za-z/-]+")
_DEVICES_RULE = "all, a number of devices, or a list of indices (0), of i:j for MIG and of UUIDs"
LONGEST = 1 << 16
"""Characters of a config. One for 64 cards, each with an entry of its own, has a tenth of that,
and what is longer would cost the node a second of computing each time that it is read."""
REPLICAS = 512
"""The most of one device. The kubelet (1.37) takes lists of 4 MiB: sixteen cards of seven
partitions each, with so many replicas, are 3.9."""
_REPLICAS_RULE = f"a whole number, at least 2 and at most {REPLICAS}"
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_SHARING_KEYS = ("renameByDefault", "failRequestsGreaterThanOne", "resources")
_RESOURCE_KEYS = ("name", "rename", "devices", "replicas", "memoryLimit")
_HINTS = {
    **dict.fromkeys(("renameByDefault", "failRequestsGreaterThanOne"), "sharing.timeSlicing"),
    **dict.fromkeys(("timeSlicing", "mps"), "sharing"),
    **dict.fromkeys(("replicas", "rename", "devices"), "sharing.timeSlicing.resources[]"),
    **dict.fromkeys(("migStrategy", "failOnInitError", "mpsRoot", "nvidiaDriverRoot"), "flags"),
    **dict.fromkeys(
        (
            "deviceListStrategy",
            "deviceIDStrategy",
            "passDeviceSpecs",
            "sharedDevicesAllocationPolicy",
        ),
        "flags.plugin",
    ),
}
"""Where keys belong that are often put elsewhere."""


def parse(text: str) -> model.Config:
    """Read one config. An empty one is valid and changes nothing.

    Raises InvalidError with the path of the first wrong field, its value and what is allowed.
    """
    top = Field(_load(text), "", _HINTS).mapping("version", "flags", "resources", "sharing", "imex")
    if "version" in top and top["version"].value != VERSION:
        raise top["version"].refuse(VERSION)
    flags = _flags(top.get("flags"))
    sharing, notes = _sharing(top.get("sharing"))
    return model.Config(
        flags=flags,
        resources=_resources(top.get("resources")),
        sharing=sharing,
        imex=_imex(top.get("imex")),
        notes=(*_without_effect(flags), *notes),
    )


def _load(text: str) -> Any:
    if len(text) > LONGEST:
        raise _unreadable(f"it has {len(text)} characters", f"at most {LONGEST}")
    for number, line in enumerate(text.splitlines(), 1):
        if "\u00a0" in line.split("#")[0]:
            raise _unreadable(
                f"line {number} holds a no-break space", "blanks; replace what was pasted"
            )
    try:
        return documents.load(text)
    except yaml.YAMLError as error:
        raise _unreadable(" ".join(str(error).split()), "a YAML document") from error


def _unreadable(what: str, allowed: str) -> InvalidError:
    return InvalidError(
        f"the config cannot be read: {what}; allowed: {allowed}",
        reason=fields.REASON,
        allowed=allowed,
    )


def _flags(field: Field | None) -> model.Flags:
    if field is None:
        return model.Flags()
    found = field.mapping(
        "migStrategy",
        "failOnInitError",
        "mpsRoot",
        "nvidiaDriverRoot",
        "nvidiaDevRoot",
        "gdrcopyEnabled",
        "gdsEnabled",
        "mofedEnabled",
        "useNodeFeatureAPI",
        "deviceDiscoveryStrategy",
        "plugin",
        "gfd",
    )
    return model.Flags(
        mig_strategy=_word(found, "migStrategy", model.MigStrategy),
        fail_on_init_error=_boolean(found, "failOnInitError"),
        mps_root=_text(found, "mpsRoot"),
        nvidia_driver_root=_text(found, "nvidiaDriverRoot"),
        nvidia_dev_root=_text(found, "nvidiaDevRoot"),
        gdrcopy_enabled=_boolean(found, "gdrcopyEnabled"),
        gds_enabled=_boolean(found, "gdsEnabled"),
        mofed_enabled=_boolean(found, "mofedEnabled"),
        use_node_feature_api=_boolean(found, "useNodeFeatureAPI"),
        device_discovery_strategy=_discovery(found.get("deviceDiscoveryStrategy")),
        plugin=_plugin(found.get("plugin")),
        gfd=_gfd(found.get("gfd")),
    )


def _without_effect(flags: model.Flags) -> tuple[str, ...]:
    """What NVIDIA's programs need to be told and gpudeck finds by itself, where it is set."""
    by_root = "the driver is looked for on the node, below the process's own host root"
    known = (
        ("flags.mpsRoot", flags.mps_root, "MPS daemons are kept by nvidia-mps-control-daemon"),
        ("flags.nvidiaDriverRoot", flags.nvidia_driver_root, by_root),
        ("flags.nvidiaDevRoot", flags.nvidia_dev_root, by_root),
        ("flags.plugin.containerDriverRoot", flags.plugin.container_driver_root, by_root),
        (
            "flags.plugin.nvidiaCTKPath",
            flags.plugin.nvidia_ctk_path,
            "the program of the CDI hooks comes with the image",
        ),
        (
            "flags.failOnInitError",
            flags.fail_on_init_error,
            "a node without a working driver is told on the Node, and looked at again",
        ),
    )
    found = [
        f"{path}: has no effect, for {why}." for path, value, why in known if value is not None
    ]
    if flags.device_discovery_strategy not in (None, "auto", "nvml"):
        found.append("flags.deviceDiscoveryStrategy: has no effect, for cards are found by NVML.")
    return tuple(found)


def _plugin(field: Field | None) -> model.PluginFlags:
    if field is None:
        return model.PluginFlags()
    found = field.mapping(
        "passDeviceSpecs",
        "deviceListStrategy",
        "deviceIDStrategy",
        "cdiAnnotationPrefix",
        "nvidiaCTKPath",
        "containerDriverRoot",
        "sharedDevicesAllocationPolicy",
    )
    listed = found.get("deviceListStrategy")
    return model.PluginFlags(
        pass_device_specs=_boolean(found, "passDeviceSpecs"),
        device_list_strategy=_strategies(listed) if listed is not None else None,
        device_id_strategy=_word(found, "deviceIDStrategy", model.IdStrategy),
        cdi_annotation_prefix=_text(found, "cdiAnnotationPrefix"),
        nvidia_ctk_path=_text(found, "nvidiaCTKPath"),
        container_driver_root=_text(found, "containerDriverRoot"),
        shared_devices_allocation_policy=_word(
            found, "sharedDevicesAllocationPolicy", model.AllocationPolicy
        ),
    )


def _strategies(field: Field) -> tuple[model.ListStrategy, ...]:
    """One word or a list of words (case-03); a list with nothing in it would give no device."""
    words = ", ".join(model.ListStrategy)
    if isinstance(field.value, str):
        # As on the command line, where they are separated by commas.
        each = [Field(word.strip(), field.path, {}) for word in field.value.split(",")]
    else:
        each = list(field.items(f"one of {words}, or a list of them"))
    if not each:
        raise field.refuse(f"at least one of {words}")
    return tuple(dict.fromkeys(one.word(model.ListStrategy) for one in each))


def _gfd(field: Field | None) -> model.GfdFlags:
    if field is None:
        return model.GfdFlags()
    found = field.mapping(
        "oneshot", "noTimestamp", "sleepInterval", "outputFile", "machineTypeFile"
    )
    interval = found.get("sleepInterval")
    return model.GfdFlags(
        oneshot=_boolean(found, "oneshot"),
        no_timestamp=_boolean(found, "noTimestamp"),
        sleep_interval_seconds=duration(interval) if interval is not None else None,
        output_file=_text(found, "outputFile"),
        machine_type_file=_text(found, "machineTypeFile"),
    )


def duration(field: Field) -> float:
    """Seconds of `1m30s`; a number is nanoseconds, as Go's JSON writes a duration."""
    allowed = "a time such as 60s or 1m30s, at least 1s, or infinite"
    value = field.value
    if value == "infinite":
        return math.inf
    if isinstance(value, int) and not isinstance(value, bool):
        value = f"{max(value, 0) // 1_000_000}ms"
    parts = _DURATION.findall(value) if isinstance(value, str) else []
    if not parts or "".join(number + unit for number, unit in parts) != value:
        raise field.refuse(allowed)
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if seconds < 1:
        raise field.refuse(allowed)
    return seconds


def _discovery(field: Field | None) -> str | None:
    words = ("auto", "nvml", "tegra", "vfio")
    if field is not None and field.value not in words:
        raise field.refuse(", ".join(words))
    return None if field is None else str(field.value)


def _resources(field: Field | None) -> model.Resources:
    if field is None:
        return model.Resources()
    found = field.mapping("gpus", "mig")
    return model.Resources(gpus=_patterns(found.get("gpus")), mig=_patterns(found.get("mig")))


def _patterns(field: Field | None) -> tuple[model.Named, ...]:
    if field is None:
        return ()
    named = []
    for each in field.items("a list of {pattern, name}"):
        found = each.mapping("pattern", "name")
        named.append(
            model.Named(
                pattern=_required(each, found, "pattern").text(),
                name=_name(_required(each, found, "name")),
            )
        )
    return tuple(named)


def _sharing(field: Field | None) -> tuple[model.Sharing | None, tuple[str, ...]]:
    if field is None:
        return None, ()
    found = field.mapping(*model.Strategy)
    read = {name: _replicated(model.Strategy(name), each) for name, each in found.items()}
    if model.Strategy.MPS in read and model.Strategy.TIME_SLICING in read:
        # The order is NVIDIA's (config v1, 0.20).
        note = "sharing.timeSlicing: has no effect beside sharing.mps, which takes precedence."
        return read[model.Strategy.MPS], (note,)
    return next(iter(read.values()), None), ()


def _replicated(strategy: model.Strategy, field: Field) -> model.Sharing:
    found = field.mapping(*_SHARING_KEYS)
    listed = _required(field, found, "resources")
    resources = tuple(_resource(each) for each in listed.items("a list of {name, replicas}"))
    if not resources:
        raise listed.refuse("at least one {name, replicas}")
    fails = _boolean(found, "failRequestsGreaterThanOne")
    return model.Sharing(
        strategy=strategy,
        rename_by_default=_boolean(found, "renameByDefault") or False,
        fail_requests_greater_than_one=strategy is model.Strategy.MPS if fails is None else fails,
        resources=resources,
    )


def _resource(field: Field) -> model.Replicated:
    found = field.mapping(*_RESOURCE_KEYS)
    name = _name(_required(field, found, "name"))
    replicas = _required(field, found, "replicas")
    rename = _name(found["rename"]) if "rename" in found else None
    count, devices = _devices(found.get("devices"))
    return model.Replicated(
        name=name,
        replicas=replicas.whole(least=2, most=REPLICAS, allowed=_REPLICAS_RULE),
        rename=rename,
        count=count,
        devices=devices,
        memory_limit=_memory_limit(found.get("memoryLimit")),
    )


def _devices(field: Field | None) -> tuple[int | None, tuple[str, ...] | None]:
    if field is None or field.value == "all":
        return None, None
    if isinstance(field.value, list):
        named = tuple(_device(each) for each in field.items(_DEVICES_RULE))
        if not named or len(set(named)) != len(named):
            raise field.refuse("at least one device, each once")
        return None, named
    return field.whole(least=1, allowed=_DEVICES_RULE), None


def _device(field: Field) -> str:
    value = field.value
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return str(value)
    if isinstance(value, str) and (_INDEX.fullmatch(value) or _UUID.fullmatch(value)):
        return value
    raise field.refuse("an index (0), i:j for MIG, or a UUID")


def _memory_limit(field: Field | None) -> str | None:
    if field is None:
        return None
    allowed = f"{model.EQUAL}, or a quantity of memory of at least 1Mi such as 8Gi"
    text = field.text(allowed)
    if text == model.EQUAL:
        return text
    try:
        amount = quantities.parse(text)
    except InvalidError as error:
        raise field.refuse(allowed) from error
    if amount < quantities.MEBIBYTE:
        raise field.refuse(allowed)
    return text


def _imex(field: Field | None) -> model.Imex:
    if field is None:
        return model.Imex()
    found = field.mapping("channelIDs", "required")
    channels = found.get("channelIDs")
    ids = channels.items("[] or [0]") if channels is not None else ()
    numbers = tuple(each.whole(least=0, most=0, allowed="0") for each in ids)
    if channels is not None and len(numbers) > 1:
        raise channels.refuse("[] or [0]")
    return model.Imex(
        channel_ids=numbers,
        required=_boolean(found, "required") or False,
    )


def _name(field: Field) -> str:
    """A resource name with its prefix, which may be left out."""
    plain = field.text(_NAME_RULE).removeprefix(model.PREFIX)
    full = model.PREFIX + plain
    if not _NAME.fullmatch(plain) or len(full) > _NAME_LENGTH:
        raise field.refuse(_NAME_RULE)
    return full


def _required(parent: Field, found: dict[str, Field], key: str) -> Field:
    if key not in found:
        path = f"{parent.path}.{key}" if parent.path else key
        raise Field(None, path, {}).refuse(f"{key} must be set")
    return found[key]


def _boolean(found: dict[str, Field], key: str) -> bool | None:
    return found[key].boolean() if key in found else None


def _text(found: dict[str, Field], key: str) -> str | None:
    return found[key].text() if key in found else None


def _word(found: dict[str, Field], key: str, words: type[Any]) -> Any:
    return found[key].word(words) if key in found else None
