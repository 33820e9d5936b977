# SPDX-License-Identifier: Apache-2.0
"""The configuration format of nvidia-mig-parted, version v1: values, strict reading, writing.

A file holds named configs; a config is a list of entries, each of which says for some
cards of a node how they are partitioned. Format as of nvidia-mig-parted 0.15 (its
api/spec/v1). Whether a card can do what an entry says is not known here: `planning`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gpudeck import errors
from gpudeck.errors import InvalidError, NotFoundError
from gpudeck.mig import mending

KEY = "config.yaml"
"""The key of a ConfigMap that holds such a file."""
VERSION = "v1"
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
_COUNT_RULE = "a whole number from 0"


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
                f"there is no config {name!r} in {_ROOT}; allowed: {', '.join(self.by_name)}",
                reason="NoSuchMigConfig",
            )
        return self.by_name[name]


def path(name: str, index: int, field: str = "") -> str:
    """Return how a field of an entry is called in errors."""
    return f'{_ROOT}["{name}"][{index}]' + (f".{field}" if field else "")


def profile_path(name: str, index: int, profile: str) -> str:
    """Return how a profile of an entry is called in errors."""
    return f'{path(name, index)}.mig-devices["{profile}"]'


def read(text: str, source: str = KEY) -> Configs:
    """Read a file, or the manifest of a ConfigMap that holds one.

    Raises InvalidError with the path of the first wrong field, its value and what is allowed.
    """
    loaded = mending.load(text, source)
    document, notes = loaded.document, loaded.notes
    if isinstance(document, dict) and document.get("kind") == "ConfigMap":
        inner = mending.load(_content(document), f"data.{KEY}")
        document, notes = inner.document, (*notes, *inner.notes)
    return Configs(_configs(document, source), notes)


def _content(manifest: dict[str, Any]) -> str:
    found = manifest.get("data")
    content = found.get(KEY) if isinstance(found, dict) else None
    if not isinstance(content, str):
        keys = sorted(map(str, found)) if isinstance(found, dict) else found
        raise refusal("data", keys, f"a mapping with the key {KEY}, which holds a text")
    return content


def _configs(document: Any, source: str) -> dict[str, Config]:
    if not isinstance(document, dict):
        raise refusal(source, document, f"a mapping with version and {_ROOT}")
    _known(document, "", ("version", _ROOT))
    if document.get("version") != VERSION:
        raise refusal("version", document.get("version"), VERSION)
    found = document.get(_ROOT)
    if not isinstance(found, dict) or not found:
        raise refusal(_ROOT, found, "a mapping of at least one name to a list of entries")
    return {_name(name): _config(name, entries) for name, entries in found.items()}


def _name(name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise refusal(f"{_ROOT}: the name of a config", name, "a text; quote it")
    return name


def _config(name: str, entries: Any) -> Config:
    where = f'{_ROOT}["{name}"]'
    if not isinstance(entries, list) or not entries:
        raise refusal(where, entries, "a list of at least one entry")
    return tuple(_entry(entry, name, index) for index, entry in enumerate(entries))


def _entry(entry: Any, name: str, index: int) -> Entry:
    where = path(name, index)
    if not isinstance(entry, dict) or not entry:
        raise refusal(where, entry, f"a mapping with {', '.join(_FIELDS)}")
    _known(entry, where, _FIELDS)
    enabled = entry.get("mig-enabled")
    if not isinstance(enabled, bool):
        raise refusal(f"{where}.mig-enabled", enabled, "true or false")
    return Entry(
        enabled=enabled,
        devices=_devices(entry.get("devices"), f"{where}.devices"),
        filters=tuple(_filters(entry, f"{where}.device-filter")),
        counts=_counts(entry, name, index),
    )


def _devices(value: Any, where: str) -> tuple[int, ...] | None:
    if value == "all":
        return None
    if not isinstance(value, list) or not value:
        raise refusal(where, value, _DEVICES_RULE)
    for position, each in enumerate(value):
        if not _is_count(each):
            raise refusal(f"{where}[{position}]", each, _COUNT_RULE)
    return tuple(dict.fromkeys(value))


def _filters(entry: dict[Any, Any], where: str) -> Iterator[Filter]:
    value = entry.get("device-filter", "")
    if not isinstance(value, list):
        value = [] if value == "" else [value]  # An empty text is no filter to nvidia-mig-parted.
    for position, each in enumerate(value):
        # Without quotes a hexadecimal number is a number to YAML.
        text = f"0x{each:08X}" if _is_count(each) else each
        match = _FILTER.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise refusal(f"{where}[{position}]" if len(value) > 1 else where, each, _FILTER_RULE)
        yield Filter(int(match[1], 16), int(match[2], 16) if match[2] else None)


def _counts(entry: dict[Any, Any], name: str, index: int) -> dict[str, int]:
    where, given = path(name, index, "mig-devices"), entry.get("mig-devices")
    if not entry["mig-enabled"]:
        if given:
            raise refusal(where, given, "nothing while mig-enabled is false")
        return {}
    if not isinstance(given, dict):
        rule = "a mapping of profile to count; {} for MIG without partitions"
        raise refusal(where, given, rule)
    for profile, count in given.items():
        field = profile_path(name, index, profile)
        if not isinstance(profile, str) or not _PROFILE.fullmatch(profile):
            raise refusal(field, profile, "the name of a profile, e.g. 1g.5gb or 1g.10gb+me")
        if not _is_count(count):
            raise refusal(field, count, _COUNT_RULE)
    counts = {profile: count for profile, count in given.items() if count}
    if given and not counts:
        raise refusal(where, given, "at least one count above 0, or {} for no partitions")
    return counts


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _known(found: dict[Any, Any], where: str, fields: tuple[str, ...]) -> None:
    for key in found:
        if key not in fields:
            field = f"{where}.{key}" if where else str(key)
            raise refusal(field, key, f"the fields {', '.join(fields)}")


def refusal(field: str, value: Any, allowed: str) -> InvalidError:
    """Return the error for a field that is not as it must be."""
    if value is not None:
        return errors.not_valid(field, value, allowed, reason="InvalidMigConfig")
    return InvalidError(
        f"{field}: is missing; allowed: {allowed}",
        reason="InvalidMigConfig",
        field=field,
        allowed=allowed,
    )


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
