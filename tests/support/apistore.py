# SPDX-License-Identifier: Apache-2.0
"""The objects of the in-memory API server: versions, history, writes, deletions.

No HTTP: `apiserver` translates. Every refusal is a `RefusedError` with the HTTP code
and reason that Kubernetes 1.37 gives; tests/contract/kube compares both.
"""

from __future__ import annotations

import contextlib
import copy
import datetime
import random
import re
import string
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.support import fieldownership

Kind = tuple[str, str]
"""Group and plural."""

WITH_STATUS = {
    "nodes", "pods", "namespaces", "resourceclaims", "physicalgpus", "gpuclasses",
    "customresourcedefinitions", "deployments", "daemonsets",
}  # fmt: skip
"""Plurals whose status is a subresource, so that other writes leave it alone."""
WITHOUT_GENERATION = {"nodes", "leases", "configmaps", "events", "namespaces", "secrets"}
CLUSTER_SCOPED = {
    "nodes", "namespaces", "deviceclasses", "resourceslices", "customresourcedefinitions",
    "physicalgpus", "gpuclasses", "clusterroles", "clusterrolebindings",
}  # fmt: skip


_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class RefusedError(Exception):
    """An answer other than success."""

    def __init__(self, code: int, reason: str, message: str, *, name: str = "") -> None:
        super().__init__(message)
        self.headers: dict[str, str] = {}
        self.code, self.reason, self.message, self.name = code, reason, message, name


@dataclass
class Record:
    """One event of the history."""

    version: int
    kind: Kind
    type: str
    value: dict[str, Any]
    before: dict[str, Any] | None


@dataclass
class Stored:
    value: dict[str, Any]
    ownership: fieldownership.Ownership = field(default_factory=fieldownership.Ownership)


@dataclass
class Write:
    """How a write came: by whom, and to which subresource."""

    manager: str = "unknown"
    subresource: str = ""
    force: bool = False


class Store:
    """All objects, with one version counter, as etcd has."""

    def __init__(self) -> None:
        self.version = 100
        self.floor = 100
        """Versions below it are forgotten: watches from there get 410."""
        self.history: list[Record] = []
        self._objects: dict[Kind, dict[str, Stored]] = {}
        self._listeners: list[Callable[[], None]] = []

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call back after each change of the history."""
        self._listeners.append(listener)

    def expire(self) -> None:
        """Forget the history, as a compaction does."""
        self.floor = self.version
        self.history.clear()

    def all(self, kind: Kind) -> dict[str, dict[str, Any]]:
        """Return all objects of a kind by key, sorted; not copies."""
        known = self._objects.get(kind, {})
        return {key: known[key].value for key in sorted(known)}

    def ownership(self, kind: Kind, key: str) -> fieldownership.Ownership:
        """Return who owns what of an object."""
        return self._find(kind, key).ownership

    def get(self, kind: Kind, key: str) -> dict[str, Any]:
        """Return one object; RefusedError 404."""
        return self._find(kind, key).value

    def create(self, kind: Kind, key: str, value: dict[str, Any], write: Write) -> dict[str, Any]:
        """Store a new object; its status is dropped where that is a subresource."""
        if key in self._objects.get(kind, {}):
            name = value["metadata"]["name"]
            raise RefusedError(
                409, "AlreadyExists", f'{kind[1]} "{name}" already exists', name=name
            )
        value = copy.deepcopy(value)
        if kind[1] in WITH_STATUS:
            value.pop("status", None)
        if value["metadata"].get("resourceVersion"):
            raise RefusedError(400, "BadRequest", "resourceVersion should not be set on objects")
        stored = Stored({})
        stored.ownership.update({}, value, (write.manager, "Update", ""))
        return self._insert(kind, key, value, stored)

    def put(self, kind: Kind, key: str, value: dict[str, Any]) -> dict[str, Any]:
        """Store an object whole, status and all, as a test wants it."""
        known = self._objects.get(kind, {}).get(key)
        value = copy.deepcopy(value)
        if known is None:
            stored = Stored({})
            stored.ownership.update({}, value, ("test", "Update", ""))
            return self._insert(kind, key, value, stored)
        for name in ("uid", "creationTimestamp", "generation"):
            if name in known.value["metadata"]:
                value["metadata"].setdefault(name, known.value["metadata"][name])
        known.ownership.update(known.value, value, ("test", "Update", ""))
        return self._commit(kind, key, known, value)

    def apply(self, kind: Kind, key: str, value: dict[str, Any], write: Write) -> dict[str, Any]:
        """Server-side apply; creates the object if need be."""
        known = self._objects.get(kind, {}).get(key)
        owner = (write.manager, "Apply", write.subresource)
        if known is None:
            if write.subresource:
                raise self._missing(kind, key)
            if value["metadata"].get("resourceVersion") or value["metadata"].get("uid"):
                raise RefusedError(409, "Conflict", "the object does not exist", name=key)
            stored = Stored({})
            wanted = _scoped(kind, value, write.subresource)
            made = stored.ownership.apply(_identity(value), wanted, owner, force=True)
            return self._insert(kind, key, made, stored)
        _check_version(known.value, value["metadata"].get("resourceVersion"))
        uid = value["metadata"].get("uid", known.value["metadata"]["uid"])
        if uid != known.value["metadata"]["uid"]:
            text = f'metadata.uid: Invalid value: "{uid}": field is immutable'
            raise RefusedError(422, "Invalid", text, name=key)
        ownership = known.ownership.copy()
        wanted = _scoped(kind, value, write.subresource)
        try:
            after = ownership.apply(known.value, wanted, owner, force=write.force)
        except fieldownership.ConflictingError as error:
            text = ", ".join(f'conflict with "{who}": {path}' for who, path in error.fields)
            raise RefusedError(409, "Conflict", f"{error}: {text}", name=key) from error
        known.ownership = ownership
        return self._commit(kind, key, known, after)

    @contextlib.contextmanager
    def rehearsal(self, kind: Kind, key: str) -> Iterator[None]:
        """Undo at the end of the block what it did to one object, as in a dry run."""
        objects = self._objects.setdefault(kind, {})
        known, version, history = copy.deepcopy(objects.get(key)), self.version, [*self.history]
        listeners, self._listeners = self._listeners, []
        try:
            yield
        finally:
            self._listeners, self.version = listeners, version
            self.history[:] = history
            objects.pop(key, None)
            if known is not None:
                objects[key] = known

    def replace(self, kind: Kind, key: str, value: dict[str, Any], write: Write) -> dict[str, Any]:
        """Change an object by PUT or after a merge patch; the version in it is a precondition."""
        known = self._find(kind, key)
        _check_version(known.value, value["metadata"].get("resourceVersion"))
        after = _merged(kind, known.value, value, write.subresource)
        known.ownership.update(known.value, after, (write.manager, "Update", write.subresource))
        return self._commit(kind, key, known, after)

    def delete(
        self, kind: Kind, key: str, *, uid: str | None = None, version: str | None = None
    ) -> dict[str, Any]:
        """Delete an object, or mark it if finalizers hold it."""
        known = self._find(kind, key)
        _check_uid(known.value, uid)
        _check_version(known.value, version)
        if known.value["metadata"].get("finalizers"):
            if known.value["metadata"].get("deletionTimestamp"):
                return known.value
            after = copy.deepcopy(known.value)
            after["metadata"]["deletionTimestamp"] = now()
            return self._commit(kind, key, known, after)
        return self._drop(kind, key, known)

    def _find(self, kind: Kind, key: str) -> Stored:
        known = self._objects.get(kind, {}).get(key)
        if known is None:
            raise self._missing(kind, key)
        return known

    @staticmethod
    def _missing(kind: Kind, key: str) -> RefusedError:
        name = key.rpartition("/")[2]
        where = f"{kind[1]}.{kind[0]}" if kind[0] else kind[1]
        return RefusedError(404, "NotFound", f'{where} "{name}" not found', name=name)

    def _insert(
        self, kind: Kind, key: str, value: dict[str, Any], stored: Stored
    ) -> dict[str, Any]:
        meta = value["metadata"]
        _check_name(kind, meta["name"])
        meta.setdefault("uid", str(uuid.uuid4()))
        meta.setdefault("creationTimestamp", now())
        if kind[1] not in WITHOUT_GENERATION:
            meta.setdefault("generation", 1)
        stored.value = value
        self._objects.setdefault(kind, {})[key] = stored
        return self._note(kind, "ADDED", value, None)

    def _commit(self, kind: Kind, key: str, known: Stored, after: dict[str, Any]) -> dict[str, Any]:
        before = known.value
        if _same(before, after):
            return before
        meta = after["metadata"]
        if kind[1] not in WITHOUT_GENERATION and _content(before) != _content(after):
            meta["generation"] = meta.get("generation", 0) + 1
        known.value = after
        if meta.get("deletionTimestamp") and not meta.get("finalizers"):
            return self._drop(kind, key, known)
        return self._note(kind, "MODIFIED", after, before)

    def _drop(self, kind: Kind, key: str, known: Stored) -> dict[str, Any]:
        del self._objects[kind][key]
        return self._note(kind, "DELETED", copy.deepcopy(known.value), known.value)

    def _note(
        self, kind: Kind, type_: str, value: dict[str, Any], before: dict[str, Any] | None
    ) -> dict[str, Any]:
        self.version += 1
        value["metadata"]["resourceVersion"] = str(self.version)
        frozen = copy.deepcopy(value)
        self.history.append(Record(self.version, kind, type_, frozen, copy.deepcopy(before)))
        for listener in self._listeners:
            listener()
        return frozen


def now() -> str:
    """Return the present as a metav1.Time."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def generated(prefix: str) -> str:
    """Return a name made from metadata.generateName."""
    letters = random.choices(string.ascii_lowercase + string.digits, k=5)
    return prefix + "".join(letters)


def merge(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7386) and return the result."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge(result.get(name), value)
    return result


def _identity(value: dict[str, Any]) -> dict[str, Any]:
    meta = {
        name: value["metadata"][name] for name in ("name", "namespace") if name in value["metadata"]
    }
    return {"apiVersion": value.get("apiVersion"), "kind": value.get("kind"), "metadata": meta}


def _scoped(kind: Kind, value: dict[str, Any], subresource: str) -> dict[str, Any]:
    """Return the part of an object that a write to the subresource may change."""
    if kind[1] not in WITH_STATUS:
        return value
    if subresource == "status":
        return {**_identity(value), "status": value.get("status") or {}}
    return {name: part for name, part in value.items() if name != "status"}


def _merged(
    kind: Kind, known: dict[str, Any], value: dict[str, Any], subresource: str
) -> dict[str, Any]:
    """Return `known` after a whole write of `value` to the subresource."""
    if kind[1] in WITH_STATUS:
        if subresource == "status":
            after = copy.deepcopy(known)
            after.pop("status", None)
            if "status" in value:
                after["status"] = copy.deepcopy(value["status"])
            return after
        after = copy.deepcopy({name: part for name, part in value.items() if name != "status"})
        if "status" in known:
            after["status"] = copy.deepcopy(known["status"])
    else:
        after = copy.deepcopy(value)
    for name in ("uid", "creationTimestamp", "generation", "deletionTimestamp"):
        if name in known["metadata"]:
            after["metadata"][name] = known["metadata"][name]
    return after


def _check_name(kind: Kind, name: str) -> None:
    if kind[0] != "rbac.authorization.k8s.io" and not _NAME.fullmatch(name):
        text = f'{kind[1]} "{name}" is invalid: metadata.name: Invalid value: "{name}"'
        raise RefusedError(422, "Invalid", text, name=name)


def _check_version(known: dict[str, Any], version: str | None) -> None:
    name = known["metadata"]["name"]
    if version and version != known["metadata"]["resourceVersion"]:
        text = f'Operation cannot be fulfilled on "{name}": the object has been modified'
        raise RefusedError(409, "Conflict", text, name=name)


def _check_uid(known: dict[str, Any], uid: str | None) -> None:
    name = known["metadata"]["name"]
    if uid and uid != known["metadata"]["uid"]:
        text = f'Operation cannot be fulfilled on "{name}": Precondition failed: UID'
        raise RefusedError(409, "Conflict", text, name=name)


def _same(before: dict[str, Any], after: dict[str, Any]) -> bool:
    return _without_version(before) == _without_version(after)


def _without_version(value: dict[str, Any]) -> dict[str, Any]:
    meta = {name: part for name, part in value["metadata"].items() if name != "resourceVersion"}
    return {**value, "metadata": meta}


def _content(value: dict[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in value.items() if name not in ("metadata", "status")}
