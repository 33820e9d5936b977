# SPDX-License-Identifier: Apache-2.0
"""Rules in the ways that makers of devices publish theirs, from the file to what a node gets."""

from __future__ import annotations

import msgspec
import pytest
import yaml

from gpudeck.api.meta import ObjectMeta
from gpudeck.api.nodefeatures import NodeFeature, NodeFeatureRule, NodeFeatureSpec, Rule
from gpudeck.features import deciding, labelling, permitting
from gpudeck.features.known import Known
from gpudeck.features.rules import evaluating

NODE = Known(
    flags={
        "cpu.cpuid": {"SGX", "SGXLC", "SSE42", "SVM"},
        "kernel.loadedmodule": {"nvidia", "accel", "kvm", "kvm_amd"},
        "kernel.enabledmodule": {"nvidia", "accel", "vfio-pci", "vfio_pci"},
    },
    attributes={
        "cpu.security": {
            "sgx.enabled": "true",
            "sgx.epc": "3072",
            "sev.snp.enabled": "true",
            "sev.encrypted_state_ids": "410",
        },
        "cpu.topology": {"socket_count": "2"},
        "kernel.config": {"X86_SGX": "y"},
        "local.label": {"gpu.example.com/millicores": "2000", "gpu.example.com/tiles": "4"},
        "system.name": {"nodename": "node-0"},
        "system.dmiid": {"sys_vendor": "Maker Inc.", "product_name": "Server X750 Gen2"},
        "system.osrelease": {"ID": "ubuntu", "VERSION_ID": "24.04", "VERSION_ID.major": "24"},
        "cpu.model": {"vendor_id": "AMD", "family": "25"},
    },
    instances={
        "pci.device": [
            {"class": "0302", "vendor": "10de", "device": "2330"},
            {"class": "0302", "vendor": "10de", "device": "2330"},
            {"class": "0380", "vendor": "1d0f", "device": "7064"},
            {"class": "0b40", "vendor": "1d0f", "device": "0042"},
            {"class": "0207", "vendor": "15b3", "device": "a2dc", "sriov_totalvfs": "16"},
        ],
        "network.device": [
            {"name": "ib0", "operstate": "up", "speed": "400000"},
            {"name": "eth0", "operstate": "down"},
        ],
        "usb.device": [{"class": "ff", "vendor": "18d1", "device": "9302"}],
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


def test_a_runtime_for_confidential_pods_is_one_of_two_makers() -> None:
    text = """
      {name: runtime, labels: {feature.node.kubernetes.io/runtime.vm: "true"}, matchAny: [
        {matchFeatures: [
          {feature: cpu.cpuid, matchExpressions: {SSE42: {op: Exists}, VMX: {op: Exists}}},
          {feature: kernel.loadedmodule, matchExpressions: {
            kvm: {op: Exists}, kvm_intel: {op: Exists}}}]},
        {matchFeatures: [
          {feature: cpu.cpuid, matchExpressions: {SSE42: {op: Exists}, SVM: {op: Exists}}},
          {feature: kernel.loadedmodule, matchExpressions: {
            kvm: {op: Exists}, MODULE: {op: Exists}}}]}]}
    """
    assert given(text.replace("MODULE", "kvm_amd")) == {
        "feature.node.kubernetes.io/runtime.vm": "true"
    }
    assert given(text.replace("MODULE", "kvm_other")) == {}


def test_keys_of_confidential_machines_become_extended_resources_in_their_own_namespace() -> None:
    found = decided("""
      metadata: {name: keys}
      spec:
        rules:
          - name: snp
            labels: {amd.feature.node.kubernetes.io/snp: "true"}
            extendedResources: {snp.example.com/ids: "@cpu.security.sev.encrypted_state_ids"}
            matchFeatures:
              - {feature: cpu.cpuid, matchExpressions: {SVM: {op: Exists}}}
              - {feature: cpu.security, matchExpressions: {sev.snp.enabled: {op: Exists}}}
          - name: tdx
            extendedResources: {tdx.example.com/keys: "@cpu.security.tdx.total_keys"}
            matchFeatures:
              - {feature: cpu.security, matchExpressions: {tdx.enabled: {op: Exists}}}
    """)
    assert found.labels == {"amd.feature.node.kubernetes.io/snp": "true"}
    assert found.extended_resources == {"snp.example.com/ids": "410"}


def test_nodes_without_any_card_are_found_by_what_no_rule_before_has_said() -> None:
    text = """
      metadata: {name: accelerated}
      spec:
        rules:
          - name: notes
            annotations: {note.example.com/cpu: "@cpu.model.family"}
            matchFeatures:
              - {feature: cpu.model, matchExpressions: {vendor_id: {op: Exists}}}
          - name: devices
            vars: {has-devices: "true"}
            matchFeatures:
              - feature: pci.device
                matchExpressions:
                  class: {op: InRegexp, value: ["^02", "^03", "^12"]}
                  vendor: {op: In, value: [VENDOR, "1e3e"]}
          - name: none
            labels: {note.example.com/accelerated: "false"}
            matchFeatures:
              - {feature: rule.matched, matchExpressions: {has-devices: {op: DoesNotExist}}}
    """
    found = decided(text.replace("VENDOR", '"10de"'))
    assert found.labels == {}
    # As node-feature-discovery v0.19: annotations take no value of a feature.
    assert found.annotations == {"note.example.com/cpu": "@cpu.model.family"}
    assert decided(text.replace("VENDOR", '"9999"')).labels == {
        "note.example.com/accelerated": "false"
    }


def test_virtual_functions_are_told_by_many_alternatives_of_one_device_each() -> None:
    alternatives = ", ".join(
        "{matchFeatures: [{feature: pci.device, matchExpressions: {"
        f'vendor: {{op: In, value: ["1d0f"]}}, device: {{op: In, value: ["{device}"]}}}}}}]}}'
        for device in ("7410", "7461", "7064")
    )
    assert given(
        '{name: vgpu, labels: {feature.node.kubernetes.io/maker-vgpu: "true"}, '
        f"matchAny: [{alternatives}]}}"
    ) == {"feature.node.kubernetes.io/maker-vgpu": "true"}


def test_network_cards_of_two_classes_and_an_empty_label() -> None:
    assert given("""
      {name: nics, labels: {pci-15b3.present: "true", dpu-enabled: ""},
       matchFeatures: [
         {feature: pci.device, matchExpressions: {
           vendor: {op: In, value: ["15b3"]},
           class: {op: In, value: ["0200", "0207"]},
           device: {op: In, value: ["a2d6", "a2dc"]},
           sriov_totalvfs: {op: Ge, value: ["1"]}}},
         {feature: network.device, matchExpressions: {
           operstate: {op: In, value: ["up"]}, speed: {op: Gt, value: ["10000"]}}}]}
    """) == {
        "feature.node.kubernetes.io/pci-15b3.present": "true",
        "feature.node.kubernetes.io/dpu-enabled": "",
    }


def test_of_several_models_the_last_rule_that_fits_names_the_node() -> None:
    rule = (
        '{{name: "{0}", labels: {{accelerator: "{0}"}}, matchFeatures: [{{feature: pci.device, '
        'matchExpressions: {{device: {{op: In, value: ["{1}"]}}}}}}]}}'
    )
    models = [("first", "2330"), ("second", "7064"), ("third", "ffff")]
    assert given(", ".join(rule.format(*each) for each in models)) == {
        "feature.node.kubernetes.io/accelerator": "second"
    }


def test_a_model_of_server_by_its_firmware() -> None:
    assert given("""
      {name: profile, labels: {nic-profile: x750}, matchFeatures: [
        {feature: system.dmiid, matchExpressions: {
          sys_vendor: {op: In, value: ["Maker Inc."]},
          product_name: {op: InRegexp, value: ["X7[0-9]+"]}}},
        {feature: system.osrelease, matchExpressions: {
          ID: {op: In, value: [ubuntu, debian]}, VERSION_ID.major: {op: Gt, value: ["14"]}}}]}
    """) == {"feature.node.kubernetes.io/nic-profile": "x750"}


def test_built_in_labels_can_be_told_by_rules_too() -> None:
    found = decided("""
      metadata: {name: built-in}
      spec:
        rules:
          - name: present
            labelsTemplate: |
              {{ range .pci.device }}pci-{{ .class }}_{{ .vendor }}.present=true
              {{ end }}
            matchFeatures:
              - feature: pci.device
                matchExpressions: {class: {op: InRegexp, value: ["^03", "^0b40", "^12"]}}
          - name: sriov
            labelsTemplate: |
              {{ range .pci.device }}pci-{{ .class }}_{{ .vendor }}.sriov.capable=true
              {{ end }}
            matchFeatures:
              - feature: pci.device
                matchExpressions: {sriov_totalvfs: {op: Exists}}
          - name: usb
            labelsTemplate: "{{ range .usb.device }}usb-{{ .class }}_{{ .vendor }}.present=true{{ end }}"
            matchFeatures:
              - {feature: usb.device, matchExpressions: {class: {op: In, value: [ff]}}}
    """)  # noqa: E501
    assert set(found.labels) == {
        labelling.full_name(name)
        for name in ("pci-0302_10de.present", "pci-0380_1d0f.present", "pci-0b40_1d0f.present",
                     "pci-0207_15b3.sriov.capable", "usb-ff_18d1.present")
    }  # fmt: skip


def test_the_first_device_is_told_with_functions_of_sprig() -> None:
    assert given("""
      {name: first, labelsTemplate: "count={{ .pci.device | len }}\\n
        first={{ (.pci.device | first).class | trim | substr 0 63 }}",
       matchFeatures: [
         {feature: pci.device, matchExpressions: {vendor: {op: In, value: ["10de"]}}}]}
    """) == {
        "feature.node.kubernetes.io/count": "2",
        "feature.node.kubernetes.io/first": "0302",
    }


def test_a_device_without_a_value_that_its_template_wants_is_told() -> None:
    rule = msgspec.convert(
        yaml.safe_load("""
          name: speeds
          labelsTemplate: "{{ range .network.device }}{{ .name }}.mbps={{ .speed }}\n{{ end }}"
          matchFeatures: [{feature: network.device, matchExpressions: {}}]
        """),
        Rule,
    )
    outcome, refused = evaluating.evaluate([evaluating.Named("r", "spec.rules[0]", rule)], NODE)
    assert outcome.labels == {}
    assert "there is no speed; the names are name, operstate" in refused[0].message
