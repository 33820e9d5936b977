# SPDX-License-Identifier: Apache-2.0
"""Rules in the ways that makers of devices publish theirs, from the file to what a node gets."""

from __future__ import annotations

import msgspec
import pytest
import yaml

from gpudeck.api.meta import ObjectMeta
from gpudeck.api.nodefeatures import NodeFeature, NodeFeatureRule, NodeFeatureSpec
from gpudeck.features import deciding, labelling, permitting
from gpudeck.features.known import Known

NODE = Known(
    flags={
        "cpu.cpuid": {"SGX", "SGXLC"},
        "kernel.loadedmodule": {"nvidia", "accel"},
        "kernel.enabledmodule": {"nvidia", "accel", "vfio-pci", "vfio_pci"},
    },
    attributes={
        "cpu.security": {"sgx.enabled": "true", "sgx.epc": "3072", "sev.snp.enabled": "true"},
        "cpu.topology": {"socket_count": "2"},
        "kernel.config": {"X86_SGX": "y"},
        "local.label": {"gpu.example.com/millicores": "2000", "gpu.example.com/tiles": "4"},
        "system.name": {"nodename": "node-0"},
    },
    instances={
        "pci.device": [
            {"class": "0302", "vendor": "10de", "device": "2330"},
            {"class": "0302", "vendor": "10de", "device": "2330"},
            {"class": "0380", "vendor": "1d0f", "device": "7064"},
            {"class": "0b40", "vendor": "1d0f", "device": "0042"},
        ]
    },
)
"""A node with cards of two makers."""


def decided(text: str) -> deciding.Wanted:
    """What the rule of a file gives the node; all of it is permitted."""
    rule = msgspec.convert(yaml.safe_load(text), NodeFeatureRule)
    feature = NodeFeature(
        metadata=ObjectMeta(name="node-0", namespace="own"),
        spec=NodeFeatureSpec(features=NODE.wire()),
    )
    known, policy = deciding.known([feature]), permitting.Policy()
    found = deciding.wanted([feature], deciding.named([rule]), "own", policy, known=known)
    assert found.refused == []
    return found


def given(rules: str) -> dict[str, str]:
    """The labels that a list of rules gives the node."""
    return decided("metadata: {name: r}\nspec: {rules: [\n" + rules + "\n]}").labels


def test_a_device_with_its_driver_loaded_or_built_in() -> None:
    text = """
      {name: offload, labels: {devices.example.com/offload: "true"},
       matchFeatures: [
         {feature: pci.device, matchExpressions: {
           vendor: {op: In, value: ["1d0f"]},
           device: {op: In, value: ["0041", "0042"]},
           class: {op: In, value: ["0b40"]}}},
         {feature: kernel.loadedmodule, matchExpressions: {accel: {op: Exists}}}],
       matchAny: [
         {matchFeatures: [
           {feature: kernel.loadedmodule, matchExpressions: {vfio_pci: {op: Exists}}}]},
         {matchFeatures: [
           {feature: kernel.enabledmodule, matchExpressions: {MODULE: {op: Exists}}}]}]}
    """
    # Files of built-in modules have dashes, and rules have either.
    for module in ("vfio-pci", "vfio_pci"):
        wanted = {"devices.example.com/offload": "true"}
        assert given(text.replace("MODULE", module)) == wanted
    assert given(text.replace("MODULE", "vfio_mdev")) == {}


def test_memory_of_enclaves_becomes_an_extended_resource() -> None:
    found = decided("""
      metadata: {name: enclaves}
      spec:
        rules:
          - name: enclaves
            labels: {devices.example.com/enclaves: "true"}
            extendedResources: {enclaves.example.com/epc: "@cpu.security.sgx.epc"}
            matchFeatures:
              - feature: cpu.cpuid
                matchExpressions: {SGX: {op: Exists}, SGXLC: {op: Exists}}
              - feature: cpu.security
                matchExpressions: {sgx.enabled: {op: IsTrue}}
              - feature: kernel.config
                matchExpressions: {X86_SGX: {op: Exists}}
    """)
    assert found.extended_resources == {"enclaves.example.com/epc": "3072"}


def test_numbers_that_a_program_found_become_extended_resources() -> None:
    found = decided("""
      metadata: {name: fractions}
      spec:
        rules:
          - name: fractions
            extendedResources:
              gpu.example.com/millicores: "@local.label.gpu.example.com/millicores"
              gpu.example.com/tiles: "@local.label.gpu.example.com/tiles"
            matchFeatures:
              - feature: local.label
                matchExpressions:
                  gpu.example.com/millicores: {op: Exists}
                  gpu.example.com/tiles: {op: Exists}
    """)
    assert found.extended_resources == {
        "gpu.example.com/millicores": "2000",
        "gpu.example.com/tiles": "4",
    }


def test_devices_are_named_and_counted_by_templates_and_an_empty_field_is_none() -> None:
    assert decided("""
      metadata: {name: devices}
      spec:
        rules:
          - labels:
            labelsTemplate: |
              {{ range .pci.device }}gpu.example.com/{{ .class }}-{{ .device }}.present=true
              {{ end }}
            matchFeatures:
              - feature: pci.device
                matchExpressions: {class: {op: In, value: ["0302", "0380"]}}
            name: named
          - labels:
            labelsTemplate: gpu.example.com/{{ (index .pci.device 0).device }}.count={{ len .pci.device }}
            matchFeatures:
              - feature: pci.device
                matchExpressions: {vendor: {op: In, value: ["10de"]}}
            name: counted
    """).labels == {  # noqa: E501
        "gpu.example.com/0302-2330.present": "true",
        "gpu.example.com/0380-7064.present": "true",
        "gpu.example.com/2330.count": "2",
    }


def test_a_card_in_a_confidential_machine_is_one_of_several_alternatives() -> None:
    text = """
      {name: cc, labels: {nvidia.com/cc.enabled: "true"}, matchAny: [
        {matchFeatures: [
          {feature: cpu.security, matchExpressions: {tdx.enabled: {op: Exists}}},
          {feature: pci.device, matchExpressions: {device: {op: In, value: ["2330"]}}}]},
        {matchFeatures: [
          {feature: cpu.security, matchExpressions: {sev.snp.enabled: {op: Exists}}},
          {feature: pci.device, matchExpressions: {device: {op: In, value: ["DEVICE"]}}}]}]}
    """
    assert given(text.replace("DEVICE", "2330")) == {"nvidia.com/cc.enabled": "true"}
    assert given(text.replace("DEVICE", "2331")) == {}


def test_values_by_their_names() -> None:
    assert given("""
      {name: sockets, labelsTemplate: "{{ range .cpu.topology }}licence.{{ .Name }}={{ .Value }}\\n{{ end }}",
       matchFeatures: [{feature: cpu.topology, matchExpressions: {socket_count: {op: Exists}}}]}
    """) == {labelling.full_name("licence.socket_count"): "2"}  # noqa: E501


@pytest.mark.parametrize(("node", "labels"), [("node-0", {"mode": "whole"}), ("node-1", {})])
def test_a_rule_for_one_node_by_its_name(node: str, labels: dict[str, str]) -> None:
    assert given(f"""
      {{name: mode, labels: {{mode: whole}}, matchFeatures: [
         {{feature: system.name, matchExpressions: {{nodename: {{op: In, value: [{node}]}}}}}},
         {{feature: pci.device, matchExpressions: {{class: {{op: InRegexp, value: ["^03"]}}}}}}]}}
    """) == {labelling.full_name(name): value for name, value in labels.items()}
