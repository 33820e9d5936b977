# SPDX-License-Identifier: Apache-2.0
"""From a ResourceClaim to the devices that this node's plugin must prepare for it.

Pure. Reads only results of our driver; the kubelet knows a subrequest `main/sub` by
the name of its main request (Kubernetes 1.37), so that is what is answered.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gpudeck.api import attributes, deviceconfigs, labels, names, quantities, resource
from gpudeck.api.meta import Wire
from gpudeck.errors import ConflictError, InvalidError, UnavailableError


class Reference(msgspec.Struct, frozen=True):
    """A claim as the kubelet names it."""

    uid: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class HeldDevice(Wire):
    """A device of a claim, as allocated and as the checkpoint keeps it."""

    name: str
    pool: str = ""
    requests: list[str] = msgspec.field(default_factory=list)
    subrequest: str | None = None
    """The alternative of the request (`firstAvailable`) that the scheduler took."""
    admin_access: bool | None = None
    share_id: str | None = msgspec.field(default=None, name="shareID")
    profile: str | None = None
    """Of a partition: the driver's name of its profile."""
    size: int | None = None
    """Of a partition: how many memory slices it takes; absent where that is not known yet."""
    memory: int | None = None
    """Of a share: the agreed bytes."""
    cores: int | None = None
    """Of a share: percent of the card's multiprocessors."""
    interval: str | None = None
    enforce: str | None = None

    @property
    def key(self) -> str:
        """The device's name within its claim: two shares of one device differ by it."""
        return f"{self.name}-{self.share_id}" if self.share_id else self.name

    @property
    def is_made(self) -> bool:
        """Whether the adapter makes something for the claim, and has to undo it afterwards.

        A partition, or the use of a card's MPS daemon.
        """
        named = names.parse_device(self.name)
        if named is None or self.admin_access:
            return False
        return named.profile_id is not None or named.mps

    @property
    def is_partition(self) -> bool:
        """Whether a partition of a card is made for the claim."""
        named = names.parse_device(self.name)
        return self.is_made and named is not None and named.profile_id is not None

    def excludes(self, other: HeldDevice) -> bool:
        """Whether two claims must not hold the devices at the same time."""
        if self.admin_access or other.admin_access:
            return False
        mine, theirs = names.parse_device(self.name), names.parse_device(other.name)
        if mine is None or theirs is None or self.name == other.name:
            is_shared = mine is not None and mine.type == attributes.TYPE_SHARE
            return self.name == other.name and not is_shared
        if mine.address != theirs.address:
            return False
        if mine.start is None or theirs.start is None:
            return True
        return mine.start < theirs.start + (other.size or 1) and theirs.start < mine.start + (
            self.size or 1
        )


def same(before: Sequence[HeldDevice], now: Sequence[HeldDevice]) -> bool:
    """Whether both are one allocation: the same devices for the same requests.

    What was found in a CDI spec has no requests, and those say nothing then.
    """
    found = {each.key: each for each in before}
    wanted = {each.key: each for each in now}
    return found.keys() == wanted.keys() and all(_agrees(found[key], wanted[key]) for key in found)


def _agrees(before: HeldDevice, now: HeldDevice) -> bool:
    is_known = bool(before.requests and now.requests)
    is_admin = bool(before.admin_access), bool(now.admin_access)
    return not is_known or (before.requests == now.requests and is_admin[0] == is_admin[1])


def devices(claim: resource.ResourceClaim, wanted: Reference, node: str) -> list[HeldDevice]:
    """The devices of `claim` that belong to our driver, in the order of the allocation.

    Raises ConflictError when the API holds another claim of that name, UnavailableError
    while it is not allocated, InvalidError for a device of another node's pool or wrong
    configuration.
    """
    if claim.metadata.uid != wanted.uid:
        raise ConflictError(
            f"claim {wanted}: the API server has another claim of that name "
            f"(UID {claim.metadata.uid}, not {wanted.uid})",
            reason="ClaimReplaced",
        )
    allocation = claim.status.allocation if claim.status else None
    if allocation is None or allocation.devices is None:
        raise UnavailableError(f"claim {wanted} is not allocated", reason="ClaimNotAllocated")
    ours = [each for each in allocation.devices.results or () if each.driver == labels.DRIVER]
    for each in ours:
        if each.pool != names.pool_name(node):
            raise InvalidError(
                f"claim {wanted}: device {each.device} is in pool {each.pool!r}; "
                f"allowed on this node: {names.pool_name(node)!r}",
                reason="WrongPool",
                field="status.allocation.devices.results",
                allowed=names.pool_name(node),
            )
    given = allocation.devices.config or []
    root = "status.allocation.devices.config"
    deviceconfigs.check([(each.opaque, f"{root}[{place}]") for place, each in enumerate(given)])
    return [_held(each, deviceconfigs.of_request(given, each.request)) for each in ours]


def _held(result: resource.AllocatedDevice, config: deviceconfigs.DeviceConfig) -> HeldDevice:
    taken = {
        name.removeprefix(f"{labels.DRIVER}/"): quantities.parse(amount)
        for name, amount in (result.consumed_capacity or {}).items()
    }
    is_share = result.share_id is not None
    request, _, subrequest = result.request.partition("/")
    return HeldDevice(
        name=result.device,
        pool=result.pool,
        requests=[request],
        subrequest=subrequest or None,
        admin_access=result.admin_access or None,
        share_id=result.share_id,
        memory=taken.get(attributes.MEMORY),
        cores=taken.get(attributes.CORES),
        interval=config.interval if is_share else None,
        enforce=config.enforce if is_share else None,
    )
