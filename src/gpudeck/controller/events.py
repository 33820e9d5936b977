# SPDX-License-Identifier: Apache-2.0
"""The Events of the process controller: one function each, on the object that they are about."""

from __future__ import annotations

from gpudeck.api import resources
from gpudeck.api.meta import ObjectMeta, ObjectReference
from gpudeck.api.v1alpha1.gpuclass import GPUClass
from gpudeck.api.v1alpha1.physicalgpu import Phase, PhysicalGPU
from gpudeck.controller.physicalgpu import phase
from gpudeck.kube import recording

_BAD = (Phase.LOST, Phase.FAULTY)


class Events:
    """Events about classes and cards."""

    def __init__(self, recorder: recording.Recorder) -> None:
        self._recorder = recorder

    def phase_changed(self, gpu: PhysicalGPU, old: Phase | None, new: Phase | None) -> None:
        """A card went bad, or a bad one is well again; other changes are no news."""
        about = recording.of(resources.PHYSICAL_GPU, gpu.metadata)
        if new in _BAD and new is not old:
            why = phase.reason(gpu, new) or "no reason was given"
            name = "CardLost" if new is Phase.LOST else "CardFaulty"
            self._recorder.record(about, reason=name, message=why, warning=True)
        elif old in _BAD and new not in _BAD:
            self._recorder.record(
                about, reason="CardRecovered", message=f"the card was {old} and is {new} now"
            )

    def device_class_written(self, gpu_class: GPUClass, *, created: bool) -> None:
        """The DeviceClass of a class was made or brought back to what it must be."""
        self._recorder.record(
            recording.of(resources.GPU_CLASS, gpu_class.metadata),
            reason="DeviceClassCreated" if created else "DeviceClassUpdated",
            message=f"wrote DeviceClass {gpu_class.metadata.name}",
        )

    def class_refused(self, gpu_class: GPUClass, reason: str, message: str) -> None:
        """A class cannot be used as it is."""
        about = recording.of(resources.GPU_CLASS, gpu_class.metadata)
        self._recorder.record(about, reason=reason, message=message, warning=True)

    def refused(self, about: ObjectReference, reason: str, message: str) -> None:
        """What an object asks for cannot be read; what was made for it before stays."""
        self._recorder.record(about, reason=reason, message=message, warning=True)

    def classes_left_out(self, count: int, total: int) -> None:
        """There is no room for `count` classes in what the API server is told of the webhooks."""
        self._recorder.record(
            recording.of(resources.VALIDATING_WEBHOOKS, ObjectMeta(name="gpudeck")),
            reason="ClassesLeftOut" if count else "ClassesRegistered",
            message=f"the newest {count} of {total} GPUClasses do not fit into the webhooks' match "
            "conditions: requests for them are judged by the scheduler alone, and those that "
            "need their pods rewritten are not ready; delete classes that nobody uses"
            if count
            else f"all {total} GPUClasses fit into the webhooks' match conditions",
            warning=count > 0,
        )
