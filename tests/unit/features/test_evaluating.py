# SPDX-License-Identifier: Apache-2.0
"""Rules as GPU projects publish them, and what they give a node."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from gpudeck.api.nodefeatures import GroupRule, NodeFeatureRule, Rule
from gpudeck.features.known import Known
from gpudeck.features.rules import evaluating

GPUS = [
    {"class": "0302", "vendor": "10de", "device": "20b0", "subsystem_vendor": "10de"},
    {"class": "0302", "vendor": "10de", "device": "20b0", "subsystem_vendor": "10de"},
    {"class": "0200", "vendor": "15b3", "device": "101b"},
    {"class": "0380", "vendor": "8086", "device": "56c0"},
]


def known() -> Known:
    return Known(
        flags={"kernel.loadedmodule": {"nvidia", "nvidia_fs", "i915", "drm"}},
        attributes={
            "kernel.version": {"full": "6.8.0-60-generic", "major": "6", "minor": "8"},
            "system.osrelease": {"ID": "ubuntu", "VERSION_ID": "24.04"},
            "local.feature": {"gpus": "4"},
        },
        instances={"pci.device": [dict(each) for each in GPUS]},
    )


def evaluate(text: str) -> tuple[evaluating.Outcome, list[evaluating.Refusal]]:
    """What the rules of one NodeFeatureRule give, decoded as the API server would send it."""
    found = msgspec.convert(yaml.safe_load(text), NodeFeatureRule)
    named = [
        evaluating.Named(found.metadata.name, f"spec.rules[{index}]", rule)
        for index, rule in enumerate(found.spec.rules)
    ]
    return evaluating.evaluate(named, known())


def rules(*given: dict[str, Any]) -> tuple[evaluating.Outcome, list[evaluating.Refusal]]:
    return evaluate(yaml.safe_dump({"metadata": {"name": "r"}, "spec": {"rules": list(given)}}))


def test_modules_of_a_maker_become_labels() -> None:
    found, refused = evaluate(
        """
        apiVersion: nfd.k8s-sigs.io/v1alpha1
        kind: NodeFeatureRule
        metadata: {name: nvidia-kernel-modules}
        spec:
          rules:
          - name: gdrcopy
            labels: {nvidia.com/gdrcopy.capable: "true"}
            matchFeatures:
            - {feature: kernel.loadedmodule, matchExpressions: {gdrdrv: {op: Exists}}}
          - name: gds
            labels: {nvidia.com/gds.capable: "true"}
            matchFeatures:
            - {feature: kernel.loadedmodule, matchExpressions: {nvidia_fs: {op: Exists}}}
        """
    )
    assert (found.labels, refused) == ({"nvidia.com/gds.capable": "true"}, [])


def test_a_device_must_fulfil_all_expressions_itself() -> None:
    term = {
        "feature": "pci.device",
        "matchExpressions": {
            "vendor": {"op": "In", "value": ["15b3"]},
            "class": {"op": "In", "value": ["0302"]},
        },
    }
    found, _ = rules({"name": "a", "labels": {"x": "1"}, "matchFeatures": [term]})
    assert not found.is_match


def test_templates_see_what_matched_and_no_more() -> None:
    found, refused = evaluate(
        r"""
        metadata: {name: gpus}
        spec:
          rules:
          - name: gpu.deviceids
            labelsTemplate: |
              {{ range .pci.device }}gpu.example.com/{{ .class }}-{{ .device }}=true
              {{ end }}
            matchFeatures:
            - feature: pci.device
              matchExpressions:
                vendor: {op: In, value: ["10de", "8086"]}
                class: {op: InRegexp, value: ["^03"]}
          - name: gpu.count
            labelsTemplate: |
              gpu.example.com/count={{ len .pci.device }}
              gpu.example.com/first={{ (index .pci.device 0).device }}
            matchFeatures:
            - {feature: pci.device, matchExpressions: {class: {op: In, value: ["0302"]}}}
          - name: os
            labelsTemplate: "{{ range .system.osrelease }}os.{{ .Name }}={{ .Value }}\n{{ end }}"
            matchFeatures:
            - feature: system.osrelease
              matchName: {op: In, value: [ID, VERSION_ID]}
        """
    )
    assert refused == []
    assert found.labels == {
        "gpu.example.com/0302-20b0": "true",
        "gpu.example.com/0380-56c0": "true",
        "gpu.example.com/count": "2",
        "gpu.example.com/first": "20b0",
        "os.ID": "ubuntu",
        "os.VERSION_ID": "24.04",
    }


def test_alternatives_need_one_and_the_terms_beside_them_all() -> None:
    wanted = {
        "feature": "kernel.version",
        "matchExpressions": {"major": {"op": "Ge", "value": ["6"]}},
    }
    absent = {"feature": "usb.device", "matchExpressions": {}}
    both = [{"matchFeatures": [absent]}, {"matchFeatures": [wanted]}]
    assert rules({"name": "a", "matchAny": both})[0].is_match
    assert not rules({"name": "a", "matchAny": both[:1]})[0].is_match
    assert not rules({"name": "a", "matchAny": both, "matchFeatures": [absent]})[0].is_match
    assert rules({"name": "a"})[0].is_match


def test_later_rules_see_labels_and_vars_of_earlier_ones() -> None:
    found, _ = rules(
        {"name": "a", "labels": {"level": "2"}, "vars": {"hidden": "true"}},
        {
            "name": "b",
            "labels": {"seen": "true"},
            "matchFeatures": [
                {
                    "feature": "rule.matched",
                    "matchExpressions": {
                        "level": {"op": "Gt", "value": ["1"]},
                        "hidden": {"op": "IsTrue"},
                    },
                }
            ],
        },
    )
    assert found.labels == {"level": "2", "seen": "true"}
    assert found.vars == {"hidden": "true"}


def test_a_rule_without_sense_is_named_and_the_others_go_on() -> None:
    bad = {
        "name": "bad",
        "labels": {"x": "1"},
        "matchFeatures": [
            {"feature": "kernel.version", "matchExpressions": {"major": {"op": "Near"}}}
        ],
    }
    found, refused = rules(bad, {"name": "good", "labels": {"y": "1"}})
    assert found.labels == {"y": "1"}
    assert [each.origin for each in refused] == ["r"]
    assert (
        "rule 'bad': spec.rules[0].matchFeatures[0].matchExpressions[major].op"
        in refused[0].message
    )


def test_taints_annotations_and_resources_come_with_a_match() -> None:
    found, _ = rules(
        {
            "name": "a",
            "annotations": {"n": "v"},
            "taints": [
                {"key": "feature.node.kubernetes.io/gpu", "value": "yes", "effect": "NoSchedule"}
            ],
            "extendedResources": {"example.com/gpus": "@local.feature.gpus"},
        }
    )
    assert found.annotations == {"n": "v"}
    assert [each.key for each in found.taints] == ["feature.node.kubernetes.io/gpu"]
    assert found.extended_resources == {"example.com/gpus": "@local.feature.gpus"}
    assert known().lookup("local.feature.gpus") == "4"


def test_absence_can_be_asked_for() -> None:
    term = {
        "feature": "kernel.loadedmodule",
        "matchExpressions": {"nouveau": {"op": "DoesNotExist"}},
    }
    assert rules({"name": "a", "matchFeatures": [term]})[0].is_match


def test_a_name_may_be_a_flag_or_a_value_of_one_feature() -> None:
    node = Known(flags={"cpu.cpuid": {"AVX512F"}}, attributes={"cpu.cpuid": {"AVX10_VERSION": "2"}})

    def fulfils(**wanted: Any) -> bool:
        term = {"feature": "cpu.cpuid", "matchExpressions": wanted}
        rule = msgspec.convert({"name": "r", "matchFeatures": [term]}, Rule)
        return evaluating.execute(rule, node, "r").is_match

    assert fulfils(AVX512F={"op": "Exists"}, AVX10_VERSION={"op": "Ge", "value": ["2"]})
    assert not fulfils(AVX512F={"op": "Exists"}, AVX10_VERSION={"op": "Gt", "value": ["2"]})
    assert not fulfils(AVX10_VERSION={"op": "DoesNotExist"})
    assert fulfils(AVX2={"op": "DoesNotExist"})


def test_an_alternative_that_asks_a_flag_for_a_value_costs_itself() -> None:
    asked = {"feature": "kernel.loadedmodule", "matchExpressions": {"nvidia": {"op": "IsTrue"}}}
    there = {"feature": "kernel.loadedmodule", "matchExpressions": {"nvidia": {"op": "Exists"}}}
    given = {"name": "a", "labels": {"x": "1"}}
    found, refused = rules(
        {**given, "matchAny": [{"matchFeatures": [asked]}, {"matchFeatures": [there]}]}
    )
    assert (found.labels, refused) == ({"x": "1"}, [])


def test_templates_find_a_feature_in_small_letters_too() -> None:
    found, _ = rules(
        {
            "name": "a",
            "labelsTemplate": "{{ range .system.osrelease }}{{ .Name }}={{ .Value }}\n{{ end }}",
            "matchFeatures": [
                {"feature": "system.osRelease", "matchExpressions": {"ID": {"op": "Exists"}}}
            ],
        }
    )
    assert found.labels == {"ID": "ubuntu"}


def test_a_group_takes_nodes_that_fulfil_one_rule() -> None:
    given = [
        {"name": "no", "matchFeatures": [{"feature": "usb.device"}]},
        {"name": "yes", "matchFeatures": [{"feature": "pci.device", "matchExpressions": {}}]},
    ]
    group = msgspec.convert(given, list[GroupRule])
    assert evaluating.is_member(group, known(), "spec.featureGroupRules")
    assert not evaluating.is_member(group[:1], known(), "spec.featureGroupRules")
