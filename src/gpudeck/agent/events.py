# SPDX-License-Identifier: Apache-2.0
"""The Events of the process node-agent: one function each, on the Node or on the PhysicalGPU."""

from __future__ import annotations

from gpudeck.api import labels
from gpudeck.api.meta import ObjectReference
from gpudeck.api.resources import PHYSICAL_GPU
from gpudeck.api.v1alpha1.physicalgpu import PhysicalGPU
from gpudeck.errors import GpudeckError
from gpudeck.kube import recording


class Events:
    """Events about one node and its cards."""

    def __init__(self, recorder: recording.Recorder, node: str) -> None:
        self._recorder = recorder
        self._node_name = node
        self._node = recording.of_node(node)

    def vendors_refused(self, error: GpudeckError, kept: str) -> None:
        """The ConfigMap is wrong; `kept` says what is used instead."""
        self._recorder.record(
            self._node,
            reason=error.reason,
            message=f"ConfigMap {labels.SUPPORTED_VENDORS}: {error.message}. {kept}",
            warning=True,
        )

    def device_unreadable(self, message: str) -> None:
        """A PCI function is on the bus and cannot be read."""
        self._recorder.record(
            self._node,
            reason="PciDeviceUnreadable",
            message=f"A PCI device is left out: {message}",
            warning=True,
        )

    def bus_unreadable(self, error: GpudeckError) -> None:
        """There is no PCI bus to be read; what is known of the cards stays as it is."""
        self._recorder.record(
            self._node,
            reason=error.reason,
            message=f"No cards can be looked for: {error.message}. Known cards are left as they "
            "are.",
            warning=True,
        )

    def several_vendors(self, vendors: list[str], chosen: str) -> None:
        """The node has cards of several vendors, and its label names one."""
        self._recorder.record(
            self._node,
            reason="SeveralVendors",
            message=f"The node has cards of {', '.join(vendors)}; its label {labels.VENDOR} names "
            f"{chosen}, which has the most, so only that vendor's adapter runs here.",
            warning=True,
        )

    def card_found(self, gpu: PhysicalGPU) -> None:
        """A card got its object."""
        self._about(gpu, "PhysicalGPUCreated", f"Found a card on node {self._node_name}.")

    def card_lost(self, gpu: PhysicalGPU, reason: str, message: str) -> None:
        """A card went, or is no longer wanted, or cannot be read any more."""
        self._about(gpu, reason, message, warning=True)

    def card_returned(self, gpu: PhysicalGPU) -> None:
        """A card that was lost is there again."""
        self._about(gpu, "CardReturned", "The card is on the PCI bus of its node again.")

    def _about(self, gpu: PhysicalGPU, reason: str, message: str, *, warning: bool = False) -> None:
        regarding = ObjectReference(
            api_version=PHYSICAL_GPU.api_version,
            kind=PHYSICAL_GPU.kind,
            name=gpu.metadata.name,
            uid=gpu.metadata.uid,
        )
        self._recorder.record(regarding, reason=reason, message=message, warning=warning)
