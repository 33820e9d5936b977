# SPDX-License-Identifier: Apache-2.0
"""Condition types and reasons, each written once, and how a condition list is kept up to date."""

from __future__ import annotations

from collections.abc import Iterable

from gpudeck.api.meta import Condition

DISCOVERED = "Discovered"
DRIVER_READY = "DriverReady"
HARDWARE_HEALTHY = "HardwareHealthy"
PARTITIONING_APPLIED = "PartitioningApplied"
"""On PhysicalGPU, where an administrator chose its partition mode: whether the card has it."""
PUBLISHED = "Published"
READY = "Ready"

MODE_ACTIVE = "GPUModeActive"
"""On Node: whether its cards are handed out in the mode that is wanted, or what is waited for."""

NODE_GROUP_FOLLOWED = "NodeGroupFollowed"
"""On Node: False while its group is not there or cannot be read; absent otherwise."""

PLUGIN_CONFIGURED = "DevicePluginConfigured"
"""On Node: whether its device plugin follows the config that was chosen."""

MIG_CONFIGURED = "MigConfigured"
"""On Node: whether its cards are partitioned as the config says that was chosen."""

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"

OFFERED_BY_PLUGIN = "OfferedByDevicePlugin"
"""Reason of Published=True: the device plugin of the node offers the card, and no DRA driver."""
PARTS_WITHHELD = "PartsWithheld"
"""Reason of Published: the API server does not let parts of the card be offered safely."""
MODE_CHANGING = "ModeChanging"
"""Reason of Published=False: the node of the card changes its mode."""
PARTS_UNGUARDED = (
    "the API server does not keep the fields of ResourceSlices that guard parts of a card "
    "(Kubernetes does from 1.36)"
)
"""Why parts are withheld, as part of a sentence."""
DEVICE_CLASS_READY = "DeviceClassReady"
"""Ready=True of a GPUClass: claims and pods can name it."""
DEVICE_CLASS_CONFLICT = "DeviceClassConflict"
"""Ready=False of a GPUClass: somebody else has a DeviceClass of that name."""
EXTENDED_RESOURCE_CONFLICT = "ExtendedResourceConflict"
"""Ready=False of a GPUClass: another class has that extended resource name."""
WEBHOOK_NOT_REGISTERED = "WebhookNotRegistered"
"""Ready=False of a GPUClass: pods that ask for it by its name would not get their claims yet."""

APPLIED = "Applied"
"""PartitioningApplied=True: the card has the mode that was chosen."""
NOT_NEEDED = "NotNeeded"
"""PartitioningApplied=True: the choice does not concern the card."""
CHOICE_INVALID = "ChoiceInvalid"
"""PartitioningApplied=False: the label says nothing that is known."""
WAITING_FOR_CARD = "WaitingForCard"
WAITING_FOR_CLAIMS = "WaitingForClaims"
WAITING_FOR_PARTITIONS = "WaitingForPartitions"
SWITCHING = "Switching"
SWITCH_FAILED = "SwitchFailed"


def merge(old: Iterable[Condition] | None, new: Iterable[Condition], now: str) -> list[Condition]:
    """Return `new` with transition times: kept where the status is unchanged, else `now`.

    `now` is RFC 3339 with seconds (metav1.Time). Sorted by type, so equal states give equal lists.
    """
    before = {condition.type: condition for condition in old or ()}
    merged = []
    for condition in sorted(new, key=lambda each: each.type):
        known = before.get(condition.type)
        same = known is not None and known.status == condition.status
        since = known.last_transition_time if known is not None and same else now
        merged.append(
            Condition(
                type=condition.type,
                status=condition.status,
                reason=condition.reason,
                message=condition.message,
                last_transition_time=since,
                observed_generation=condition.observed_generation,
            )
        )
    return merged


def find(conditions: Iterable[Condition] | None, kind: str) -> Condition | None:
    """Return the condition of that type, or None."""
    return next((each for each in conditions or () if each.type == kind), None)
