# SPDX-License-Identifier: Apache-2.0
"""nfd-worker.conf and nfd-master.conf, the files that users of node-feature-discovery have.

Read strictly: a key that is not known and a value that makes no sense are refused by their path,
since a typing mistake would else relabel a cluster. What is valid there and means nothing here
(klog) is said in `Found.notes`. A setting that was given to the process wins
over the file, as a flag does in node-feature-discovery v0.19. Pure; `following` reads the file.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import msgspec

from gpudeck.api import fields
from gpudeck.api.fields import Field, Parts
from gpudeck.api.labelselectors import Requirement, selector
from gpudeck.api.nodefeatures import Rule
from gpudeck.errors import InvalidError
from gpudeck.features import labelling, settings
from gpudeck.features.rules import patterns, shorthand
from gpudeck.features.rules.evaluating import Named
from gpudeck.features.settings import Settings

REASON = "FeaturesConfigInvalid"
NEVER_SECONDS = 10.0 * 365 * 86400
"""What a time that is not positive means: looks are never repeated."""
_NAME = "the file"
_TIME = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_LABEL_NAMESPACE = re.compile(r"(\*\.?)?([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?")
_RULE_KEYS = frozenset(each.encode_name for each in msgspec.structs.fields(Rule))
_RESTRICTIONS = {
    "disableLabels": "disable_labels",
    "disableAnnotations": "disable_annotations",
    "disableExtendedResources": "disable_extended_resources",
    "denyNodeFeatureLabels": "deny_feature_labels",
    "allowOverwrite": "allow_overwrite",
}
_LEASE = {"leaseDuration": "lease_seconds", "renewDeadline": "renew_seconds",
          "retryPeriod": "retry_seconds"}  # fmt: skip


class Found(msgspec.Struct):
    """What a file says."""

    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    """Values of `Settings`, by name."""
    rules: list[Named] = msgspec.field(default_factory=list)
    """Of the worker: rules of its own."""
    namespaces: tuple[Requirement, ...] | None = None
    """Of the master: what labels of a namespace its NodeFeatures must fulfil; None for all."""
    notes: list[str] = msgspec.field(default_factory=list)
    """What has no effect, by its path."""


def worker(text: str) -> Found:
    """Read nfd-worker.conf. InvalidError with the path of everything that is wrong."""
    return fields.read(document(text), _worker, reason=REASON, name=_NAME)


def master(text: str) -> Found:
    """Read nfd-master.conf. InvalidError with the path of everything that is wrong."""
    return fields.read(document(text), _master, reason=REASON, name=_NAME)


def document(text: str) -> Any:
    """Read JSON or YAML: the chart writes JSON, to spare each node two megabytes of YAML."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        pass  # What is no JSON is perhaps YAML, or is refused as what it is.
    # Two megabytes, for those who write such files by hand.
    from gpudeck.api import documents  # noqa: PLC0415 (it loads yaml)

    return documents.read(text, _NAME, reason=REASON)


def merged(given: Settings, found: Found) -> Settings:
    """The settings of the process, and for those that were not given what the file says."""
    unset = {each.name for each in dataclasses.fields(Settings)
             if getattr(given, each.name) == each.default}  # fmt: skip
    result = dataclasses.replace(
        given, **{name: value for name, value in found.settings.items() if name in unset}
    )
    if not result.lease_seconds > result.renew_seconds > 1.2 * result.retry_seconds:
        allowed = "leaseDuration above renewDeadline, and that above 1.2 times retryPeriod"
        raise InvalidError(
            f"leaderElection: {result.lease_seconds:g} s, {result.renew_seconds:g} s and "
            f"{result.retry_seconds:g} s are not valid together; allowed: {allowed}",
            reason=REASON,
            field="leaderElection",
            allowed=allowed,
        )
    return result


def _worker(top: Field) -> Found:
    found = Found()
    parts = top.mapping("core", "sources")
    _core(parts, found)
    _sources(parts, found)
    return found


def _core(parts: Parts, found: Found) -> None:
    core = parts.below(
        "core",
        "sleepInterval", "featureSources", "labelSources", "sources", "labelWhiteList",
        "noPublish", "noPublishFeatures", "noOwnerRefs", "klog",
    )  # fmt: skip
    _take(found, core, "sleepInterval", "scan_seconds", _pause)
    _take(found, core, "featureSources", "sources", _source_names)
    _take(found, core, "labelSources", "label_sources", _source_names)
    _take(found, core, "sources", "label_sources", _source_names)  # The old name goes first.
    _take(found, core, "labelWhiteList", "label_whitelist", _pattern)
    _take(found, core, "noPublish", "no_publish", Field.boolean)
    _take(found, core, "noPublishFeatures", "hidden_features", _feature_names)
    _note(found, core, "noOwnerRefs", "klog")


def _sources(parts: Parts, found: Found) -> None:
    sources = parts.below("sources", "cpu", "custom", "kernel", "local", "pci", "usb")
    cpu = sources.below("cpu", "cpuid").below("cpuid", "attributeBlacklist", "attributeWhitelist")
    _take(found, cpu, "attributeBlacklist", "cpuid_hidden", _texts)
    _take(found, cpu, "attributeWhitelist", "cpuid_shown", _texts)
    kernel = sources.below("kernel", "kconfigFile", "configOpts")
    _take(found, kernel, "kconfigFile", "kernel_config", _path)
    _take(found, kernel, "configOpts", "kernel_options", _texts)
    pci = sources.below("pci", "deviceClassWhitelist", "deviceLabelFields")
    _take(found, pci, "deviceClassWhitelist", "pci_classes", _pci_classes)
    _take(found, pci, "deviceLabelFields", "pci_fields", _pci_fields)
    usb = sources.below("usb", "deviceClassWhitelist", "deviceLabelFields")
    _take(found, usb, "deviceClassWhitelist", "usb_classes", _usb_classes)
    _take(found, usb, "deviceLabelFields", "usb_fields", _usb_fields)
    sources.below("local", "hooksEnabled").read("hooksEnabled", _no_hooks, None)
    found.rules = list(sources.read("custom", _rules, ()))


def _no_hooks(field: Field) -> None:
    if field.boolean():
        raise field.refuse("false; a program writes its features into features.d instead")


def _rules(field: Field) -> tuple[Named, ...]:
    return field.each(
        lambda each: Named("nfd-worker.conf", each.path, _rule(each)), "a list of rules"
    )


def _master(top: Field) -> Found:
    found = Found()
    parts = top.mapping(
        "noPublish", "autoDefaultNs", "extraLabelNs", "denyLabelNs", "resourceLabels",
        "enableTaints", "labelWhiteList", "resyncPeriod", "leaderElection", "nfdApiParallelism",
        "informerPageSize", "klog", "restrictions",
    )  # fmt: skip
    _take(found, parts, "noPublish", "no_publish", Field.boolean)
    _take(found, parts, "extraLabelNs", "extra_namespaces", _label_namespaces)
    _take(found, parts, "denyLabelNs", "denied_namespaces", _label_namespaces)
    _take(found, parts, "enableTaints", "enable_taints", Field.boolean)
    _take(found, parts, "labelWhiteList", "label_whitelist", _pattern)
    _take(found, parts, "resyncPeriod", "resync_seconds", _time)
    _take(found, parts, "nfdApiParallelism", "workers", _count)
    _take(found, parts, "informerPageSize", "page_size", _count)
    _note(found, parts, "klog")
    parts.read("autoDefaultNs", _default_namespace, None)
    parts.read("resourceLabels", _no_resources, None)
    lease = parts.below("leaderElection", *_LEASE)
    for key, name in _LEASE.items():
        _take(found, lease, key, name, _positive_time)
    _restrictions(parts, found)
    return found


def _default_namespace(field: Field) -> None:
    if not field.boolean():
        raise field.refuse("true; a name without a namespace always gets one")


def _no_resources(field: Field) -> None:
    if field.value:
        raise field.refuse("none; NodeFeatureRules have extendedResources")


def _restrictions(parts: Parts, found: Found) -> None:
    limits = parts.below(
        "restrictions", *_RESTRICTIONS, "disableTaints", "nodeFeatureNamespaceSelector"
    )
    for key, name in _RESTRICTIONS.items():
        _take(found, limits, key, name, Field.boolean)
    if limits.read("disableTaints", Field.boolean, False):
        found.settings["enable_taints"] = False
    found.namespaces = limits.read("nodeFeatureNamespaceSelector", selector, None)


def _take(found: Found, parts: Parts, key: str, name: str, read: Callable[[Field], Any]) -> None:
    if key in parts:
        found.settings[name] = parts.read(key, read, None)


def _note(found: Found, parts: Parts, *keys: str) -> None:
    found.notes += [parts[key].path for key in keys if key in parts]


def _time(field: Field) -> float:
    """Seconds of `1m30s`, as Go writes times; what is not positive means never."""
    text = field.value if isinstance(field.value, str) else str(field.value)
    if text in ("0", "0s") or text.startswith("-"):
        return NEVER_SECONDS
    parts = _TIME.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise field.refuse("a time such as 60s or 1h30m")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def _pause(field: Field) -> float:
    """A second at least, as with node-feature-discovery: the host is looked at after each."""
    return max(_time(field), 1.0)


def _positive_time(field: Field) -> float:
    seconds = _time(field)
    if seconds == NEVER_SECONDS:
        raise field.refuse("a time above 0, such as 15s")
    return seconds


def _texts(field: Field) -> tuple[str, ...]:
    allowed = "a list of texts"
    return field.each(lambda each: each.text("a text; put numbers in quotes"), allowed)


def _listed(field: Field, pattern: re.Pattern[str], allowed: str) -> tuple[str, ...]:
    return field.each(lambda each: each.matching(pattern, allowed), f"a list; each: {allowed}")


def _pci_classes(field: Field) -> tuple[str, ...]:
    pattern = re.compile(r"[0-9a-fA-F]{2}([0-9a-fA-F]{2})?")
    return _listed(field, pattern, 'two or four hexadecimal digits in quotes, e.g. "0302"')


def _usb_classes(field: Field) -> tuple[str, ...]:
    return _listed(field, re.compile(r"[0-9a-fA-F]{2}"), 'two hexadecimal digits in quotes: "0e"')


def _pci_fields(field: Field) -> tuple[str, ...]:
    return _words(field, labelling.PCI_FIELDS)


def _usb_fields(field: Field) -> tuple[str, ...]:
    return _words(field, labelling.USB_FIELDS)


def _words(field: Field, words: tuple[str, ...]) -> tuple[str, ...]:
    return _listed(field, re.compile("|".join(words)), "one of " + ", ".join(words))


def _source_names(field: Field) -> tuple[str, ...]:
    """Names of sources; `all`, and `-name` for all but that one."""
    words = ("all", *settings.SOURCES, *(f"-{name}" for name in settings.SOURCES))
    given = _listed(field, re.compile("|".join(words)), "all, -NAME, or NAME, one of "
                    + ", ".join(settings.SOURCES))  # fmt: skip
    wanted = set(settings.SOURCES) if "all" in given else set(given)
    wanted -= {name[1:] for name in given if name.startswith("-")}
    return tuple(name for name in settings.SOURCES if name in wanted)


def _feature_names(field: Field) -> tuple[str, ...]:
    pattern = re.compile(r"[a-z]+\.([a-z]+|\*)|\*|[a-z]+\*")
    return _listed(field, pattern, "<source>.<feature>, or a beginning of it and *")


def _label_namespaces(field: Field) -> tuple[str, ...]:
    return _listed(field, _LABEL_NAMESPACE, "a DNS name; * at its beginning stands for anything")


def _pattern(field: Field) -> str:
    text = str(field.value)
    try:
        patterns.compiled(text, field.path)
    except InvalidError as error:
        raise field.refuse(f"{error.allowed}, unlike this one") from error
    return text


def _path(field: Field) -> str:
    if not isinstance(field.value, str) or (field.value and not field.value.startswith("/")):
        raise field.refuse("an absolute path on the host")
    return field.value


def _count(field: Field) -> int:
    return field.whole(least=1, allowed="a whole number of 1 or more")


def _rule(field: Field) -> Rule:
    value = field.value
    if isinstance(value, dict):
        for key in value:
            if key not in _RULE_KEYS:
                more = "; matchOn is now matchFeatures" if key == "matchOn" else ""
                allowed = "the keys " + ", ".join(sorted(_RULE_KEYS)) + more
                raise field.below(key).refuse(allowed)
    try:
        return msgspec.convert(shorthand.expanded(value), Rule)
    except msgspec.ValidationError as error:
        raise InvalidError(
            f"{field.path}: {error}; allowed: a rule as in a NodeFeatureRule",
            reason=REASON,
            field=field.path,
            allowed="a rule as in a NodeFeatureRule",
        ) from error
