# SPDX-License-Identifier: Apache-2.0
"""What a node has is a label of it: cards that come and go, rules of users, nodes that leave."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.support.lab import NAMESPACE, ROOT, Lab

from gpudeck.lab import hardware, state

NODE, NEW = "node-1", "node-2"
PREFIX = "feature.node.kubernetes.io/"
CARDS, OTHER_MAKER = f"{PREFIX}pci-10de.present", f"{PREFIX}pci-1d0f.present"
ADDRESS = "0000:f0:00.0"
ATTRIBUTES = {"class": "0x120000", "vendor": "0x1d0f", "device": "0x7064", "numa_node": "0"}
EXAMPLE = ROOT / "examples/10-node-features/rule.yaml"
COUNT = "example.com/nvidia-cards"


def labels(lab: Lab, node: str = NODE) -> dict[str, str]:
    found = lab.get("node", node)
    return dict(found["metadata"]["labels"]) if found else {}


def features(lab: Lab) -> set[str]:
    return {each["metadata"]["name"] for each in lab.list("nodefeatures", "-n", NAMESPACE)}


def host_tree(lab: Lab) -> Path:
    """The files of the node's host, as this machine reaches them."""
    init = state.running(state.folder(lab.name)).node(NODE).init
    assert init is not None
    return hardware.tree(init)


@contextlib.contextmanager
def plugged_in(tree: Path) -> Iterator[None]:
    """A card of another maker on the node's PCI bus, inside the block."""
    folder, link = tree / "sys/devices/pci0000:f0" / ADDRESS, tree / "sys/bus/pci/devices" / ADDRESS
    folder.mkdir(parents=True)
    try:
        for name, value in ATTRIBUTES.items():
            (folder / name).write_text(value + "\n")
        link.symlink_to(f"../../../devices/pci0000:f0/{ADDRESS}")
        yield
    finally:
        link.unlink(missing_ok=True)
        shutil.rmtree(folder.parent)


def test_every_node_says_what_it_has(lab: Lab) -> None:
    wanted = {
        "cpu-model.vendor_id": "AMD",
        "kernel-config.NO_HZ": "true",
        "kernel-version.major": "5",
        "pci-10de.present": "true",
        "storage-nonrotationaldisk": "true",
        "system-os_release.ID": "ubuntu",
    }
    expected = {f"{PREFIX}{name}": value for name, value in wanted.items()}
    lab.eventually("labels of the node's parts", lambda: expected.items() <= labels(lab).items())
    assert {"node-0", NODE, "control-plane"} <= features(lab)
    assert CARDS not in labels(lab, "control-plane")


def test_gpu_labels_come_by_a_node_feature_of_their_own(lab: Lab) -> None:
    product = "NVIDIA-A100-SXM4-40GB"
    wanted = {"nvidia.com/gpu.count": "4", "nvidia.com/gpu.product": product}
    lab.eventually("labels of the cards", lambda: wanted.items() <= labels(lab).items())
    assert f"nvidia-features-for-{NODE}" in features(lab)


def test_a_card_that_appears_is_a_label_until_it_goes(lab: Lab) -> None:
    assert OTHER_MAKER not in labels(lab)
    with plugged_in(host_tree(lab)):
        lab.eventually("the label comes", lambda: labels(lab).get(OTHER_MAKER) == "true")
    lab.eventually("the label goes", lambda: OTHER_MAKER not in labels(lab))


def test_a_rule_of_a_user_counts_the_cards_and_takes_its_labels_along(lab: Lab) -> None:
    lab.kubectl("apply", "-f", str(EXAMPLE))
    try:
        lab.eventually("both nodes are counted", lambda: labels(lab).get(COUNT) == "4")
        assert labels(lab, "node-0")[COUNT] == "8"
        assert labels(lab)["example.com/gpu-server"] == "true"
        assert labels(lab)["example.com/kernel"] == labels(lab)[f"{PREFIX}kernel-version.full"]
        assert labels(lab)["example.com/device-20b0"] == "present"
    finally:
        lab.kubectl("delete", "-f", str(EXAMPLE), "--ignore-not-found")
    lab.eventually(
        "the labels go with the rule",
        lambda: not [name for name in labels(lab) if name.startswith("example.com/")],
    )


def test_a_node_that_leaves_takes_its_features_along(lab: Lab) -> None:
    lab.lab("node", "add", NEW, "--machine", "a30-x2")
    try:
        lab.eventually("the new node has its label", lambda: labels(lab, NEW).get(CARDS))
        assert NEW in features(lab)
        lab.apply(
            {
                "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
                "kind": "NodeFeature",
                "metadata": {
                    "name": f"of-another-program-{NEW}",
                    "namespace": NAMESPACE,
                    "labels": {"nfd.node.kubernetes.io/node-name": NEW},
                },
                "spec": {"labels": {"example.com/boards": "2"}},
            }
        )
        lab.eventually(
            "labels of others", lambda: labels(lab, NEW).get("example.com/boards") == "2"
        )
    finally:
        lab.lab("node", "remove", NEW)
    lab.eventually(
        "no NodeFeature of the node is left",
        lambda: not [name for name in features(lab) if NEW in name],
    )
