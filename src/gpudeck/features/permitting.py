# SPDX-License-Identifier: Apache-2.0
"""Which labels, annotations, taints and extended resources features may give a Node. Pure.

The namespaces kubernetes.io and below belong to Kubernetes, but for feature.node. and
profile.node.kubernetes.io and what is below them; an administrator may allow more and deny others.
What is refused is said with the name, the value and what is allowed.
"""

from __future__ import annotations

import functools
import re

import msgspec

from gpudeck import errors
from gpudeck.api import labels, quantities
from gpudeck.api.core import Taint
from gpudeck.errors import InvalidError
from gpudeck.features.known import Known
from gpudeck.features.rules import patterns

ANNOTATION_BYTES = 1024
_RESERVED = "kubernetes.io"
_LABEL_OWN = (labels.FEATURE_NAMESPACE, labels.PROFILE_NAMESPACE)
_OWN = (labels.FEATURE_NAMESPACE,)
_KEPT_BY_OTHERS = frozenset(
    {
        labels.VENDOR,
        labels.ACTIVE_MODE,
        labels.NODE_GROUP,
        labels.MODE_CHANGE,
        labels.MIG_STATE,
        labels.MIG_CHANGE,
        labels.DRAIN,
        labels.DRAIN_BLOCKED,
        labels.DRAINED,
    }
)
"""What other processes of gpudeck keep on a Node: two writers would never agree, and whoever may
make a NodeFeature could have pods evicted, or both modes on one node."""
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What the administrator lets features do; the defaults are node-feature-discovery's."""

    extra_namespaces: tuple[str, ...] = ()
    """Label namespaces below kubernetes.io, or denied ones, that are allowed all the same."""
    denied_namespaces: tuple[str, ...] = ()
    """Label namespaces; `*.example.com` denies all below, `*` all but the own."""
    whitelist: str = ""
    """A pattern that a label's name without its namespace must fit."""
    has_labels: bool = True
    has_annotations: bool = True
    has_taints: bool = False
    has_extended_resources: bool = True
    takes_foreign_labels: bool = True
    """Whether a NodeFeature outside of the master's namespace may carry labels of its own."""
    allows_overwrite: bool = True
    """Whether a later NodeFeature may give a label another value."""


@functools.lru_cache(maxsize=4096)  # Nodes of a cluster have most of their labels in common.
def label(name: str, value: str, policy: Policy) -> None:
    """Return if the label may be written. InvalidError says why not."""
    namespace, base = _qualified(name, "label")
    _not_kept(name, f"label {name}", value)
    if not _may_label(namespace, policy):
        allowed = f"another namespace, or {namespace} in extraLabelNs (--extra-namespaces)"
        _refuse(f"label {name}", value, allowed)
    if policy.whitelist and not patterns.compiled(policy.whitelist, "--label-whitelist").search(
        base
    ):
        _refuse(f"label {name}", value, f"a name that fits {policy.whitelist}")
    _valid(value, f"label {name}")


def order(name: str, value: str, origin: str, own_namespace: str) -> None:
    """Return if a label may come from a NodeFeature of another namespace; InvalidError if not.

    Namespaces have users of their own, and they must not choose a node's mode or cut its cards.
    """
    _qualified(name, "label")
    if name.startswith(labels.ORDERS):
        _refuse(
            f"label {name} of NodeFeature {origin}",
            value,
            f"only in a NodeFeature of {own_namespace}, in a NodeFeatureRule or on the Node "
            "itself, since it tells gpudeck what to do",
        )


def room(name: str, left: int, origin: str, limit: int) -> None:
    """Return if there is room for a label of another namespace; InvalidError if not."""
    if left < 0:
        allowed = f"at most {limit} bytes of labels a node from NodeFeatures of other namespaces"
        _refuse(f"labels of NodeFeature {origin}", name, allowed)


def annotation(name: str, value: str) -> None:
    """Return if the annotation may be written. InvalidError says why not."""
    namespace, _ = _qualified(name, "annotation")
    _not_kept(name, f"annotation {name}", value)
    _not_reserved(namespace, f"annotation {name}", value)
    if len(value.encode()) > ANNOTATION_BYTES:
        _refuse(f"annotation {name}", value[:40] + "…", f"at most {ANNOTATION_BYTES} bytes")


def extended_resource(name: str, value: str) -> None:
    """Return if the extended resource may be written. InvalidError says why not."""
    namespace, _ = _qualified(name, "extended resource")
    _not_reserved(namespace, f"extended resource {name}", value)
    try:
        amount = quantities.parse(value)
    except InvalidError as error:
        raise InvalidError(f"extended resource {name}: {error.message}") from error
    # The quantity of a fraction is the next whole number, but the API server refuses it.
    if not 0 <= amount < 1 << 63 or quantities.parse(f"-{value.lstrip('+')}") != -amount:
        _refuse(f"extended resource {name}", value, "a whole number of 0 or more")


def taint(found: Taint) -> None:
    """Return if the taint may be written. InvalidError says why not."""
    namespace, _ = _qualified(found.key, "taint")
    _not_kept(found.key, f"taint {found.key}", found.value or "")
    _not_reserved(namespace, f"taint {found.key}", found.value or "")
    _valid(found.value or "", f"taint {found.key}")
    if found.effect not in _EFFECTS:
        _refuse(f"taint {found.key}: effect", found.effect, "one of " + ", ".join(_EFFECTS))


def resolved(name: str, value: str, known: Known) -> str:
    """The value itself, or for `@<feature>.<element>` what was found there."""
    if not value.startswith("@"):
        return value
    found = known.lookup(value[1:])
    if found is None:
        _refuse(name, value, "@ and the name of a value that the node has")
    return found or ""


def _may_label(namespace: str, policy: Policy) -> bool:
    if _is_below(namespace, _LABEL_OWN) or namespace in policy.extra_namespaces:
        return True
    is_reserved = namespace == _RESERVED or namespace.endswith(f".{_RESERVED}")
    return not is_reserved and not any(
        namespace == each or (each.startswith("*") and namespace.endswith(each[1:]))
        for each in policy.denied_namespaces
    )


def _not_kept(name: str, what: str, value: str) -> None:
    if name in _KEPT_BY_OTHERS:
        _refuse(what, value, "another name; gpudeck itself keeps this one")


def _valid(value: str, what: str) -> None:
    """Refuse what is no value of a label; those of taints have the same rule."""
    if value and (len(value) > 63 or not _NAME.fullmatch(value)):
        _refuse(
            what,
            value,
            "at most 63 letters, digits, '-', '_' and '.', none but the "
            "first two kinds at the ends",
        )


def _not_reserved(namespace: str, what: str, value: str) -> None:
    is_reserved = namespace == _RESERVED or namespace.endswith(f".{_RESERVED}")
    if is_reserved and not _is_below(namespace, _OWN):
        _refuse(what, value, f"a namespace outside of {_RESERVED}, or {_OWN[0]}")


def _is_below(namespace: str, own: tuple[str, ...]) -> bool:
    return any(namespace == each or namespace.endswith(f".{each}") for each in own)


def _qualified(name: str, what: str) -> tuple[str, str]:
    namespace, slash, base = name.rpartition("/")
    is_good = (
        slash
        and len(namespace) <= 253
        and _PREFIX.fullmatch(namespace)
        and len(base) <= 63
        and _NAME.fullmatch(base)
    )
    if not is_good:
        _refuse(f"the name of a {what}", name, "<DNS name>/<at most 63 letters, digits, '-_.'>")
    return namespace, base


def _refuse(field: str, value: str, allowed: str) -> None:
    raise errors.not_valid(field, value, allowed)
