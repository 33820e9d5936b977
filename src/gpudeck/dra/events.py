# SPDX-License-Identifier: Apache-2.0
"""The Events of the process dra-plugin: one function each, all on the Node.

(The kubelet itself reports a failed Prepare on the pod, with our sentence.)
"""

from __future__ import annotations

from collections.abc import Sequence

from gpudeck.kube import recording


class NodeEvents:
    """Events about one node."""

    def __init__(self, recorder: recording.Recorder, node_name: str) -> None:
        self._recorder = recorder
        self._node = recording.of_node(node_name)

    def checkpoint_replaced(self, kept_as: str, why: str, claims: int) -> None:
        """The checkpoint could not be read and was rebuilt; `kept_as` is "" if there was none."""
        kept = f" It was kept as {kept_as}." if kept_as else ""
        self._warn(
            "CheckpointReplaced",
            f"The checkpoint of the DRA plugin could not be used ({why}).{kept} It was rebuilt "
            f"from the CDI files of this node: {claims} claims were found.",
        )

    def entry_quarantined(self, claim_uid: str, why: str) -> None:
        """One entry of the checkpoint is not readable; the rest goes on."""
        self._warn(
            "CheckpointEntryQuarantined",
            f"The checkpoint's entry of claim {claim_uid} could not be read ({why}). "
            "It is kept until the claim is prepared again or unprepared.",
        )

    def fields_dropped(self, fields: Sequence[str]) -> None:
        """The API server does not keep all that was published."""
        self._warn(
            "ResourceSliceFieldsDropped",
            "The API server did not keep these fields of this node's ResourceSlices: "
            f"{', '.join(fields[:5])}. Without taints unhealthy cards are withheld; without "
            "counters or allocations in shares only whole cards are offered.",
        )

    def parts_rejected(self, why: str) -> None:
        """The API server takes the cards whole, and not in parts."""
        self._warn(
            "ResourceSlicePartsRejected",
            f"Only whole cards of this node are offered; the API server rejects their parts: {why}",
        )

    def slices_rejected(self, why: str) -> None:
        """The API server does not take this node's ResourceSlices."""
        self._warn(
            "ResourceSlicesRejected", f"The API server rejects this node's ResourceSlices: {why}"
        )

    def label_refused(self, why: str, instead: str) -> None:
        """A label of the Node cannot be read; `instead` is what counts."""
        self._warn("InvalidNodeLabel", f"{why}. Until then {instead} counts.")

    def choice_invalid(self, choice: str, allowed: str) -> None:
        """A label chooses a partition mode that there is not."""
        self._warn(
            "MigModeInvalid",
            f"The {choice} is not valid; allowed: {allowed}. Its cards are left as they are.",
        )

    def files_missing(self, why: str) -> None:
        """Files of prepared claims are gone and cannot be made again."""
        self._warn(
            "ClaimFilesMissing",
            f"Containers of prepared claims that start again lack files of theirs: {why}",
        )

    def hook_missing(self, why: str) -> None:
        """The programs of the CDI hooks cannot be copied to the node."""
        self._warn("HookMissing", f"Containers get their cards without the links of hooks: {why}")

    def registration_failed(self, why: str) -> None:
        """The kubelet refused the plugin."""
        self._warn("PluginRegistrationFailed", f"The kubelet refused the DRA plugin: {why}")

    def _warn(self, reason: str, message: str) -> None:
        self._recorder.record(self._node, reason=reason, message=message, warning=True)
