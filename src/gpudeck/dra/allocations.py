# SPDX-License-Identifier: Apache-2.0
"""From a ResourceClaim to the devices that this node's plugin must prepare for it.

Pure. Reads only results of our driver; the kubelet knows a subrequest `main/sub` by
the name of its main request (Kubernetes 1.37), so that is what is answered.
"""

from __future__ import annotations

import msgspec

from gpudeck.api import labels, names, resource
from gpudeck.api.meta import Wire
from gpudeck.dra import configs
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
    admin_access: bool | None = None
    share_id: str | None = msgspec.field(default=None, name="shareID")

    @property
    def is_exclusive(self) -> bool:
        """Whether no other claim may hold the device at the same time."""
        return not self.admin_access


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
    configs.check(allocation.devices.config or ())
    return [_held(each) for each in ours]


def _held(result: resource.AllocatedDevice) -> HeldDevice:
    return HeldDevice(
        name=result.device,
        pool=result.pool,
        requests=[result.request.partition("/")[0]],
        admin_access=result.admin_access or None,
        share_id=result.share_id,
    )
