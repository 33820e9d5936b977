# SPDX-License-Identifier: Apache-2.0
"""CDI specs as bytes, above all the one for one claim: names, version and content.

Pure. Device names hold the claim's UID, so a name is never used twice: containerd reads
its folders again only when it meets a name that it does not know. Equal input
gives equal bytes, so a spec on disk can be compared with what should be there.

A second kind of spec mounts the files that tell a container what its devices are. Its
devices are the requests of a claim, since the kubelet hands out devices by request.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gpudeck.api import labels
from gpudeck.cdi import spec

KIND = "k8s.gpu.deckhouse.io/claim"
METADATA_KIND = f"{labels.DRIVER}/metadata"
"""As drivers name it that use the kubelet plugin library of Kubernetes 1.37 (KEP-5304)."""


def device_name(claim_uid: str, device: str) -> str:
    """The name inside the spec, e.g. `<uid>-gpu-0000-1b-00-0`."""
    return f"{claim_uid}-{device}"


def device_id(claim_uid: str, device: str) -> str:
    """The fully qualified name that the kubelet hands to the runtime."""
    return f"{KIND}={device_name(claim_uid, device)}"


def metadata_id(claim_uid: str, request: str) -> str:
    """The fully qualified name of the mount that tells of the devices of a request."""
    return f"{METADATA_KIND}={_metadata_name(claim_uid, request)}"


def file_name(claim_uid: str, kind: str = KIND) -> str:
    """The file of a claim; the part before `_` is the kind, as CDI's own library names files."""
    return f"{_prefix(kind)}{claim_uid}{_FILE_SUFFIX}"


def claim_of(file: str, kind: str = KIND) -> str | None:
    """The claim UID of one of our file names, None for any other file."""
    prefix = _prefix(kind)
    if file.startswith(prefix) and file.endswith(_FILE_SUFFIX):
        return file[len(prefix) : -len(_FILE_SUFFIX)]
    return None


def render(
    claim_uid: str,
    devices: Mapping[str, spec.ContainerEdits],
    shared: spec.ContainerEdits = spec.NOTHING,
) -> bytes:
    """Return the spec of a claim: `devices` by device name, `shared` for users of any of them."""
    named = {device_name(claim_uid, name): each for name, each in devices.items()}
    return render_kind(KIND, named, shared)


def render_kind(
    kind: str,
    devices: Mapping[str, spec.ContainerEdits],
    shared: spec.ContainerEdits = spec.NOTHING,
) -> bytes:
    """Return a spec of any kind: `devices` by their names in it."""
    rendered = spec.Spec(
        cdi_version=_version([*devices.values(), shared]),
        kind=kind,
        devices=tuple(
            spec.Device(name=name, container_edits=each) for name, each in devices.items()
        ),
        container_edits=shared if shared != spec.NOTHING else None,
    )
    return msgspec.json.encode(rendered)


def render_metadata(claim_uid: str, mounts: Mapping[str, spec.Mount]) -> bytes:
    """Return the spec of the mounts by request that tell what a claim's devices are."""
    devices = {
        _metadata_name(claim_uid, request): spec.ContainerEdits(mounts=(mount,))
        for request, mount in mounts.items()
    }
    return render_kind(METADATA_KIND, devices)


def parse(claim_uid: str, content: bytes) -> list[str] | None:
    """The devices of a claim that a spec on disk names; None if it is no spec of that claim."""
    try:
        found = msgspec.json.decode(content, type=spec.Spec)
    except msgspec.DecodeError:
        return None
    prefix = device_name(claim_uid, "")
    names = [each.name for each in found.devices]
    if found.kind != KIND or not names or not all(name.startswith(prefix) for name in names):
        return None
    return [name[len(prefix) :] for name in names]


_FILE_SUFFIX = ".json"


def _prefix(kind: str) -> str:
    return kind.replace("/", "-") + "_"


def _metadata_name(claim_uid: str, request: str) -> str:
    return f"{claim_uid}_{request}"


def _version(edits: list[spec.ContainerEdits]) -> str:
    """The lowest CDI version that knows what is used, since a runtime refuses later ones."""
    if any(each.additional_gids for each in edits):
        return "0.7.0"
    return "0.5.0"  # The first with hostPath of device nodes.
