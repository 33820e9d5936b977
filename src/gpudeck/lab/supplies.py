# SPDX-License-Identifier: Apache-2.0
"""What a lab is made of: programs, the simulated driver, images; built when the cache lacks it.

The one place that joins the three builders, so that `cluster` and `install` are handed
finished things and the command line shows one progress. It builds and never starts.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from gpudeck.lab import images, places, simulation, toolchain
from gpudeck.lab.progress import Progress

STEPS = 3


@dataclasses.dataclass(frozen=True)
class Supplies:
    """Folders of finished programs and C artefacts, and the images."""

    binaries: Path
    artifacts: Path
    images: images.Images


def gather(progress: Progress) -> Supplies:
    """Build what is missing; a few hundred milliseconds when nothing is."""
    with progress.step("Programs of Kubernetes"):
        binaries = toolchain.ensure(progress.detail)
    with progress.step("The simulated driver"):
        artifacts = simulation.build_native(places.cache(), progress=progress.detail)
    with progress.step("Images"):
        built = images.ensure(progress.detail, programs=binaries, native=artifacts)
    return Supplies(binaries, artifacts, built)
