# SPDX-License-Identifier: Apache-2.0
"""The files of node-feature-discovery say what they say there, and no typing mistake passes."""

from __future__ import annotations

from typing import Any

import pytest

from gpudeck.api.labelselectors import Requirement
from gpudeck.errors import InvalidError
from gpudeck.features import configuring
from gpudeck.features.settings import SOURCES, Settings

WORKER = """
core:
  sleepInterval: 1m30s
  featureSources: [all, -usb]
  labelSources: [cpu, pci]
  labelWhiteList: '^(cpu|pci)-'
  noPublishFeatures: [kernel.config, 'usb.*']
  klog: {v: 2}
sources:
  cpu:
    cpuid: {attributeBlacklist: [MMX], attributeWhitelist: [AVX512F]}
  kernel: {kconfigFile: /boot/config, configOpts: [X86]}
  local: {hooksEnabled: false}
  pci: {deviceClassWhitelist: ["02", "0300"], deviceLabelFields: [vendor, device]}
  usb: {deviceClassWhitelist: ["0e"], deviceLabelFields: [class]}
  custom:
    - name: mine
      labels: {mine: "true"}
      matchFeatures:
        - feature: kernel.loadedmodule
          matchExpressions: {nvidia: {op: Exists}}
"""
SELECTOR = "nodeFeatureNamespaceSelector"
MASTER = """
noPublish: true
extraLabelNs: [nvidia.com]
denyLabelNs: ["*"]
enableTaints: true
labelWhiteList: foo
resyncPeriod: 2h
leaderElection: {leaseDuration: 30s, renewDeadline: 20s, retryPeriod: 3s}
nfdApiParallelism: 4
informerPageSize: 50
klog: {v: 2}
restrictions:
  disableLabels: true
  disableAnnotations: true
  disableExtendedResources: true
  denyNodeFeatureLabels: true
  allowOverwrite: false
  nodeFeatureNamespaceSelector:
    matchLabels: {team: gpu}
    matchExpressions: [{key: stage, operator: NotIn, values: [test]}]
"""


def test_all_of_the_workers_file_counts() -> None:
    found = configuring.worker(WORKER)
    assert found.settings == {
        "scan_seconds": 90.0,
        "sources": tuple(name for name in SOURCES if name != "usb"),
        "label_sources": ("cpu", "pci"),
        "label_whitelist": "^(cpu|pci)-",
        "hidden_features": ("kernel.config", "usb.*"),
        "cpuid_hidden": ("MMX",),
        "cpuid_shown": ("AVX512F",),
        "kernel_config": "/boot/config",
        "kernel_options": ("X86",),
        "pci_classes": ("02", "0300"),
        "pci_fields": ("vendor", "device"),
        "usb_classes": ("0e",),
        "usb_fields": ("class",),
    }
    assert [(each.path, each.rule.name) for each in found.rules] == [("sources.custom[0]", "mine")]
    assert found.notes == ["core.klog"]


def test_all_of_the_masters_file_counts() -> None:
    found = configuring.master(MASTER)
    assert found.settings == {
        "no_publish": True,
        "extra_namespaces": ("nvidia.com",),
        "denied_namespaces": ("*",),
        "enable_taints": True,
        "label_whitelist": "foo",
        "resync_seconds": 7200.0,
        "lease_seconds": 30.0,
        "renew_seconds": 20.0,
        "retry_seconds": 3.0,
        "workers": 4,
        "page_size": 50,
        "disable_labels": True,
        "disable_annotations": True,
        "disable_extended_resources": True,
        "deny_feature_labels": True,
        "allow_overwrite": False,
    }
    assert found.namespaces == (
        Requirement("team", "In", ("gpu",)),
        Requirement("stage", "NotIn", ("test",)),
    )
    assert found.notes == ["klog"]


@pytest.mark.parametrize("text", ["", "#core:\n#  sources: [all]\n", "{}", "core:\n", "null"])
def test_an_empty_file_changes_nothing(text: str) -> None:
    assert configuring.worker(text) == configuring.Found()


@pytest.mark.parametrize(
    ("text", "path", "allowed"),
    [
        ("core: {sleepIntervall: 60s}", "core.sleepIntervall", "the keys sleepInterval"),
        ("core: {sleepInterval: soon}", "core.sleepInterval", "a time such as 60s"),
        ("core: {sources: [gpu]}", "core.sources[0]", "cpu, custom"),
        ("core: {labelWhiteList: '('}", "core.labelWhiteList", "a regular expression"),
        ("core: {noPublish: maybe}", "core.noPublish", "true or false"),
        ("core: {noPublishFeatures: [pci]}", "core.noPublishFeatures[0]", "<source>.<feature>"),
        ("sources: {gpu: {}}", "sources.gpu", "the keys cpu"),
        # Without quotes YAML reads a number to the base of eight.
        ("sources: {pci: {deviceClassWhitelist: [0300]}}",
         "sources.pci.deviceClassWhitelist[0]", "in quotes"),
        ("sources: {pci: {deviceLabelFields: [maker]}}",
         "sources.pci.deviceLabelFields[0]", "one of class, vendor"),
        ("sources: {local: {hooksEnabled: true}}", "sources.local.hooksEnabled", "features.d"),
        ("sources: {custom: [{name: x, matchOn: []}]}", "sources.custom[0].matchOn",
         "matchOn is now matchFeatures"),
        ("sources: {custom: [{name: 5}]}", "sources.custom[0]", "a rule as in"),
    ],
)  # fmt: skip
def test_what_is_wrong_for_the_worker_is_named_by_its_path(
    text: str, path: str, allowed: str
) -> None:
    with pytest.raises(InvalidError) as refused:
        configuring.worker(text)
    assert refused.value.field == path
    assert path in refused.value.message
    assert allowed in refused.value.message
    assert refused.value.reason == "FeaturesConfigInvalid"


@pytest.mark.parametrize(
    ("text", "path", "allowed"),
    [
        ("extraLabelNs: nvidia.com", "extraLabelNs", "a list"),
        ("denyLabelNs: [UPPER]", "denyLabelNs[0]", "a DNS name"),
        ("autoDefaultNs: false", "autoDefaultNs", "true"),
        ("resourceLabels: [a/b]", "resourceLabels", "extendedResources"),
        ("nfdApiParallelism: 0", "nfdApiParallelism", "1 or more"),
        ("leaderElection: {leaseDurtation: 15s}", "leaderElection.leaseDurtation", "the keys"),
        ("leaderElection: {retryPeriod: 0s}", "leaderElection.retryPeriod", "above 0"),
        ("restrictions: {overwriteLabels: false}", "restrictions.overwriteLabels", "the keys"),
        (f"restrictions: {{{SELECTOR}: {{matchExpressions: [{{key: a, operator: Is}}]}}}}",
         f"restrictions.{SELECTOR}.matchExpressions[0].operator", "In, NotIn"),
        (f"restrictions: {{{SELECTOR}: {{matchExpressions: [{{key: a, operator: In}}]}}}}",
         f"restrictions.{SELECTOR}.matchExpressions[0]", "values with In"),
    ],
)  # fmt: skip
def test_what_is_wrong_for_the_master_is_named_by_its_path(
    text: str, path: str, allowed: str
) -> None:
    with pytest.raises(InvalidError) as refused:
        configuring.master(text)
    assert refused.value.field == path
    assert allowed in refused.value.message


def test_all_that_is_wrong_is_named_at_once() -> None:
    text = """\
core: {sleepIntervall: 60s, noPublish: maybe}
sources: {pci: {deviceClassWhitelist: [0300, "02", x]}, local: {hooksEnabled: true}}
"""
    with pytest.raises(InvalidError) as refused:
        configuring.worker(text)
    assert refused.value.message.startswith("5 fields are wrong: (1) core.sleepIntervall: ")
    for path in ("core.noPublish", "sources.pci.deviceClassWhitelist[2]", "sources.local.hooks"):
        assert f") {path}" in refused.value.message


def test_text_that_is_no_document_is_refused() -> None:
    with pytest.raises(InvalidError, match="allowed: a YAML document"):
        configuring.worker("core: [")
    with pytest.raises(InvalidError, match="allowed: a mapping with core, sources"):
        configuring.worker("- core")


def test_a_setting_that_was_given_wins_over_the_file() -> None:
    given = Settings(role="worker", pci_fields=("class",))
    found = configuring.worker(WORKER)
    merged = configuring.merged(given, found)
    assert merged.pci_fields == ("class",)
    assert merged.pci_classes == ("02", "0300")
    assert merged.usb_fields == ("class",)


def test_times_of_an_election_that_do_not_fit_together_are_refused() -> None:
    found = configuring.master("leaderElection: {leaseDuration: 5s}")
    with pytest.raises(InvalidError, match="leaseDuration above renewDeadline"):
        configuring.merged(Settings(role="master"), found)


@pytest.mark.parametrize(
    ("text", "seconds"), [("60s", 60.0), ("1h30m", 5400.0), ("1500ms", 1.5), ("1.5h", 5400.0)]
)
def test_times_are_spelled_as_go_spells_them(text: str, seconds: float) -> None:
    assert _interval(text) == seconds


@pytest.mark.parametrize("text", ["0", "0s", "-1s"])
def test_a_time_that_is_not_positive_means_never(text: str) -> None:
    assert _interval(text) == configuring.NEVER_SECONDS


@pytest.mark.parametrize("text", ["1ms", "0.5s"])
def test_the_host_is_not_looked_at_without_a_pause(text: str) -> None:
    assert _interval(text) == 1.0


def _interval(text: str) -> Any:
    return configuring.worker(f"core: {{sleepInterval: {text}}}").settings["scan_seconds"]


def test_taints_may_be_denied_as_a_restriction_too() -> None:
    found = configuring.master("{enableTaints: true, restrictions: {disableTaints: true}}")
    assert found.settings["enable_taints"] is False
