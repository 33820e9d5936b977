# SPDX-License-Identifier: Apache-2.0
"""The GPUClasses that gpudeck makes itself: one for each profile of partitions in the cluster.

Pure; `shipping` acts. A class is named after its profile and asked for by the name that
NVIDIA's device plugin gives it (v0.19, strategy mixed), so that existing workloads run as
they are. What an administrator has made or changed under such a name is his and is left
alone.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping

from gpudeck.api import labels, names
from gpudeck.api.meta import ObjectMeta
from gpudeck.api.v1alpha1 import gpuclass
from gpudeck.api.v1alpha1.gpuclass import GPUClass, GPUClassSpec, PartitionRequirements
from gpudeck.devices import profiles

AUTO, NONE = "Auto", "None"
CHOICES = (AUTO, NONE)
"""Whether classes are made."""
NVIDIA = "nvidia"
_RESOURCE = "nvidia.com/mig-"
_NAME = "mig-"
_PROFILE = re.compile(r"[0-9]{1,3}g[.][0-9]{1,5}gb([+-][a-z0-9]+([.][a-z0-9]+)*)?")
_LIMIT = 64
"""More profiles than all models of NVIDIA's have together come of a node that reports nonsense."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is to be made and what is to go."""

    create: list[GPUClass]
    delete: list[GPUClass]


def plan(
    profiles: Iterable[str], used: Collection[str], classes: Mapping[str, GPUClass], *, choice: str
) -> Plan:
    """Return what to do, given the profiles of the cluster's cards and all classes by name.

    A class that nobody wants any more stays while claims hold partitions of its profile;
    `used` are these profiles, as names of devices have them.
    """
    wanted = {} if choice == NONE else _wanted(profiles)
    obsolete = [
        each
        for name, each in sorted(classes.items())
        if name not in wanted
        and each.metadata.deletion_timestamp is None
        and is_untouched(each)
        and not _is_used(each, used)
    ]
    return Plan([each for name, each in sorted(wanted.items()) if name not in classes], obsolete)


def _wanted(profiles: Iterable[str]) -> dict[str, GPUClass]:
    known = sorted(each for each in set(profiles) if _PROFILE.fullmatch(each))
    return {_name(each): _of(each) for each in known[:_LIMIT]}


def _of(profile: str) -> GPUClass:
    return GPUClass(
        metadata=ObjectMeta(
            name=_name(profile),
            labels={labels.MANAGED_BY: labels.MANAGED_BY_GPUDECK, labels.SHIPPED: "true"},
        ),
        spec=GPUClassSpec(
            vendor=NVIDIA,
            devices=[gpuclass.PARTITION],
            partition=PartitionRequirements(profiles=[profile]),
            extended_resource_name=_RESOURCE + profiles.spelled(profile),
        ),
    )


def _name(profile: str) -> str:
    return _NAME + profiles.spelled(profile)


def is_untouched(found: GPUClass) -> bool:
    """Say whether a class is as gpudeck made it; one that somebody changed is his."""
    if (found.metadata.labels or {}).get(labels.SHIPPED) != "true":
        return False
    profile = _profile(found)
    return (
        bool(profile) and found.spec == _of(profile).spec and found.metadata.name == _name(profile)
    )


def _is_used(found: GPUClass, used: Collection[str]) -> bool:
    return names.plain_profile(_profile(found)) in used


def _profile(found: GPUClass) -> str:
    wanted = found.spec.partition
    return wanted.profiles[0] if wanted is not None and wanted.profiles else ""
