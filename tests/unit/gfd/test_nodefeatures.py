# SPDX-License-Identifier: Apache-2.0
"""The NodeFeature of a node: labels replaced whole, owned by what outlives a restart."""

from __future__ import annotations

import pytest
from tests.support import apiserver

from gpudeck import errors
from gpudeck.api import names, resources
from gpudeck.gfd import nodefeatures

NAME = "gpu/nvidia-features-for-node-0"


async def test_the_object_holds_the_labels_and_no_others_of_ours() -> None:
    async with apiserver.ApiServer() as server, server.client() as api:
        found = nodefeatures.Object(api, "node-0", namespace="gpu")
        await found.write({"nvidia.com/gpu.count": "4", "nvidia.com/gpu.memory": "81559"})
        await found.write({"nvidia.com/gpu.count": "3"})
        stored = server.objects(resources.NODE_FEATURE)[NAME]
    assert stored["metadata"]["namespace"] == "gpu"
    assert stored["metadata"]["labels"] == {
        "nfd.node.kubernetes.io/node-name": "node-0",
        "app.kubernetes.io/component": "gpu-feature-discovery",
    }
    assert stored["spec"]["labels"] == {"nvidia.com/gpu.count": "3"}
    assert stored["spec"]["features"] == {"flags": {}, "attributes": {}, "instances": {}}


async def test_a_long_name_of_a_node_still_fits_into_its_label() -> None:
    node = "n" * 80
    async with apiserver.ApiServer() as server, server.client() as api:
        await nodefeatures.Object(api, node, namespace="gpu").write({})
        stored = server.objects(resources.NODE_FEATURE)[f"gpu/nvidia-features-for-{node}"]
    label = stored["metadata"]["labels"]["nfd.node.kubernetes.io/node-name"]
    assert label == names.node_label(node)
    assert len(label) <= 63


async def test_its_owners_are_the_pod_and_what_made_the_pod() -> None:
    async with apiserver.ApiServer() as server, server.client() as api:
        daemon_set = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "gfd", "uid": "ds-uid"}
        metadata = {
            "name": "gfd-x",
            "namespace": "gpu",
            "uid": "pod-uid",
            "ownerReferences": [{**daemon_set, "controller": True}],
        }
        server.put(resources.POD, {"metadata": metadata})
        found = nodefeatures.Object(api, "node-0", namespace="gpu", pod="gfd-x")
        await found.write({})
        owners = server.objects(resources.NODE_FEATURE)[NAME]["metadata"]["ownerReferences"]
        own = server.objects(resources.POD)["gpu/gfd-x"]["metadata"]["uid"]
    assert owners == [
        daemon_set,
        {"apiVersion": "v1", "kind": "Pod", "name": "gfd-x", "uid": own},
    ]


async def test_a_pod_that_is_not_there_is_an_error() -> None:
    async with apiserver.ApiServer() as server, server.client() as api:
        found = nodefeatures.Object(api, "node-0", namespace="gpu", pod="gone")
        with pytest.raises(errors.NotFoundError):
            await found.write({})


async def test_labels_of_the_program_before_do_not_stay() -> None:
    async with apiserver.ApiServer() as server, server.client() as api:
        spec = {"features": {}, "labels": {"nvidia.com/gpu.product": "last-one-wins"}}
        metadata = {"name": "nvidia-features-for-node-0", "namespace": "gpu"}
        server.put(resources.NODE_FEATURE, {"metadata": metadata, "spec": spec})
        found = nodefeatures.Object(api, "node-0", namespace="gpu")
        await found.write({"nvidia.com/gpu.count": "4"})
        stored = server.objects(resources.NODE_FEATURE)[NAME]
    assert stored["spec"]["labels"] == {"nvidia.com/gpu.count": "4"}
