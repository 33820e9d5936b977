# SPDX-License-Identifier: Apache-2.0
"""CDI specs of claims."""

from __future__ import annotations

import json

from gpudeck.cdi import rendering, spec

NODE = spec.DeviceNode(
    path="/dev/nvidia0",
    host_path="/mnt/host/dev/nvidia0",
    type="c",
    major=195,
    minor=0,
    permissions="rw",
)
EDITS = spec.ContainerEdits(device_nodes=(NODE,))


def test_a_claim_is_one_spec_with_a_device_for_each_card() -> None:
    shared = spec.ContainerEdits(
        env=("A=b",),
        mounts=(spec.Mount(host_path="/h", container_path="/c", options=("ro",)),),
        hooks=(spec.Hook(hook_name="createContainer", path="/hook", args=("hook", "x")),),
    )
    assert json.loads(rendering.render("u1", {"gpu-a": EDITS}, shared)) == {
        "cdiVersion": "0.5.0",
        "kind": "k8s.gpu.deckhouse.io/claim",
        "devices": [
            {
                "name": "u1-gpu-a",
                "containerEdits": {
                    "deviceNodes": [
                        {
                            "path": "/dev/nvidia0",
                            "hostPath": "/mnt/host/dev/nvidia0",
                            "type": "c",
                            "major": 195,
                            "minor": 0,
                            "permissions": "rw",
                        }
                    ]
                },
            }
        ],
        "containerEdits": {
            "env": ["A=b"],
            "mounts": [{"hostPath": "/h", "containerPath": "/c", "options": ["ro"]}],
            "hooks": [{"hookName": "createContainer", "path": "/hook", "args": ["hook", "x"]}],
        },
    }


def test_extra_groups_ask_for_the_version_that_knows_them() -> None:
    edits = spec.ContainerEdits(device_nodes=(NODE,), additional_gids=(44,))
    rendered = json.loads(rendering.render("u1", {"gpu-a": edits}))
    assert rendered["cdiVersion"] == "0.7.0"
    assert rendered["devices"][0]["containerEdits"]["additionalGids"] == [44]


def test_equal_input_gives_equal_bytes() -> None:
    assert rendering.render("u", {"a": EDITS}) == rendering.render("u", {"a": EDITS})


def test_a_spec_tells_its_devices_again() -> None:
    rendered = rendering.render("u1", {"gpu-a": EDITS, "gpu-b": EDITS})
    assert rendering.parse("u1", rendered) == ["gpu-a", "gpu-b"]


def test_what_is_no_spec_of_the_claim_tells_nothing() -> None:
    rendered = rendering.render("u1", {"gpu-a": EDITS})
    for content in (b"", b"{}", b"\xff", rendered[:-3], b"[]", b"null"):
        assert rendering.parse("u1", content) is None
    assert rendering.parse("u2", rendered) is None


def test_file_names_and_claims_are_each_others_inverse() -> None:
    assert rendering.claim_of(rendering.file_name("u1")) == "u1"
    assert rendering.claim_of("nvidia.com-gpu.json") is None
