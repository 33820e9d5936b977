# SPDX-License-Identifier: Apache-2.0
"""Refuse a device that another prepared claim still holds.

After a pod was deleted by force the scheduler may hand its card to a second claim while
the first still runs; Kubernetes leaves it to the driver to refuse that. The refusal
names the holder. What a rebuilt checkpoint only assumes to be held, because the
API said so, is dropped as soon as the API no longer says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpudeck import logs
from gpudeck.dra import fetching
from gpudeck.dra.allocations import HeldDevice, Reference
from gpudeck.dra.checkpoint import Content, Entry, State
from gpudeck.errors import BusyError
from gpudeck.kube import client

log = logs.get(__name__)


async def check_free(
    api: client.Client, content: Content, claim: Reference, devices: Sequence[HeldDevice]
) -> None:
    """Raise BusyError when another claim holds a device that excludes one of `devices`."""
    for uid, entry in list(content.claims.items()):
        if uid == claim.uid:
            continue
        taken = {
            held.name for held in entry.devices if any(held.excludes(device) for device in devices)
        }
        if taken:
            await _resolve(api, content, (uid, entry), sorted(taken))


def alone(content: Content, uid: str) -> list[HeldDevice]:
    """The devices of a claim that no other claim has: what is removed is removed for all.

    Two have one partition only after the checkpoint was lost, since a CDI spec does not
    tell who merely looks on; the last of them to go takes it along.
    """
    others = {
        device.name
        for other, entry in content.claims.items()
        if other != uid and entry.state is not State.RELEASED
        for device in entry.devices
        if device.is_partition
    }
    held = {device.key: device for device in content.claims[uid].devices}
    return [device for device in held.values() if device.name not in others]


async def _resolve(
    api: client.Client, content: Content, holder: tuple[str, Entry], devices: Iterable[str]
) -> None:
    uid, entry = holder
    if entry.state is State.RELEASED:
        raise BusyError(
            f"device {', '.join(devices)} of claim {entry} (UID {uid}) is being removed by the "
            "adapter",
            reason="DeviceBeingReleased",
        )
    pods = await _pods(api, uid, entry)
    if pods:
        raise BusyError(
            f"device {', '.join(devices)} is held by claim {entry} (UID {uid}) of "
            f"{', '.join(pods)}, which has not been unprepared",
            reason="DeviceHeld",
        )
    if entry.state is State.RECOVERED and entry.spec is None:
        log.info("Dropping a claim that nothing shows to be in use", claim=entry, uid=uid)
        content.forget(uid)
        return
    raise BusyError(
        f"device {', '.join(devices)} is still held by claim {entry} (UID {uid}), which no pod "
        "uses any more; the kubelet will unprepare it",
        reason="DeviceBeingReleased",
    )


async def _pods(api: client.Client, uid: str, entry: Entry) -> list[str]:
    """Who has reserved the holder's claim; nobody if that claim is gone."""
    if not entry.name:
        return []
    claim = await fetching.claim(api, uid, entry)
    if claim is None or claim.status is None:
        return []
    return [
        f"{each.resource.removesuffix('s')} {entry.namespace}/{each.name}"
        for each in claim.status.reserved_for or ()
    ]
