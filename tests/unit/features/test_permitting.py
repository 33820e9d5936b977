# SPDX-License-Identifier: Apache-2.0
"""What features may give a Node: namespaces allowed and denied, names and values."""

from __future__ import annotations

import pytest

from gpudeck.api import labels
from gpudeck.api.core import Taint
from gpudeck.api.nodegroups import NODE_GROUP_NAME
from gpudeck.controller.nodegroups import groups
from gpudeck.errors import InvalidError
from gpudeck.features import permitting
from gpudeck.features.known import Known
from gpudeck.features.permitting import Policy
from gpudeck.pluginconfig import selecting


@pytest.mark.parametrize(
    ("name", "policy", "expected"),
    [
        ("feature.node.kubernetes.io/x", Policy(), True),
        ("gpu.feature.node.kubernetes.io/x", Policy(), True),
        ("profile.node.kubernetes.io/x", Policy(), True),
        ("nvidia.com/gpu.count", Policy(), True),
        ("kubernetes.io/x", Policy(), False),
        ("node-role.kubernetes.io/control-plane", Policy(), False),
        ("kubelet.kubernetes.io/x", Policy(extra_namespaces=("kubelet.kubernetes.io",)), True),
        ("example.com/x", Policy(denied_namespaces=("example.com",)), False),
        ("a.example.com/x", Policy(denied_namespaces=("*.example.com",)), False),
        ("example.com/x", Policy(denied_namespaces=("*.example.com",)), True),
        ("nvidia.com/x", Policy(denied_namespaces=("*",)), False),
        (
            "nvidia.com/x",
            Policy(denied_namespaces=("*",), extra_namespaces=("nvidia.com",)),
            True,
        ),
        ("feature.node.kubernetes.io/x", Policy(denied_namespaces=("*",)), True),
        ("example.com/gpu.count", Policy(whitelist="^gpu"), True),
        ("example.com/cpu.count", Policy(whitelist="^gpu"), False),
        ("gpu.deckhouse.io/present", Policy(), True),
        ("gpu.deckhouse.io/vendor", Policy(), False),
        ("unprefixed", Policy(), False),
        ("example.com/-x", Policy(), False),
        ("Example.com/x", Policy(), False),
        ("example.com/" + "x" * 64, Policy(), False),
    ],
)
def test_a_label_is_permitted_by_its_name(name: str, policy: Policy, expected: bool) -> None:
    if expected:
        permitting.label(name, "true", policy)
        return
    with pytest.raises(InvalidError, match="allowed:"):
        permitting.label(name, "true", policy)


@pytest.mark.parametrize("value", ["x" * 64, "a b", "-a", "a/b", "{}"])
def test_a_value_that_no_label_can_have_is_refused_by_name(value: str) -> None:
    with pytest.raises(InvalidError, match=r"label example\.com/x"):
        permitting.label("example.com/x", value, Policy())


def test_annotations_and_resources_keep_out_of_what_is_kubernetes_own() -> None:
    permitting.annotation("example.com/x", "any text")
    permitting.annotation("feature.node.kubernetes.io/x", "any text")
    permitting.extended_resource("example.com/cards", "4")
    for name in ("kubernetes.io/x", "node.alpha.kubernetes.io/ttl", "x"):
        with pytest.raises(InvalidError):
            permitting.annotation(name, "0")
        with pytest.raises(InvalidError):
            permitting.extended_resource(name, "1")
    with pytest.raises(InvalidError, match="1024 bytes"):
        permitting.annotation("example.com/x", "x" * 1025)
    with pytest.raises(InvalidError, match="quantity"):
        permitting.extended_resource("example.com/cards", "four")


@pytest.mark.parametrize("value", ["0.5", "1500m", "-1", "1e-3", "9223372036854775808", "10E"])
def test_an_extended_resource_is_counted_in_whole_numbers(value: str) -> None:
    """The API server refuses others, and the rest of the node's status with them."""
    with pytest.raises(InvalidError, match=r"extended resource example\.com/cards"):
        permitting.extended_resource("example.com/cards", value)


@pytest.mark.parametrize("value", ["0", "+4", "4.0", "1k", "2Ki", "1e3", "2000m"])
def test_an_extended_resource_may_be_spelled_as_any_quantity(value: str) -> None:
    permitting.extended_resource("example.com/cards", value)


def test_what_gpudeck_keeps_on_nodes_is_not_for_features() -> None:
    for name in ("active-mode", "node-group", "mode-change", "drain", "drained", "mig-change"):
        full = f"gpu.deckhouse.io/{name}"
        with pytest.raises(InvalidError, match="gpudeck itself keeps"):
            permitting.label(full, "dra", Policy())
        with pytest.raises(InvalidError, match="gpudeck itself keeps"):
            permitting.annotation(full, "dra")
        with pytest.raises(InvalidError, match="gpudeck itself keeps"):
            permitting.taint(Taint(key=full, value="dra", effect="NoSchedule"))
    permitting.label("gpu.deckhouse.io/mode", "dra", Policy())


@pytest.mark.parametrize(
    "name",
    [
        labels.MODE,
        labels.MIG_MODE,
        labels.SHARE_MEMORY,
        labels.VENDOR,
        labels.ACTIVE_MODE,
        labels.NODE_GROUP,
        labels.MIG_CONFIG,
        labels.MIG_STATE,
        labels.PLUGIN_CONFIG,
        f"{labels.DEPLOY}device-plugin",
        NODE_GROUP_NAME,
        selecting.GROUP_LABEL,
        groups.GPU_LABEL,
    ],
)
def test_an_order_comes_from_no_other_namespace(name: str) -> None:
    with pytest.raises(InvalidError) as caught:
        permitting.order(name, "x", "team/mine", "gpudeck-system")
    assert f"label {name} of NodeFeature team/mine" in caught.value.message
    assert "only in a NodeFeature of gpudeck-system" in caught.value.message


@pytest.mark.parametrize(
    "name", ["nvidia.com/gpu.product", "nvidia.com/mig.capable", "nvidia.com/mig.strategy",
             "feature.node.kubernetes.io/pci-10de.present", "example.com/x"]
)  # fmt: skip
def test_a_fact_may_come_from_any_namespace(name: str) -> None:
    permitting.order(name, "x", "team/mine", "gpudeck-system")


def test_a_taint_needs_an_effect_and_a_name_of_its_own() -> None:
    permitting.taint(Taint(key="example.com/gpu", value="true", effect="NoSchedule"))
    for bad in (
        Taint(key="node.kubernetes.io/unreachable", effect="NoExecute"),
        Taint(key="example.com/gpu", effect="Never"),
        Taint(key="gpu", effect="NoSchedule"),
        Taint(key="example.com/gpu", value="not a value", effect="NoSchedule"),
        Taint(key="example.com/gpu", value="x" * 64, effect="NoSchedule"),
    ):
        with pytest.raises(InvalidError):
            permitting.taint(bad)


def test_a_value_can_be_taken_from_what_was_found() -> None:
    known = Known(attributes={"local.feature": {"my.cards": "4"}})
    assert permitting.resolved("x", "@local.feature.my.cards", known) == "4"
    assert permitting.resolved("x", "plain", known) == "plain"
    with pytest.raises(InvalidError, match=r"@local\.feature\.other"):
        permitting.resolved("x", "@local.feature.other", known)
