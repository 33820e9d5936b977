# SPDX-License-Identifier: Apache-2.0
"""The configuration format of nvidia-mig-parted, version v1: values, strict reading, writing.

A file holds named configs; a config is a list of entries, each of which says for some
cards of a node how they are partitioned. Format as of nvidia-mig-parted 0.15 (its
api/spec/v1). Whether a card can do what an entry says is not known here: `planning`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from gpudeck import errors
from gpudeck.api import fields
from gpudeck.api.fields import Field
from gpudeck.errors import NotFoundError
from gpudeck.mig import mending

KEY = "config.yaml"
"""The key of a ConfigMap that holds such a file."""
WRITTEN_KEY = "written.json"
"""The key beside it, in the ConfigMap of groups of nodes: where people wrote which config."""
VERSION = "v1"
REASON = "InvalidMigConfig"
_ROOT = "mig-configs"
_FIELDS = ("device-filter", "devices", "mig-enabled", "mig-devices")
_ID = r"0[xX]([0-9a-fA-F]{8})"
_FILTER = re.compile(rf"{_ID}(?::{_ID})?")
_PROFILE = re.compile(r"(?:[1-9]c\.)?[1-9]g\.[1-9][0-9]*gb(?:[+.-][a-z]+(?:[.,][a-z]+)*)?")
_FILTER_RULE = (
    "0x and eight hexadecimal digits (PCI device, then vendor), e.g. 0x20B010DE, perhaps "
    "followed by a colon and the same for the subsystem; or a list of them"
)
_DEVICES_RULE = "all, or a list of the node's card numbers from 0 in the order of the PCI bus"


class Filter(msgspec.Struct, frozen=True):
    """A model of cards by PCI id, device in the upper half and vendor in the lower."""

    pci_id: int
    subsystem_id: int | None = None

    def accepts(self, pci_id: int | None, subsystem_id: int | None) -> bool:
        """Whether a card of these ids is meant; one whose ids are not known is not."""
        return self.pci_id == pci_id and self.subsystem_id in (None, subsystem_id)

    def __str__(self) -> str:
        text = f"0x{self.pci_id:08X}"
        return text if self.subsystem_id is None else f"{text}:0x{self.subsystem_id:08X}"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """How some cards are to be partitioned."""

    enabled: bool
    counts: Mapping[str, int] = {}
    """How many partitions, by profile, each above 0; none where `enabled` is False."""
    devices: tuple[int, ...] | None = None
    """Numbers of cards; None for all of them."""
    filters: tuple[Filter, ...] = ()
    """Models of cards; none for all of them."""


Config = tuple[Entry, ...]


class Configs(msgspec.Struct, frozen=True):
    """A whole file."""

    by_name: Mapping[str, Config]
    notes: tuple[str, ...] = ()
    """What was mended when it was read, one sentence each."""

    def find(self, name: str) -> Config:
        """Return a config. Raises NotFoundError that lists what there is."""
        if name not in self.by_name:
            raise NotFoundError(
                f"there is no config {name!r} in {_ROOT}; allowed: {errors.listed(self.by_name)}",
                reason="NoSuchMigConfig",
            )
        return self.by_name[name]


def path(name: str) -> str:
    """Return how a config is called in errors."""
    return f'{_ROOT}["{name}"]'


def read(text: str, source: str = KEY) -> Configs:
    """Read a file, or the manifest of a ConfigMap that holds one.

    Raises InvalidError with the path of each wrong field, its value and what is allowed.
    """
    loaded = mending.load(text, source)
    document, notes = loaded.document, loaded.notes
    if isinstance(document, dict) and document.get("kind") == "ConfigMap":
        inner = mending.load(_content(document), f"data.{KEY}")
        document, notes = inner.document, (*notes, *inner.notes)
    by_name = fields.read(document, _configs, reason=REASON, name=source)
    return Configs(by_name, notes)


def _content(manifest: dict[str, Any]) -> str:
    found = manifest.get("data")
    content = found.get(KEY) if isinstance(found, dict) else None
    if not isinstance(content, str):
        keys = sorted(map(str, found)) if isinstance(found, dict) else found
        allowed = f"a mapping with the key {KEY}, which holds a text"
        raise errors.not_valid("data", keys, allowed, reason=REASON)
    return content


def _configs(top: Field) -> dict[str, Config]:
    if not isinstance(top.value, dict):
        raise top.refuse(f"a mapping with version and {_ROOT}")
    found = top.mapping("version", _ROOT)
    found.need("version", lambda field: field.exactly(VERSION), None)
    return found.need(_ROOT, _by_name, {})


def _by_name(field: Field) -> dict[str, Config]:
    allowed = "a mapping of at least one name to a list of entries"
    if not field.value:
        raise field.refuse(allowed)
    return {
        name: entries.attempt(_config, ())
        for name, entries in field.entries(allowed, names="the name of a config")
    }


def _config(field: Field) -> Config:
    allowed = "a list of at least one entry"
    if not field.value:
        raise field.refuse(allowed)
    return field.each(_entry, allowed)


def _entry(field: Field) -> Entry:
    if not field.value:
        raise field.refuse(f"a mapping with {', '.join(_FIELDS)}")
    found = field.mapping(*_FIELDS)
    enabled = found.need("mig-enabled", Field.boolean, None)
    counts: Mapping[str, int] = {}
    if enabled:
        counts = found.need("mig-devices", _counts, {})
    elif enabled is not None:
        found.read("mig-devices", _no_counts, None)
    return Entry(
        enabled=bool(enabled),
        devices=found.need("devices", _devices, None),
        filters=found.read("device-filter", _filters, ()),
        counts=counts,
    )


def _devices(field: Field) -> tuple[int, ...] | None:
    if field.value == "all":
        return None
    if not field.value:
        raise field.refuse(_DEVICES_RULE)
    return tuple(dict.fromkeys(field.each(_count, _DEVICES_RULE)))


def _filters(field: Field) -> tuple[Filter, ...]:
    if isinstance(field.value, list) and len(field.value) != 1:
        return field.each(_filter, _FILTER_RULE)
    only = field.value[0] if isinstance(field.value, list) else field.value
    # An empty text is no filter to nvidia-mig-parted.
    return () if only == "" else (_filter(field.instead(only)),)


def _filter(field: Field) -> Filter:
    value = field.value
    # Without quotes a hexadecimal number is a number to YAML.
    text = f"0x{value:08X}" if _is_count(value) else value
    match = _FILTER.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise field.refuse(_FILTER_RULE)
    return Filter(int(match[1], 16), int(match[2], 16) if match[2] else None)


def _no_counts(field: Field) -> None:
    if field.value:
        raise field.refuse("nothing while mig-enabled is false")


def _counts(field: Field) -> dict[str, int]:
    allowed = "a mapping of profile to count; {} for MIG without partitions"
    given = {
        profile: count.attempt(functools.partial(_profile_count, profile), None)
        for profile, count in field.entries(allowed, names="a profile")
    }
    counts = {profile: count for profile, count in given.items() if count}
    if given and all(count == 0 for count in given.values()):
        raise field.refuse("at least one count above 0, or {} for no partitions")
    return counts


def _profile_count(profile: str, field: Field) -> int:
    if not _PROFILE.fullmatch(profile):
        raise field.instead(profile).refuse("the name of a profile, e.g. 1g.5gb or 1g.10gb+me")
    return _count(field)


def _count(field: Field) -> int:
    return field.whole(least=0, allowed="a whole number from 0")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def write(by_name: Mapping[str, Config]) -> str:
    """Write a file that `read` and nvidia-mig-parted read."""
    lines = [f"version: {VERSION}", f"{_ROOT}:"]
    for name, config in by_name.items():
        lines.append(f"  {_quoted(name)}:")
        for entry in config:
            lines += _written(entry)
    return "\n".join(lines) + "\n"


def document(by_name: Mapping[str, Config]) -> dict[str, Any]:
    """Return what `write` writes, for JSON."""
    return {
        "version": VERSION,
        _ROOT: {name: [_plain(entry) for entry in config] for name, config in by_name.items()},
    }


def _plain(entry: Entry) -> dict[str, Any]:
    filters = {"device-filter": list(map(str, entry.filters))} if entry.filters else {}
    devices = "all" if entry.devices is None else list(entry.devices)
    counts = {"mig-devices": dict(entry.counts)} if entry.enabled else {}
    return {**filters, "devices": devices, "mig-enabled": entry.enabled, **counts}


def _written(entry: Entry) -> list[str]:
    lines = []
    if entry.filters:
        quoted = ", ".join(f'"{each}"' for each in entry.filters)
        lines.append(f"device-filter: [{quoted}]")
    devices = "all" if entry.devices is None else f"[{', '.join(map(str, entry.devices))}]"
    lines += [f"devices: {devices}", f"mig-enabled: {str(entry.enabled).lower()}"]
    if entry.enabled:
        lines.append("mig-devices:" if entry.counts else "mig-devices: {}")
        lines += [f"  {_quoted(profile)}: {count}" for profile, count in entry.counts.items()]
    return [f"{'    - ' if not number else '      '}{line}" for number, line in enumerate(lines)]


def _quoted(text: str) -> str:
    plain = re.fullmatch(r"[A-Za-z]\w*[.-][\w.-]*", text)  # With a dot or dash: no word of YAML.
    return text if plain else msgspec.json.encode(text).decode()
