# SPDX-License-Identifier: Apache-2.0
"""Create, read, list, patch and delete: what any API server does for the client."""

from __future__ import annotations

from typing import Any

import pytest

from gpudeck import errors
from gpudeck.api.core import ConfigMap, Node, Pod
from gpudeck.api.meta import Meta
from gpudeck.api.resources import CONFIG_MAP, NODE, POD, Resource
from gpudeck.kube import client, responses


def config_map(name: str, namespace: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace}, "data": data}


async def make(connection: client.Client, namespace: str, name: str, **data: str) -> ConfigMap:
    return await connection.create(CONFIG_MAP, config_map(name, namespace, **data), ConfigMap)


async def read(connection: client.Client, namespace: str, name: str) -> ConfigMap:
    return await connection.get(CONFIG_MAP, name, ConfigMap, namespace=namespace)


async def test_a_created_object_is_read_back(connection: client.Client, namespace: str) -> None:
    made = await make(connection, namespace, "one", colour="green")
    found = await read(connection, namespace, "one")
    assert found == made
    assert found.data == {"colour": "green"}
    assert found.metadata.uid
    assert found.metadata.resource_version
    assert found.metadata.creation_timestamp


async def test_a_second_object_of_the_name_is_refused(
    connection: client.Client, namespace: str
) -> None:
    await make(connection, namespace, "one")
    with pytest.raises(errors.AlreadyExistsError, match='"one" already exists'):
        await make(connection, namespace, "one")


async def test_a_generated_name_has_the_prefix(connection: client.Client, namespace: str) -> None:
    body = {"metadata": {"generateName": "some-", "namespace": namespace}}
    made = await connection.create(CONFIG_MAP, body, Meta)
    assert made.metadata.name.startswith("some-")
    assert len(made.metadata.name) == 10


async def test_a_name_that_is_none_is_refused_with_its_field(
    connection: client.Client, namespace: str
) -> None:
    with pytest.raises(errors.InvalidError, match=r"metadata\.name"):
        await make(connection, namespace, "Not_A_Name")


async def test_an_absent_object_is_not_found(connection: client.Client, namespace: str) -> None:
    with pytest.raises(errors.NotFoundError) as caught:
        await read(connection, namespace, "nobody")
    assert caught.value.reason == "NotFound"


async def test_an_unknown_kind_is_said_to_be_not_served(connection: client.Client) -> None:
    unknown = Resource("nobody.example", "v1", "Thing", "things")
    with pytest.raises(errors.NotFoundError) as caught:
        await connection.list(unknown, Meta)
    assert caught.value.reason == responses.NOT_SERVED


async def test_a_list_is_read_page_by_page_in_order(
    connection: client.Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"map-{number}" for number in range(7)]
    for name in names:
        await make(connection, namespace, name)
    monkeypatch.setattr(client, "PAGE", 3)
    listed = await connection.list(
        CONFIG_MAP, Meta, namespace=namespace, field_selector="metadata.name!=kube-root-ca.crt"
    )
    assert [each.metadata.name for each in listed.items] == names
    assert int(listed.resource_version) > 0


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("tier=gold", {"a"}),
        ("tier!=gold", {"b", "c"}),
        ("tier", {"a", "b"}),
        ("!tier", {"c"}),
        ("tier in (gold, silver),tier!=gold", {"b"}),
        ("tier notin (gold)", {"b", "c"}),
    ],
)
async def test_label_selectors_choose(
    connection: client.Client, namespace: str, selector: str, chosen: set[str]
) -> None:
    for name, labels in {"a": {"tier": "gold"}, "b": {"tier": "silver"}, "c": {}}.items():
        meta = {"name": name, "namespace": namespace, "labels": {**labels, "mine": "yes"}}
        await connection.create(CONFIG_MAP, {"metadata": meta}, Meta)
    selector = f"mine=yes,{selector}"
    listed = await connection.list(CONFIG_MAP, Meta, namespace=namespace, label_selector=selector)
    assert {each.metadata.name for each in listed.items} == chosen


async def test_pods_are_chosen_by_their_node(connection: client.Client, namespace: str) -> None:
    for name, node in (("here", "node-a"), ("there", "node-b")):
        spec = {"nodeName": node, "containers": [{"name": "main", "image": "none"}]}
        meta = {"name": name, "namespace": namespace}
        await connection.create(POD, {"metadata": meta, "spec": spec}, Pod)
    listed = await connection.list(
        POD, Pod, namespace=namespace, field_selector="spec.nodeName=node-a"
    )
    assert [each.metadata.name for each in listed.items] == ["here"]


async def test_a_merge_patch_sets_and_removes_fields(
    connection: client.Client, namespace: str
) -> None:
    await make(connection, namespace, "one", kept="1", removed="2")
    patch = {"data": {"removed": None, "added": "3"}}
    after = await connection.merge_patch(
        CONFIG_MAP, "one", patch, ConfigMap, namespace=namespace, manager="tester"
    )
    assert after.data == {"kept": "1", "added": "3"}


async def test_a_merge_patch_of_an_older_version_is_a_conflict(
    connection: client.Client, namespace: str
) -> None:
    made = await make(connection, namespace, "one", value="1")
    await connection.merge_patch(
        CONFIG_MAP, "one", {"data": {"value": "2"}}, Meta, namespace=namespace
    )
    stale = {"metadata": {"resourceVersion": made.metadata.resource_version}}
    with pytest.raises(errors.ConflictError):
        await connection.merge_patch(
            CONFIG_MAP, "one", {**stale, "data": {"value": "3"}}, Meta, namespace=namespace
        )
    assert (await read(connection, namespace, "one")).data == {"value": "2"}


async def test_a_patch_of_the_status_leaves_the_rest_alone_and_the_reverse(
    connection: client.Client, unique: str
) -> None:
    await connection.create(NODE, {"metadata": {"name": unique, "labels": {"a": "1"}}}, Node)
    await connection.merge_patch(
        NODE,
        unique,
        {"spec": {"unschedulable": True}, "status": {"allocatable": {"cpu": "2"}}},
        Node,
        subresource="status",
    )
    after = await connection.merge_patch(
        NODE,
        unique,
        {"metadata": {"labels": {"b": "2"}}, "status": {"allocatable": {"cpu": "4"}}},
        Node,
    )
    assert after.spec is None or after.spec.unschedulable is None
    assert after.status is not None
    assert after.status.allocatable == {"cpu": "2"}
    assert after.metadata.labels == {"a": "1", "b": "2"}


async def test_deletion_minds_the_identity_and_the_version(
    connection: client.Client, namespace: str
) -> None:
    made = await make(connection, namespace, "one")
    other = "00000000-0000-0000-0000-000000000000"
    with pytest.raises(errors.ConflictError):
        await connection.delete(CONFIG_MAP, "one", namespace=namespace, uid=other)
    with pytest.raises(errors.ConflictError):
        await connection.delete(CONFIG_MAP, "one", namespace=namespace, resource_version="1")
    await connection.delete(CONFIG_MAP, "one", namespace=namespace, uid=made.metadata.uid)
    with pytest.raises(errors.NotFoundError):
        await connection.delete(CONFIG_MAP, "one", namespace=namespace)


async def test_a_finalizer_holds_a_deleted_object_until_it_is_removed(
    connection: client.Client, namespace: str
) -> None:
    body = config_map("one", namespace)
    body["metadata"]["finalizers"] = ["gpudeck.example/hold"]
    await connection.create(CONFIG_MAP, body, Meta)
    await connection.delete(CONFIG_MAP, "one", namespace=namespace)
    assert (await read(connection, namespace, "one")).metadata.deletion_timestamp
    await connection.merge_patch(
        CONFIG_MAP, "one", {"metadata": {"finalizers": None}}, Meta, namespace=namespace
    )
    with pytest.raises(errors.NotFoundError):
        await read(connection, namespace, "one")


async def test_the_version_is_read_raw(connection: client.Client) -> None:
    assert b'"gitVersion"' in await connection.raw("GET", "/version")
