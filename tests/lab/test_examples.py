# SPDX-License-Identifier: Apache-2.0
"""Each folder of examples/ with a pod does what its pods announce by `example.gpudeck/cards`.

Those of device plugin mode have none: the folder ampere has a lab in that mode.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.support.lab import ROOT, Lab

FOLDERS = sorted(path.parent for path in (ROOT / "examples").glob("*/pod.yaml"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_an_example_does_what_it_says(lab: Lab, folder: Path) -> None:
    pods = [
        each
        for file in sorted(folder.glob("*.yaml"))
        for each in yaml.safe_load_all(file.read_text())
        if each["kind"] == "Pod"
    ]
    assert pods
    lab.kubectl("apply", "-f", str(folder))
    try:
        lab.running(*(each["metadata"]["name"] for each in pods))
        for each in pods:
            name = each["metadata"]["name"]
            wanted = int(each["metadata"]["annotations"]["example.gpudeck/cards"])
            for container in each["spec"]["containers"]:
                assert len(set(lab.cards_inside(name, container["name"]))) == wanted
    finally:
        # Classes stay: other tests ask for them too.
        used = str(folder / "pod.yaml")
        lab.kubectl("delete", "-f", used, "--ignore-not-found", "--wait=true")
