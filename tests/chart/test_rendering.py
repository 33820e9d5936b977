# SPDX-License-Identifier: Apache-2.0
"""What Helm makes of the chart: golden files, and a sentence where values do not fit together."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.chart import rendering

from gpudeck.api import labels

pytestmark = pytest.mark.skipif(rendering.helm() is None, reason="there is no Helm")


@pytest.mark.parametrize("variant", rendering.VARIANTS)
def test_the_golden_file_is_what_helm_renders(variant: str) -> None:
    """`make golden` rewrites them."""
    rendered = rendering.render(*rendering.VARIANTS[variant])
    assert rendered.stderr == ""
    assert rendered.stdout == (rendering.GOLDEN / f"{variant}.yaml").read_text(encoding="utf-8")


def test_a_values_file_of_the_gpu_operator_is_taken_as_it_is() -> None:
    example = rendering.ROOT / "examples" / "12-time-slicing" / "values.yaml"
    rendered = rendering.render("--values", str(example))
    assert rendered.returncode == 0, rendered.stderr
    assert "value: nvidia-time-slicing-config" in rendered.stdout.replace('"', "")


def test_the_crds_come_first() -> None:
    rendered = rendering.render("--include-crds", "--set", "dra.enabled=true").stdout
    kinds = [line for line in rendered.splitlines() if line.startswith("kind: ")]
    assert kinds[:2] == ["kind: CustomResourceDefinition"] * 2
    assert kinds.index("kind: GPUClass") > kinds.index("kind: DaemonSet")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["hostRoot=relative"], ["hostRoot"]),
        (["hostRoot=/mnt/host/"], ["hostRoot"]),
        (["hostRoot=/mnt/{host}"], ["hostRoot"]),
        (["kubeletRoot=/var/lib/../kubelet"], ["kubeletRoot"]),
        (["kubeletRoot=/var/lib\\,kubelet"], ["kubeletRoot"]),
        (["cdiRoot=/var/run:cdi"], ["cdiRoot"]),
        (["runtimeSocket=/run/a]b/containerd.sock"], ["runtimeSocket"]),
        (["image.repository=a b"], ["repository"]),
        (["controller.replicas=4"], ["replicas", "3"]),
        (["logLevel=verbose"], ["logLevel", "debug"]),
        (["image.digest=sha256:12"], ["digest"]),
        (["dra.enable=true"], ["enable"]),
        (["nodeAgent.limits=1"], ["limits"]),
        (["supportedVendors.classes={3d}", "supportedVendors.vendors=null"], ["vendors"]),
        (
            [
                "supportedVendors.vendors[0].id=10de",
                "supportedVendors.vendors[0].name=a",
                "supportedVendors.vendors[1].id=10de",
                "supportedVendors.vendors[1].name=b",
            ],
            ['id "10de" is listed twice'],
        ),
        (["mig.strategy=some"], ["mig/strategy", "single"]),
        (["webhooks=null"], ["missing property 'webhooks'"]),
        (["devicePlugin.config.name=Bad_Name"], ["devicePlugin/config/name"]),
        (["devicePlugin.config.default=slice-4"], ["devicePlugin.config.name", '"slice-4"']),
        (
            ["devicePlugin.env[0].name=MPS_ROOT"],
            ["devicePlugin/env/0/name", "DP_ENABLE_HEALTHCHECKS"],
        ),
        (
            ["devicePlugin.env[0].name=DP_DISABLE_HEALTHCHECKS", "devicePlugin.env[0].value=ecc"],
            ["devicePlugin/env/0/value", "all|xids"],
        ),
        (
            [
                "devicePlugin.env[0].name=DP_DISABLE_HEALTHCHECKS",
                "devicePlugin.env[0].value=48",
                "devicePlugin.env[1].name=DP_DISABLE_HEALTHCHECKS",
                "devicePlugin.env[1].value=62",
            ],
            ['devicePlugin.env: name "DP_DISABLE_HEALTHCHECKS" is listed twice'],
        ),
        (["devicePlugin.resources.limits.memory=much"], ["resources/limits/memory"]),
        (["nodeGroups[0].name=a", "nodeGroups[0].gpu.sharing=MIG"], ["selector"]),
        (
            [
                "nodeGroups[0].name=a",
                "nodeGroups[0].selector.matchLabels.pool=a b",
                "nodeGroups[0].gpu.sharing=Exclusive",
            ],
            ["nodeGroups/0/selector/matchLabels/pool"],
        ),
        (
            [
                "nodeGroups[0].name=a",
                "nodeGroups[0].selector.matchExpressions[0].key=pool",
                "nodeGroups[0].selector.matchExpressions[0].operator=In",
                "nodeGroups[0].gpu.sharing=Exclusive",
            ],
            ["nodeGroups/0/selector/matchExpressions/0", "values"],
        ),
        (
            [
                "nodeGroups[0].name=a",
                "nodeGroups[0].selector.matchLabels.pool=a",
                "nodeGroups[0].gpu.sharing=MPS",
            ],
            ["nodeGroups/0/gpu/sharing", "TimeSlicing"],
        ),
        (
            [
                "nodeGroups[0].name=a",
                "nodeGroups[0].selector.matchLabels.pool=a",
                "nodeGroups[0].gpu.sharing=Exclusive",
                "nodeGroups[1].name=a",
                "nodeGroups[1].selector.matchLabels.pool=b",
                "nodeGroups[1].gpu.sharing=Exclusive",
            ],
            ['nodeGroups: name "a" is listed twice'],
        ),
        (
            [
                "nodeGroups[0].name=a",
                "nodeGroups[0].selector.matchLabels.pool=a",
                "nodeGroups[0].gpu.sharing=Exclusive",
                "nodeGroups[0].gpu.mig.partedConfig=all-1g.5gb",
            ],
            ["nodeGroups[0].gpu.mig", "sharing is Exclusive"],
        ),
        (
            [
                "dra.enabled=true",
                "supportedVendors.vendors[0].id=1002",
                "supportedVendors.vendors[0].name=amd",
            ],
            ["dra.enabled", "no entry named nvidia"],
        ),
        (
            ["dra.enabled=true", "gpuClass.vendor=amd"],
            ["gpuClass.vendor", '"amd"', "nvidia, metax"],
        ),
        (
            ["dra.enabled=true", "sharedClass.create=true", "sharedClass.vendor=amd"],
            ["sharedClass.vendor", '"amd"', "nvidia, metax"],
        ),
        (
            ["dra.enabled=true", "sharedClass.create=true", "sharedClass.name=gpu"],
            ["sharedClass.name", "gpuClass.name"],
        ),
        (
            [
                "dra.enabled=true",
                "sharedClass.create=true",
                "sharedClass.extendedResourceName=nvidia.com/gpu",
            ],
            ["sharedClass.extendedResourceName", "nvidia.com/gpu"],
        ),
        (["nvidiaAdapter.draPlugin.shareMemory=much"], ["shareMemory"]),
        (["nvidiaAdapter.draPlugin.shareMemory=0Gi"], ["shareMemory"]),
        (["nvidiaAdapter.draPlugin.unhealthyEffect=Evict"], ["unhealthyEffect", "NoExecute"]),
        (["partitionClasses=All"], ["partitionClasses", "Auto", "None"]),
        (["gpuClass.extendedResourceName=kubernetes.io/gpu"], ["extendedResourceName"]),
        (["cdiRoot=/var/lib/kubelet"], ["cdiRoot", "kubeletRoot"]),
        (
            ["dra.enabled=true", "kubeletRoot=/a-folder/with/a/very/long/name/kubelet"],
            ["kubeletRoot", "35"],
        ),
    ],
)
def test_values_that_do_not_fit_are_refused_by_name(arguments: list[str], words: list[str]) -> None:
    strings = [
        part for each in arguments for part in ("--set-string" if ".id=" in each else "--set", each)
    ]
    rendered = rendering.render(*strings)
    assert rendered.returncode != 0
    assert rendered.stdout == ""
    for word in words:
        assert word in rendered.stderr


def test_a_large_number_is_written_out() -> None:
    """Helm has floating-point numbers, and no process reads 1.048576e+06 as a whole one."""
    values = ("nvidiaMps.shmMiB=1048576", "migManager.drainSeconds=10000000")
    arguments = ("nvidiaMps.enabled=true", *values)
    rendered = rendering.render(*(part for each in arguments for part in ("--set-json", each)))
    assert 'value: "1048576"' in rendered.stdout
    assert 'value: "10000000"' in rendered.stdout


def test_values_that_are_taken_away_are_none() -> None:
    arguments = ("controller.tolerations=null", "nodeFeatures.gc.tolerations=null")
    rendered = rendering.render(*(part for each in arguments for part in ("--set", each)))
    assert rendered.returncode == 0, rendered.stderr


def _texts(schema: Any, path: str = "") -> Iterator[str]:
    """Paths of the values that may be a text of digits."""
    for name, each in schema["properties"].items():
        below = f"{path}.{name}" if path else name
        if "properties" in each:
            yield from _texts(each, below)
        elif each.get("type") == "string" and re.search(each.get("pattern", ""), "1234"):
            yield below


def test_a_text_of_digits_stays_a_text() -> None:
    """Objects may be called so, and the API server takes no number for a name."""
    schema = json.loads((rendering.CHART / "values.schema.json").read_text(encoding="utf-8"))
    # A vendor has to be one of the list.
    paths = [each for each in _texts(schema) if not each.endswith(".vendor")]
    assert {"migManager.config.name", "controller.priorityClassName"} <= set(paths)
    values = [part for each in paths for part in ("--set-string", f"{each}=1234")]
    rendered = rendering.render(*values, "--set", "sharedClass.name=other")
    assert rendered.returncode == 0, rendered.stderr

    objects = [each for each in yaml.safe_load_all(rendered.stdout) if each]
    for each in objects:
        if each["metadata"]["name"] == labels.NODE_WORKLOADS:
            each["data"] = {name: yaml.safe_load(text) for name, text in each["data"].items()}
    assert [path for each in objects for path in _numbers(each, each["kind"])] == []


def _numbers(found: Any, path: str) -> Iterator[str]:
    if isinstance(found, dict | list):
        for key, each in found.items() if isinstance(found, dict) else enumerate(found):
            yield from _numbers(each, f"{path}.{key}")
    elif found == 1234:
        yield path


def test_an_older_kubernetes_is_refused_with_its_version() -> None:
    rendered = rendering.render("--kube-version", "1.33.4")
    assert rendered.returncode != 0
    assert "1.33.4" in rendered.stderr


@pytest.mark.parametrize(
    ("arguments", "mode", "classes"),
    [
        ([], "device-plugin", "None"),
        (["partitionClasses=Auto"], "device-plugin", "Auto"),
        (["dra.enabled=true"], "dra", "None"),
    ],
)
def test_dra_enabled_is_the_mode_of_nodes_that_choose_none_and_nothing_else(
    arguments: list[str], mode: str, classes: str
) -> None:
    rendered = rendering.render(*(part for each in arguments for part in ("--set", each)))
    objects = [each for each in yaml.safe_load_all(rendered.stdout) if each]
    controller = next(each for each in objects if each["kind"] == "Deployment")
    environment = controller["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "GPUDECK_DEFAULT_MODE", "value": mode} in environment
    assert {"name": "GPUDECK_PARTITION_CLASSES", "value": classes} in environment
    adapter = next(
        each
        for each in objects
        if (each["kind"], each["metadata"]["name"]) == ("DaemonSet", "nvidia-adapter")
    )
    assert adapter["spec"]["template"]["spec"]["nodeSelector"] == {
        "gpu.deckhouse.io/vendor": "nvidia",
        "gpu.deckhouse.io/active-mode": "dra",
    }
    assert "gpu" in {each["metadata"]["name"] for each in objects if each["kind"] == "GPUClass"}


def test_a_shared_class_hands_out_shares_under_its_own_resource() -> None:
    rendered = rendering.render("--set", "dra.enabled=true", "--set", "sharedClass.create=true")
    objects = [each for each in yaml.safe_load_all(rendered.stdout) if each]
    found = {each["metadata"]["name"]: each for each in objects if each["kind"] == "GPUClass"}
    assert set(found) == {"gpu", "gpu-shared"}
    assert found["gpu-shared"]["spec"] == {
        "vendor": "nvidia",
        "devices": ["Share"],
        "extendedResourceName": "nvidia.com/gpu.shared",
    }
