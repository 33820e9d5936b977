# SPDX-License-Identifier: Apache-2.0
"""Settings of the process features; each option says whose it is."""

from __future__ import annotations

import dataclasses

from gpudeck.features import labelling
from gpudeck.features.permitting import Policy
from gpudeck.settings import NodeSettings, setting

ROLES = ("worker", "master", "gc")
SOURCES = labelling.SOURCES
_DEFAULT = labelling.Choices()


@dataclasses.dataclass(frozen=True)
class Settings(NodeSettings):
    """Of one role: worker (each node), master (one leads) or gc (one)."""

    role: str = setting("", "worker, master or gc.")
    namespace: str = setting("", "Own namespace, of NodeFeature and lease; empty: the pod's.")
    identity: str = setting("", "Master: name of this replica in the lease; empty: the host's.")
    config: str = setting(
        "", "Worker, master: nfd-worker.conf or nfd-master.conf; settings that are given win."
    )
    no_publish: bool = setting(False, "Worker, master: work as ever, but write nothing.")
    print_only: bool = setting(
        False, "Worker: print the NodeFeature as JSON and end; needs no API server."
    )
    scan_seconds: float = setting(60.0, "Worker: longest time between two looks at the host.")
    poll_seconds: float = setting(
        1.0, "Worker: time between two looks at features.d, and at the bus without kernel events."
    )
    sources: tuple[str, ...] = setting(SOURCES, "Worker: sources that are read.")
    label_sources: tuple[str, ...] = setting(
        SOURCES, "Worker: sources whose features become labels without a rule."
    )
    hidden_features: tuple[str, ...] = setting(
        (), "Worker: features that the NodeFeature leaves out, e.g. kernel.config or usb.*."
    )
    pci_classes: tuple[str, ...] = setting(
        _DEFAULT.pci_classes, "Worker: beginnings of PCI classes that get a label."
    )
    pci_fields: tuple[str, ...] = setting(
        _DEFAULT.pci_fields,
        "Worker: class, vendor, device, subsystem_vendor, subsystem_device in labels.",
    )
    usb_classes: tuple[str, ...] = setting(
        _DEFAULT.usb_classes, "Worker: USB classes that get a label."
    )
    usb_fields: tuple[str, ...] = setting(
        _DEFAULT.usb_fields, "Worker: class, vendor, device, serial in labels."
    )
    cpuid_hidden: tuple[str, ...] = setting(
        _DEFAULT.cpuid_hidden, "Worker: CPU features that get no label."
    )
    cpuid_shown: tuple[str, ...] = setting(
        (), "Worker: the only CPU features that get a label; empty: all but the hidden ones."
    )
    kernel_config: str = setting(
        "", "Worker: the kernel's configuration on the host; empty: where it usually stands."
    )
    kernel_options: tuple[str, ...] = setting(
        _DEFAULT.kernel_options, "Worker: options of the kernel's configuration that get a label."
    )
    label_whitelist: str = setting(
        "", "Worker, master: pattern that a label's name without namespace must fit."
    )
    extra_namespaces: tuple[str, ...] = setting(
        (), "Master: label namespaces allowed although denied or below kubernetes.io."
    )
    denied_namespaces: tuple[str, ...] = setting(
        (), "Master: label namespaces that are denied; *.example.com denies all below."
    )
    feature_namespaces: tuple[str, ...] = setting(
        (), "Master: namespaces whose NodeFeatures count; empty: all."
    )
    enable_taints: bool = setting(False, "Master: let rules taint nodes.")
    disable_labels: bool = setting(False, "Master: write no labels.")
    disable_annotations: bool = setting(False, "Master: write no annotations.")
    disable_extended_resources: bool = setting(False, "Master: write no extended resources.")
    deny_feature_labels: bool = setting(
        False, "Master: ignore labels in NodeFeatures of other namespaces."
    )
    allow_overwrite: bool = setting(
        True, "Master: let a later NodeFeature give a label another value."
    )
    absent_seconds: float = setting(
        30.0, "Master: how long a NodeFeature that is gone still counts: its writer may come back."
    )
    lease_seconds: float = setting(15.0, "Master: how long the lease of one that is silent holds.")
    renew_seconds: float = setting(10.0, "Master: how long a leader tries to renew its lease.")
    retry_seconds: float = setting(2.0, "Master: time between two tries for the lease.")
    resync_seconds: float = setting(3600.0, "Master: time between two looks at every node.")
    page_size: int = setting(100, "Master, gc: NodeFeatures a page of a list; one may have 150 kB.")
    workers: int = setting(8, "Master: nodes that are written at the same time.")
    collect_seconds: float = setting(3600.0, "Gc: time between two looks at every NodeFeature.")


def policy(settings: Settings) -> Policy:
    """What the master lets features do."""
    return Policy(
        extra_namespaces=settings.extra_namespaces,
        denied_namespaces=settings.denied_namespaces,
        whitelist=settings.label_whitelist,
        has_labels=not settings.disable_labels,
        has_annotations=not settings.disable_annotations,
        has_taints=settings.enable_taints,
        has_extended_resources=not settings.disable_extended_resources,
        takes_foreign_labels=not settings.deny_feature_labels,
        allows_overwrite=settings.allow_overwrite,
    )


def choices(settings: Settings) -> labelling.Choices:
    """Which features become labels without a rule."""
    return labelling.Choices(
        pci_classes=settings.pci_classes,
        pci_fields=settings.pci_fields,
        usb_classes=settings.usb_classes,
        usb_fields=settings.usb_fields,
        sources=settings.label_sources,
        cpuid_hidden=settings.cpuid_hidden,
        cpuid_shown=settings.cpuid_shown,
        kernel_options=settings.kernel_options,
        whitelist=settings.label_whitelist,
    )
