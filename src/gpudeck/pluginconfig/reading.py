# SPDX-License-Identifier: Apache-2.0
"""Read a plugin config strictly: every key known, every value checked, by field path.

Pure; the device plugin and feature discovery read the same file with it. NVIDIA's
own reader (0.20) passes over keys that it does not know and over some that it does;
here the first are refused, and the second work or are said in `Config.notes`.
"""

from __future__ import annotations

import functools
import math
import re
from typing import Any

from gpudeck.api import fields, quantities
from gpudeck.api.fields import Field, Parts
from gpudeck.errors import InvalidError
from gpudeck.pluginconfig import model

REASON = "PluginConfigInvalid"
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
REPLICAS = {model.Strategy.TIME_SLICING: 512, model.Strategy.MPS: 48}
"""The most of one device. The kubelet (1.37) takes lists of 4 MiB: sixteen cards of seven
partitions each, with 512 replicas, are 3.9. An MPS daemon takes 48 clients (from Volta on)."""
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

    Raises InvalidError with the path of each wrong field, its value and what is allowed.
    """
    return fields.read(_load(text), _config, reason=REASON, hints=_HINTS)


def _config(top: Field) -> model.Config:
    found = top.mapping("version", "flags", "resources", "sharing", "imex")
    found.read("version", lambda field: field.exactly(VERSION), None)
    flags = found.read("flags", _flags, model.Flags())
    sharing, notes = found.read("sharing", _sharing, (None, ()))
    return model.Config(
        flags=flags,
        resources=found.read("resources", _resources, model.Resources()),
        sharing=sharing,
        imex=found.read("imex", _imex, model.Imex()),
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
    if not text:
        return None
    # A megabyte and a tenth of the start of a process: not for nodes on which no config is chosen.
    from gpudeck.api import documents  # noqa: PLC0415 - it loads yaml, as just said.

    return documents.read(text, "the config", reason=REASON)


def _unreadable(what: str, allowed: str) -> InvalidError:
    return InvalidError(
        f"the config cannot be read: {what}; allowed: {allowed}",
        reason=REASON,
        allowed=allowed,
    )


def _flags(field: Field) -> model.Flags:
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
        device_discovery_strategy=found.read("deviceDiscoveryStrategy", _discovery, None),
        plugin=found.read("plugin", _plugin, model.PluginFlags()),
        gfd=found.read("gfd", _gfd, model.GfdFlags()),
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


def _plugin(field: Field) -> model.PluginFlags:
    found = field.mapping(
        "passDeviceSpecs",
        "deviceListStrategy",
        "deviceIDStrategy",
        "cdiAnnotationPrefix",
        "nvidiaCTKPath",
        "containerDriverRoot",
        "sharedDevicesAllocationPolicy",
    )
    return model.PluginFlags(
        pass_device_specs=_boolean(found, "passDeviceSpecs"),
        device_list_strategy=found.read("deviceListStrategy", _strategies, None),
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
        found = tuple(_strategy(field.instead(word.strip())) for word in field.value.split(","))
    else:
        found = field.each(_strategy, f"one of {words}, or a list of them")
    if not field.value:
        raise field.refuse(f"at least one of {words}")
    return tuple(dict.fromkeys(found))


def _strategy(field: Field) -> model.ListStrategy:
    return model.ListStrategy(field.word(model.ListStrategy))


def _gfd(field: Field) -> model.GfdFlags:
    found = field.mapping(
        "oneshot", "noTimestamp", "sleepInterval", "outputFile", "machineTypeFile"
    )
    return model.GfdFlags(
        oneshot=_boolean(found, "oneshot"),
        no_timestamp=_boolean(found, "noTimestamp"),
        sleep_interval_seconds=found.read("sleepInterval", duration, None),
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


def _discovery(field: Field) -> str:
    words = ("auto", "nvml", "tegra", "vfio")
    if field.value not in words:
        raise field.refuse(", ".join(words))
    return str(field.value)


def _resources(field: Field) -> model.Resources:
    found = field.mapping("gpus", "mig")
    return model.Resources(
        gpus=found.read("gpus", _patterns, ()), mig=found.read("mig", _patterns, ())
    )


def _patterns(field: Field) -> tuple[model.Named, ...]:
    return field.each(_pattern, "a list of {pattern, name}")


def _pattern(field: Field) -> model.Named:
    found = field.mapping("pattern", "name")
    return model.Named(
        pattern=found.need("pattern", Field.text, ""), name=found.need("name", _name, "")
    )


def _sharing(field: Field) -> tuple[model.Sharing | None, tuple[str, ...]]:
    found = field.mapping(*model.Strategy)
    read = {
        strategy: found.read(strategy, functools.partial(_replicated, strategy), None)
        for strategy in model.Strategy
        if strategy in found
    }
    if len(read) > 1:
        # The order is NVIDIA's (config v1, 0.20).
        note = "sharing.timeSlicing: has no effect beside sharing.mps, which takes precedence."
        return read[model.Strategy.MPS], (note,)
    return next(iter(read.values()), None), ()


def _replicated(strategy: model.Strategy, field: Field) -> model.Sharing:
    found = field.mapping(*_SHARING_KEYS)
    fails = _boolean(found, "failRequestsGreaterThanOne")
    return model.Sharing(
        strategy=strategy,
        rename_by_default=_boolean(found, "renameByDefault") or False,
        fail_requests_greater_than_one=strategy is model.Strategy.MPS if fails is None else fails,
        resources=found.need("resources", functools.partial(_shared, REPLICAS[strategy]), ()),
    )


def _shared(most: int, field: Field) -> tuple[model.Replicated, ...]:
    found = field.each(functools.partial(_resource, most), "a list of {name, replicas}")
    if not field.value:
        raise field.refuse("at least one {name, replicas}")
    return found


def _resource(most: int, field: Field) -> model.Replicated:
    allowed = f"a whole number, at least 2 and at most {most}"
    found = field.mapping(*_RESOURCE_KEYS)
    count, devices = found.read("devices", _devices, (None, None))
    return model.Replicated(
        name=found.need("name", _name, ""),
        replicas=found.need(
            "replicas", lambda each: each.whole(least=2, most=most, allowed=allowed), 0
        ),
        rename=found.read("rename", _name, None),
        count=count,
        devices=devices,
        memory_limit=found.read("memoryLimit", _memory_limit, None),
    )


def _devices(field: Field) -> tuple[int | None, tuple[str, ...] | None]:
    if field.value == "all":
        return None, None
    if isinstance(field.value, list):
        named = field.each(_device, _DEVICES_RULE)
        if not field.value or len(set(named)) != len(named):
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


def _memory_limit(field: Field) -> str:
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


def _imex(field: Field) -> model.Imex:
    found = field.mapping("channelIDs", "required")
    return model.Imex(
        channel_ids=found.read("channelIDs", _channels, ()),
        required=_boolean(found, "required") or False,
    )


def _channels(field: Field) -> tuple[int, ...]:
    ids = field.each(lambda each: each.whole(least=0, most=0, allowed="0"), "[] or [0]")
    if len(field.value) > 1:
        raise field.refuse("[] or [0]")
    return ids


def _name(field: Field) -> str:
    """A resource name with its prefix, which may be left out."""
    plain = field.text(_NAME_RULE).removeprefix(model.PREFIX)
    full = model.PREFIX + plain
    if not _NAME.fullmatch(plain) or len(full) > _NAME_LENGTH:
        raise field.refuse(_NAME_RULE)
    return full


def _boolean(found: Parts, key: str) -> bool | None:
    return found.read(key, Field.boolean, None)


def _text(found: Parts, key: str) -> str | None:
    return found.read(key, Field.text, None)


def _word(found: Parts, key: str, words: type[Any]) -> Any:
    return found.read(key, lambda field: field.word(words), None)
