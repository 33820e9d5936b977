# SPDX-License-Identifier: Apache-2.0
"""Names that gpudeck gives to objects, devices and label values, each made in one place.

The node agent, the DRA plugin, the controller and the command line all derive
them; none stores a mapping, because both directions are pure functions. Untrusted
text (product names, node names) becomes a valid value here or nowhere.
"""

from __future__ import annotations

import hashlib
import re

import msgspec

from gpudeck.devices.identities import PciAddress
from gpudeck.errors import InvalidError

LABEL_VALUE_LENGTH = 63
OBJECT_NAME_LENGTH = 253
_NODE_OF_GPU_LENGTH = OBJECT_NAME_LENGTH - len("-00000000-00-00-0")
ATTRIBUTE_LENGTH = 64
"""Longest string or version attribute of a device (resource.k8s.io/v1)."""

_OF_NAMES = "abcdefghijklmnopqrstuvwxyz0123456789-."
_PRIME = 2**31 - 1
_BLANKS = re.compile(r"\s+")
_FORBIDDEN = re.compile(r"[^A-Za-z0-9._-]")
_DASHES = re.compile(r"-{2,}")
_MAKERS = re.compile(r"^(?:nvidia|metax|amd|intel)(?:\s+|$)", re.IGNORECASE)
_GPU, _MIG, _SHARE = "gpu", "mig", "share"
_MPS = "-mps"
_DEVICE = re.compile(
    r"^(?P<type>gpu|mig|share)-(?P<address>[0-9a-f]{4,8}-[0-9a-f]{2}-[01][0-9a-f]-[0-7])"
    r"(?:-(?P<profile>[a-z0-9]+)-(?P<id>[0-9]+)-(?P<start>[0-9]+)|(?P<mps>-mps))?$"
)


class DeviceName(msgspec.Struct, frozen=True):
    """What the name of a DRA device of ours says; a partition has `profile_id` and `start`."""

    type: str
    """gpu, mig or share: the value of the attribute `type`."""
    address: PciAddress
    profile_id: int | None = None
    start: int | None = None
    mps: bool = False
    profile: str = ""
    """Of a partition: the name of its profile as far as a device's name can hold it."""


def label_value(text: str, *, suffix: str = "", length: int = LABEL_VALUE_LENGTH) -> str:
    """Return `text` as a label value: blanks become one dash, other forbidden characters go.

    `NVIDIA TITAN X (Pascal)` gives `NVIDIA-TITAN-X-Pascal`; text without a single
    allowed character gives the empty string, which is a valid label value. What is too long
    is cut and hashed; `suffix`, of allowed characters, stays whole: it is what people look for.
    """
    joined = _FORBIDDEN.sub("", _BLANKS.sub("-", text.strip())).strip("._-")
    if not joined:
        return suffix.strip("._-")
    return _fit(joined, length - len(suffix)) + suffix


def device_label(product: str) -> str:
    """Return the model as the value of the label `gpu.deckhouse.io/device`.

    `NVIDIA H100 80GB HBM3` gives `h100-80gb-hbm3`: the maker has a label of its own.
    """
    without_maker = _MAKERS.sub("", _BLANKS.sub(" ", product.strip()))
    joined = re.sub(r"[^a-z0-9.]+", "-", without_maker.lower())
    return _fit(_DASHES.sub("-", joined).strip("._-"), LABEL_VALUE_LENGTH)


def node_label(node: str) -> str:
    """Return a node's name as a label value; names past 63 characters are cut and hashed."""
    return node if len(node) <= LABEL_VALUE_LENGTH else f"{node[:52]}-{digest(node)}"


def physical_gpu_name(node: str, address: PciAddress) -> str:
    """Return `<node>-<PCI address>`; names of nodes past 236 characters are cut and hashed."""
    if len(node) > _NODE_OF_GPU_LENGTH:
        node = f"{node[:225].replace('.', '-')}-{digest(node)}"
    return f"{node}-{address.dashed}"


def digest(node: str) -> int:
    """Return a number of at most ten digits that tells the names of nodes apart.

    The chart's admission policies know whose label and whose card it is by the same sum, as CEL
    has no other hash. It is no defence against somebody who may choose the names of nodes.
    """
    points = (place * 64 + _OF_NAMES.find(letter) + 1 for place, letter in enumerate(node))
    return sum(pow(point, 5, _PRIME) for point in points) % _PRIME


def pool_name(node: str) -> str:
    """Return the name of a node's pool of DRA devices: the node's own name."""
    return node


def gpu_device_name(address: PciAddress) -> str:
    """Return the DRA device name of a whole card, e.g. `gpu-0000-1b-00-0`."""
    return f"{_GPU}-{address.dashed}"


def mig_device_name(address: PciAddress, profile: str, profile_id: int, start: int) -> str:
    """Return the DRA device name of a partition, e.g. `mig-0000-1b-00-0-1g10gb-19-0`."""
    return f"{_MIG}-{address.dashed}-{plain_profile(profile)}-{profile_id}-{start}"


def plain_profile(profile: str) -> str:
    """Return what the name of a device says of a profile: `1g.10gb+me` gives `1g10gbme`."""
    return re.sub(r"[^a-z0-9]", "", profile.lower())[:16]


def share_device_name(address: PciAddress, *, mps: bool = False) -> str:
    """Return the DRA device name of a card that is handed out in shares."""
    return f"{_SHARE}-{address.dashed}{_MPS if mps else ''}"


def taint_rule_name(node: str, device: str) -> str:
    """Return the name of the DeviceTaintRule that cordons one device of a node."""
    suffix = f"-{device}"
    return _fit(f"cordon-{node}", OBJECT_NAME_LENGTH - len(suffix)) + suffix


def parse_device(device: str) -> DeviceName | None:
    """Return what a DRA device name of ours says, None if it is not one."""
    found = _DEVICE.match(device)
    if found is None:
        return None
    kind, is_part = found["type"], found["id"] is not None
    if (kind == _MIG) is not is_part or (found["mps"] and kind != _SHARE):
        return None
    try:
        address = PciAddress.parse(found["address"])
    except InvalidError:
        return None
    return DeviceName(
        kind,
        address,
        profile_id=int(found["id"]) if is_part else None,
        start=int(found["start"]) if is_part else None,
        mps=bool(found["mps"]),
        profile=found["profile"] or "",
    )


def address_of_device(device: str) -> PciAddress | None:
    """Return the card that a DRA device of ours is or is a part of, None if it is not one."""
    found = parse_device(device)
    return found.address if found is not None else None


def attribute_text(text: str) -> str:
    """Return `text` cut to what a device attribute may hold."""
    return text.strip()[:ATTRIBUTE_LENGTH]


def _fit(text: str, length: int) -> str:
    if len(text) <= length:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return text[: length - 9].rstrip("._-") + "-" + digest
