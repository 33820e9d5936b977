# SPDX-License-Identifier: Apache-2.0
"""Server-side apply: who owns which field, and what happens when owners disagree."""

from __future__ import annotations

from typing import Any

import pytest

from gpudeck import errors
from gpudeck.api.core import ConfigMap, Node, OwnedNode
from gpudeck.api.meta import Meta
from gpudeck.api.resource import ResourceClaim, ResourceSlice
from gpudeck.api.resources import CONFIG_MAP, NODE, RESOURCE_CLAIM, RESOURCE_SLICE
from gpudeck.kube import client


async def apply(
    connection: client.Client, namespace: str, manager: str, *, force: bool = True, **data: str
) -> ConfigMap:
    body = {"metadata": {"name": "one", "namespace": namespace}, "data": data}
    return await connection.apply(CONFIG_MAP, body, ConfigMap, manager=manager, force=force)


async def apply_conditions(
    connection: client.Client, node: str, manager: str, **statuses: str
) -> dict[str, str]:
    """Apply conditions of a node by type and return all that it has afterwards."""
    conditions = [{"type": type_, "status": status} for type_, status in statuses.items()]
    body: dict[str, Any] = {"metadata": {"name": node}, "status": {"conditions": conditions}}
    after = await connection.apply(NODE, body, Node, manager=manager, subresource="status")
    found = (after.status.conditions if after.status else None) or []
    return {each.type: each.status for each in found}


async def test_apply_creates_what_is_absent(connection: client.Client, namespace: str) -> None:
    assert (await apply(connection, namespace, "first", a="1")).data == {"a": "1"}


async def test_two_managers_own_their_fields_side_by_side(
    connection: client.Client, namespace: str
) -> None:
    await apply(connection, namespace, "first", a="1")
    await apply(connection, namespace, "second", b="2")
    after = await apply(connection, namespace, "first", a="3")
    assert after.data == {"a": "3", "b": "2"}


async def test_a_field_left_out_by_its_only_owner_goes(
    connection: client.Client, namespace: str
) -> None:
    await apply(connection, namespace, "first", a="1", b="2")
    assert (await apply(connection, namespace, "first", a="1")).data == {"a": "1"}


async def test_a_field_with_another_owner_stays(connection: client.Client, namespace: str) -> None:
    await apply(connection, namespace, "first", a="1", b="2")
    await apply(connection, namespace, "second", b="2")
    assert (await apply(connection, namespace, "first", a="1")).data == {"a": "1", "b": "2"}


async def test_it_is_known_who_cordoned_a_node(connection: client.Client, unique: str) -> None:
    async def cordon(manager: str, *, is_so: bool | None) -> frozenset[str]:
        patch = {"spec": {"unschedulable": is_so}}
        await connection.merge_patch(NODE, unique, patch, Meta, manager=manager)
        found = await connection.get(NODE, unique, OwnedNode)
        (listed,) = [
            each
            for each in (await connection.list(NODE, OwnedNode)).items
            if each.metadata.name == unique
        ]
        assert listed.cordoned_by() == found.cordoned_by()
        return found.cordoned_by()

    # The server begins to keep owners once there is something to own.
    await connection.create(NODE, {"metadata": {"name": unique, "labels": {"a": "b"}}}, Meta)
    assert await cordon("first", is_so=None) == frozenset()
    assert await cordon("first", is_so=True) == {"first"}
    assert await cordon("second", is_so=True) == {"first"}
    assert await cordon("second", is_so=None) == frozenset()
    assert await cordon("second", is_so=True) == {"second"}
    assert await cordon("first", is_so=False) == frozenset()


async def test_without_force_anothers_field_is_a_conflict(
    connection: client.Client, namespace: str
) -> None:
    await apply(connection, namespace, "first", a="1")
    with pytest.raises(errors.ConflictError, match="first"):
        await apply(connection, namespace, "second", force=False, a="2")
    assert (await apply(connection, namespace, "second", force=False, b="2")).data == {
        "a": "1",
        "b": "2",
    }


async def test_force_takes_a_field_from_its_owner(
    connection: client.Client, namespace: str
) -> None:
    await apply(connection, namespace, "first", a="1", b="1")
    await apply(connection, namespace, "second", a="2")
    assert (await apply(connection, namespace, "second")).data == {"b": "1"}


async def test_applying_what_is_there_already_changes_nothing(
    connection: client.Client, namespace: str
) -> None:
    first = await apply(connection, namespace, "first", a="1")
    again = await apply(connection, namespace, "first", a="1")
    assert again.metadata.resource_version == first.metadata.resource_version


async def test_a_rehearsal_tells_what_an_apply_would_leave_and_changes_nothing(
    connection: client.Client, namespace: str
) -> None:
    body = {"metadata": {"name": "one", "namespace": namespace}, "data": {"b": "2"}}
    made = await connection.rehearse(CONFIG_MAP, body, ConfigMap, manager="second")
    assert made.data == {"b": "2"}
    with pytest.raises(errors.NotFoundError):
        await connection.get(CONFIG_MAP, "one", ConfigMap, namespace=namespace)
    first = await apply(connection, namespace, "first", a="1")
    both = await connection.rehearse(CONFIG_MAP, body, ConfigMap, manager="second")
    assert both.data == {"a": "1", "b": "2"}
    found = await connection.get(CONFIG_MAP, "one", ConfigMap, namespace=namespace)
    assert (found.data, found.metadata.resource_version) == (
        {"a": "1"},
        first.metadata.resource_version,
    )
    # What the second never owned does not go with it.
    assert (await apply(connection, namespace, "second")).data == {"a": "1"}


async def test_conditions_of_two_managers_are_merged_by_type(
    connection: client.Client, unique: str
) -> None:
    await connection.create(NODE, {"metadata": {"name": unique}}, Meta)
    await apply_conditions(connection, unique, "first", One="True", Two="True")
    both = await apply_conditions(connection, unique, "second", Three="False")
    assert both == {"One": "True", "Two": "True", "Three": "False"}
    after = await apply_conditions(connection, unique, "first", One="Unknown")
    assert after == {"One": "Unknown", "Three": "False"}


async def test_the_status_of_an_absent_object_cannot_be_applied(
    connection: client.Client, unique: str
) -> None:
    with pytest.raises(errors.NotFoundError):
        await apply_conditions(connection, unique, "first", One="True")


async def test_a_version_in_the_body_is_a_precondition(
    connection: client.Client, namespace: str
) -> None:
    first = await apply(connection, namespace, "first", a="1")
    await apply(connection, namespace, "first", a="2")
    meta = {
        "name": "one",
        "namespace": namespace,
        "resourceVersion": first.metadata.resource_version,
    }
    with pytest.raises(errors.ConflictError):
        await connection.apply(
            CONFIG_MAP, {"metadata": meta, "data": {"a": "3"}}, Meta, manager="first"
        )


async def test_another_identity_in_the_body_is_invalid(
    connection: client.Client, namespace: str
) -> None:
    await apply(connection, namespace, "first", a="1")
    meta = {
        "name": "one",
        "namespace": namespace,
        "uid": "00000000-0000-0000-0000-000000000000",
    }
    with pytest.raises(errors.InvalidError):
        await connection.apply(
            CONFIG_MAP, {"metadata": meta, "data": {"a": "3"}}, Meta, manager="first"
        )


async def test_devices_of_a_resource_slice_are_replaced_as_a_whole(
    connection: client.Client, unique: str
) -> None:
    def body(*devices: str) -> dict[str, Any]:
        pool = {"name": "node", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "gpudeck.example", "nodeName": "node", "pool": pool}
        found = [{"name": name} for name in devices]
        return {"metadata": {"name": unique}, "spec": {**spec, "devices": found}}

    await connection.apply(RESOURCE_SLICE, body("a", "b"), Meta, manager="first")
    after = await connection.apply(RESOURCE_SLICE, body("b", "c"), ResourceSlice, manager="first")
    assert [each.name for each in after.spec.devices or ()] == ["b", "c"]
    assert after.metadata.generation == 2


async def test_an_owner_reference_is_kept_by_other_managers(
    connection: client.Client, namespace: str
) -> None:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "node", "uid": "1-2-3"}
    meta: dict[str, Any] = {"name": "one", "namespace": namespace}
    owned = {"metadata": {**meta, "ownerReferences": [owner]}}
    await connection.apply(CONFIG_MAP, owned, Meta, manager="first")
    other = {**meta, "labels": {"b": "2"}}
    after = await connection.apply(CONFIG_MAP, {"metadata": other}, Meta, manager="second")
    assert [each.uid for each in after.metadata.owner_references or ()] == ["1-2-3"]
    gone = await connection.apply(CONFIG_MAP, {"metadata": meta}, Meta, manager="first")
    assert not gone.metadata.owner_references


async def test_the_devices_of_a_claims_status_are_merged_by_driver_pool_and_device(
    connection: client.Client, namespace: str
) -> None:
    meta = {"name": "claim", "namespace": namespace}
    exactly = {"deviceClassName": "any"}
    spec = {"devices": {"requests": [{"name": "card", "exactly": exactly}]}}
    await connection.create(RESOURCE_CLAIM, {"metadata": meta, "spec": spec}, Meta)
    results = [
        {"request": "card", "driver": driver, "pool": "node", "device": "card-0"}
        for driver in ("one.example", "two.example")
    ]
    allocation = {"allocation": {"devices": {"results": results}}}
    await connection.merge_patch(
        RESOURCE_CLAIM, "claim", {"status": allocation}, Meta,
        namespace=namespace, subresource="status",
    )  # fmt: skip

    async def report(driver: str, ready: str) -> ResourceClaim:
        condition = {
            "type": "Ready", "status": ready, "reason": "Prepared", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }  # fmt: skip
        device = {"driver": driver, "pool": "node", "device": "card-0", "conditions": [condition]}
        return await connection.apply(
            RESOURCE_CLAIM, {"metadata": meta, "status": {"devices": [device]}}, ResourceClaim,
            manager=driver, subresource="status",
        )  # fmt: skip

    await report("one.example", "True")
    await report("two.example", "True")
    after = await report("one.example", "False")
    assert after.status is not None
    found = {
        each.driver: [condition.status for condition in each.conditions or ()]
        for each in after.status.devices or ()
    }
    assert found == {"one.example": ["False"], "two.example": ["True"]}
