# SPDX-License-Identifier: Apache-2.0
"""The taints of a card's devices: that it is unhealthy, and that its partition mode is to change.

Pure; `offering` puts them on devices, `status` and `switching` look for them.
"""

from __future__ import annotations

from collections.abc import Set

from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.api import attributes, names, resource
from gpudeck.devices.identities import PciAddress

NO_SCHEDULE = "NoSchedule"


def is_tainted(device: resource.Device) -> bool:
    """Whether the device carries our taint of unhealthy cards."""
    return any(taint.key == attributes.UNHEALTHY_TAINT for taint in device.taints or ())


def is_kept_off(device: resource.Device) -> bool:
    """Whether the device carries our taint of cards whose partition mode is about to change."""
    return any(taint.key == attributes.MODE_TAINT for taint in device.taints or ())


def of(
    card: adapter_pb2.Card,
    before: resource.Device | None,
    *,
    effect: str,
    kept_off: Set[PciAddress] | None,
) -> list[resource.DeviceTaint] | None:
    """The taints of a device of the card; None for none.

    `before` is the device as it is published now: where health or `kept_off` is not known, its
    taints stay, and a taint that stays keeps its time. `effect` is of the taint of an unhealthy
    card.
    """
    found = _of_health(card.health, before, effect)
    if _gets_no_claims(card, before, kept_off):
        return [*(found or ()), _mode_taint(before)]
    return found


def _of_health(
    health: adapter_pb2.Health, before: resource.Device | None, effect: str
) -> list[resource.DeviceTaint] | None:
    known = [
        taint
        for taint in (before.taints if before is not None else None) or ()
        if taint.key == attributes.UNHEALTHY_TAINT
    ]
    if health.verdict == adapter_pb2.VERDICT_UNKNOWN:
        return known or None
    if health.verdict == adapter_pb2.VERDICT_HEALTHY:
        return None
    value = names.label_value(health.reason)
    # The server stamps a taint without a time anew, which would restart toleration periods.
    since = next(
        (each.time_added for each in known if (each.value, each.effect) == (value, effect)), None
    )
    return [
        resource.DeviceTaint(
            key=attributes.UNHEALTHY_TAINT, value=value, effect=effect, time_added=since
        )
    ]


def _gets_no_claims(
    card: adapter_pb2.Card, before: resource.Device | None, kept_off: Set[PciAddress] | None
) -> bool:
    if kept_off is None:
        return before is not None and is_kept_off(before)
    return PciAddress.parse(card.pci_address) in kept_off


def _mode_taint(before: resource.Device | None) -> resource.DeviceTaint:
    since = next(
        (
            each.time_added
            for each in (before.taints if before is not None else None) or ()
            if each.key == attributes.MODE_TAINT
        ),
        None,
    )
    return resource.DeviceTaint(
        key=attributes.MODE_TAINT, value="changing", effect=NO_SCHEDULE, time_added=since
    )
