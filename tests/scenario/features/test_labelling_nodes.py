# SPDX-License-Identifier: Apache-2.0
"""Worker, master and gc together: what is in the host stands on the Node, and goes with it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.scenario.agent.bus import Host
from tests.support import apiserver

from gpudeck.api import labels, names, resources
from gpudeck.api.nodefeatures import NodeFeatureRule
from gpudeck.features import collecting, deciding, master, metrics, worker
from gpudeck.features.known import Known
from gpudeck.features.permitting import Policy
from gpudeck.features.settings import Settings

NODE, NAMESPACE = "node-0", "gpudeck-system"
KEY = f"{NAMESPACE}/{NODE}"
PCI = "feature.node.kubernetes.io/pci-0302_10de.present"
RULE = {
    "metadata": {"name": "gpus"},
    "spec": {
        "rules": [
            {
                "name": "gpu",
                "labels": {"example.com/gpu": "true"},
                "annotations": {"example.com/note": "has a card"},
                "extendedResources": {"example.com/cards": "8000"},
                "taints": [{"key": "example.com/gpu", "value": "yes", "effect": "NoSchedule"}],
                "matchFeatures": [
                    {
                        "feature": "pci.device",
                        "matchExpressions": {"vendor": {"op": "In", "value": ["10de"]}},
                    }
                ],
            }
        ]
    },
}


class Story:
    def __init__(self, server: apiserver.ApiServer, host: Host) -> None:
        self.server, self.host = server, host

    def settings(self, **more: Any) -> Settings:
        given: dict[str, Any] = {
            "node_name": NODE,
            "namespace": NAMESPACE,
            "identity": "one",
            "host_root": self.host.root,
            "scan_seconds": 0.05,
            "poll_seconds": 0.02,
            "absent_seconds": 0.0,
            **more,
        }
        return Settings(**given)

    @contextlib.asynccontextmanager
    async def run(self, *kinds: type, **more: Any) -> AsyncIterator[None]:
        """Run processes inside the block; leaving it is as abrupt as a kill."""
        async with self.server.client() as api:
            given = self.settings(**more)
            running = [asyncio.create_task(kind(given, api).run()) for kind in kinds]
            try:
                yield
            finally:
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)

    @property
    def node(self) -> dict[str, Any]:
        return self.server.objects(resources.NODE)[NODE]

    @property
    def labels(self) -> dict[str, str]:
        found: dict[str, str] = self.node["metadata"].get("labels") or {}
        return found

    def feature(self, name: str = NODE, node: str = NODE, **given: str) -> None:
        """Write a NodeFeature as another program would."""
        self.server.put(
            resources.NODE_FEATURE,
            {
                "metadata": {
                    "name": name,
                    "namespace": NAMESPACE,
                    "labels": {labels.FEATURES_NODE: node},
                },
                "spec": {"labels": {f"nvidia.com/{key}": value for key, value in given.items()}},
            },
        )


@pytest.fixture
async def story(tmp_path: Path) -> AsyncIterator[Story]:
    async with apiserver.ApiServer() as server:
        server.put(
            resources.NODE,
            {
                "metadata": {"name": NODE, "uid": "node-uid", "labels": {"team": "blue"}},
                "status": {"capacity": {"cpu": "4"}},
            },
        )
        host = Host(tmp_path)
        host.write("proc/modules", "nvidia 1 0 - Live 0x0\n")
        yield Story(server, host)


async def test_a_card_that_comes_is_a_label_and_one_that_goes_is_none(story: Story) -> None:
    async with story.run(worker.Worker, master.Master):
        await story.server.until(
            lambda: "feature.node.kubernetes.io/system-os_release.ID" in story.labels
        )
        assert PCI not in story.labels
        story.host.plug("0000:1b:00.0")
        await story.server.until(lambda: story.labels.get(PCI) == "true")
        story.host.unplug("0000:1b:00.0")
        await story.server.until(lambda: PCI not in story.labels)
    assert story.labels["team"] == "blue"
    owner = story.server.objects(resources.NODE_FEATURE)[KEY]["metadata"]["ownerReferences"]
    assert [each["kind"] for each in owner] == ["Node"]


async def test_a_bus_that_the_kernel_does_not_speak_of_is_looked_at_each_second(
    story: Story,
) -> None:
    elsewhere = {"host_root_on_node": "/mnt/host", "scan_seconds": 3600.0}
    async with story.run(worker.Worker, master.Master, **elsewhere):
        await story.server.until(
            lambda: "feature.node.kubernetes.io/system-os_release.ID" in story.labels
        )
        story.host.plug("0000:1b:00.0")
        await story.server.until(lambda: story.labels.get(PCI) == "true")


async def test_a_rule_gives_all_that_it_can_and_takes_it_back(story: Story) -> None:
    story.host.plug("0000:1b:00.0")
    foreign = {
        "key": "node.kubernetes.io/x",
        "effect": "NoExecute",
        "timeAdded": "2026-01-01T00:00:00Z",
    }
    story.server.put(resources.NODE, {**story.node, "spec": {"taints": [foreign]}})
    async with story.run(worker.Worker, master.Master, enable_taints=True):
        story.server.put(resources.NODE_FEATURE_RULE, RULE)
        await story.server.until(lambda: story.node["status"]["capacity"].get("example.com/cards"))
        assert story.labels["example.com/gpu"] == "true"
        assert story.node["metadata"]["annotations"]["example.com/note"] == "has a card"
        mine = {"key": "example.com/gpu", "value": "yes", "effect": "NoSchedule"}
        assert story.node["spec"]["taints"] == [foreign, mine]
        story.server.remove(resources.NODE_FEATURE_RULE, "gpus")
        await story.server.until(
            lambda: labels.FEATURES_RESOURCES not in story.node["metadata"]["annotations"]
        )
    assert "example.com/gpu" not in story.labels
    assert "example.com/note" not in story.node["metadata"]["annotations"]
    assert story.node["spec"]["taints"] == [foreign]
    assert story.node["status"]["capacity"] == {"cpu": "4"}


@pytest.mark.parametrize("killed_at", [1, 2, 3, 4])
async def test_a_master_that_is_killed_between_two_writes_leaves_nothing_behind(
    story: Story, killed_at: int
) -> None:
    """Each life of the master ends at its n-th write to the Node; the last one may go on."""
    story.host.plug("0000:1b:00.0")

    def writes() -> int:
        return len([each for each in story.server.writes if f"/nodes/{NODE}" in each.path])

    async def lives(done: Callable[[], bool]) -> None:
        for _ in range(2):
            before = writes()
            async with story.run(master.Master, enable_taints=True):
                await story.server.until(lambda: done() or writes() >= before + killed_at)  # noqa: B023
        async with story.run(master.Master, enable_taints=True):
            await story.server.until(done)

    async with story.run(worker.Worker):
        story.server.put(resources.NODE_FEATURE_RULE, RULE)
        await lives(lambda: "example.com/cards" in story.node["status"]["capacity"])
        assert story.labels["example.com/gpu"] == "true"
        story.server.remove(resources.NODE_FEATURE_RULE, "gpus")
        notes = [labels.FEATURES_RESOURCES, labels.FEATURES_TAINTS, labels.FEATURES_ANNOTATIONS]
        await lives(lambda: not {*notes} & {*story.node["metadata"]["annotations"]})
    assert "example.com/gpu" not in story.labels
    assert "example.com/note" not in story.node["metadata"]["annotations"]
    assert story.node["status"]["capacity"] == {"cpu": "4"}
    assert not story.node.get("spec", {}).get("taints")


@pytest.mark.parametrize("status", [503, 410, 500])
async def test_no_label_goes_while_the_lists_are_not_complete(story: Story, status: int) -> None:
    story.feature(**{"gpu.count": "4"})
    async with story.run(master.Master):
        await story.server.until(lambda: story.labels.get("nvidia.com/gpu.count") == "4")
    story.server.fail(2, status, path="nodefeatures")
    before = len(story.server.seen)

    def tries() -> int:
        return len([each for each in story.server.seen[before:] if "/nodefeatures" in each.path])

    async with story.run(master.Master):
        await story.server.until(lambda: tries() > 2)
        await story.server.until(lambda: any("leases" in each.path for each in story.server.writes))
        assert story.labels["nvidia.com/gpu.count"] == "4"
    held = [each.body for each in story.server.seen[before:] if each.path.endswith(f"nodes/{NODE}")]
    assert held == []


async def test_a_feature_that_is_written_anew_keeps_its_labels(story: Story) -> None:
    story.feature(**{"gpu.count": "4"})
    async with story.run(master.Master, absent_seconds=60.0):
        await story.server.until(lambda: story.labels.get("nvidia.com/gpu.count") == "4")
        story.server.remove(resources.NODE_FEATURE, KEY)
        story.feature("other", **{"more": "1"})
        await story.server.until(lambda: "nvidia.com/more" in story.labels)
        assert story.labels["nvidia.com/gpu.count"] == "4"
        story.feature(**{"gpu.count": "5"})
        await story.server.until(lambda: story.labels.get("nvidia.com/gpu.count") == "5")


async def test_a_writer_that_restarts_with_the_master_keeps_its_labels(story: Story) -> None:
    story.feature(**{"gpu.count": "4"})
    story.feature("other", **{"more": "1"})
    async with story.run(master.Master):
        await story.server.until(
            lambda: {"nvidia.com/gpu.count", "nvidia.com/more"} <= {*story.labels}
        )
    story.server.remove(resources.NODE_FEATURE, KEY)
    async with story.run(master.Master, absent_seconds=60.0):
        story.feature("other", **{"more": "2"})
        await story.server.until(lambda: story.labels.get("nvidia.com/more") == "2")
        assert story.labels["nvidia.com/gpu.count"] == "4"


async def test_a_feature_that_was_deleted_takes_its_labels_along(story: Story) -> None:
    story.feature(**{"gpu.count": "4"})
    async with story.run(master.Master):
        await story.server.until(lambda: story.labels.get("nvidia.com/gpu.count") == "4")
    story.server.remove(resources.NODE_FEATURE, KEY)
    async with story.run(master.Master, absent_seconds=0.2):
        await story.server.until(lambda: story.labels == {"team": "blue"})


async def test_a_label_that_somebody_removes_is_put_back(story: Story) -> None:
    story.feature(**{"gpu.count": "4"})
    async with story.run(master.Master):
        await story.server.until(lambda: "nvidia.com/gpu.count" in story.labels)
        held = story.node
        story.server.put(
            resources.NODE, {**held, "metadata": {**held["metadata"], "labels": {"team": "blue"}}}
        )
        await story.server.until(lambda: "nvidia.com/gpu.count" in story.labels)


async def test_files_of_others_are_seen_at_once_and_expire_with_their_file(story: Story) -> None:
    folder = "etc/kubernetes/node-feature-discovery/features.d"
    async with story.run(worker.Worker, master.Master, scan_seconds=3600.0):
        await story.server.until(
            lambda: "feature.node.kubernetes.io/system-os_release.ID" in story.labels
        )
        story.host.write(f"{folder}/gfd", "nvidia.com/gpu.count=4\nplain\n")
        await story.server.until(lambda: story.labels.get("nvidia.com/gpu.count") == "4")
        assert story.labels["feature.node.kubernetes.io/plain"] == "true"
        (story.host.root / folder / "gfd").unlink()
        await story.server.until(lambda: "nvidia.com/gpu.count" not in story.labels)


async def test_a_file_that_was_there_for_one_look_alone_leaves_no_label(story: Story) -> None:
    """It came and went between two looks at names and times; something else had the host read."""
    folder = "etc/kubernetes/node-feature-discovery/features.d"
    made: list[worker.Worker] = []

    class Watched(worker.Worker):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(self)

    async with story.run(Watched, master.Master, scan_seconds=3600.0, poll_seconds=1.0):
        await story.server.until(
            lambda: "feature.node.kubernetes.io/system-os_release.ID" in story.labels
        )
        story.host.write(f"{folder}/gfd", "nvidia.com/gpu.count=4\n")
        made[0]._wanted.set()
        await story.server.until(lambda: "nvidia.com/gpu.count" in story.labels)
        (story.host.root / folder / "gfd").unlink()
        await story.server.until(lambda: "nvidia.com/gpu.count" not in story.labels)


async def test_a_feature_of_a_node_that_is_gone_is_deleted(story: Story) -> None:
    story.server.put(resources.NODE, {"metadata": {"name": "node-1"}})
    story.feature("here")
    story.feature("there", "node-1")
    story.feature("never", "node-9")
    async with story.run(collecting.Collector):
        features = story.server.objects(resources.NODE_FEATURE)
        await story.server.until(
            lambda: f"{NAMESPACE}/never" not in story.server.objects(resources.NODE_FEATURE)
        )
        assert f"{NAMESPACE}/there" in features
        story.server.remove(resources.NODE, "node-1")
        await story.server.until(
            lambda: set(story.server.objects(resources.NODE_FEATURE)) == {f"{NAMESPACE}/here"}
        )


async def test_a_node_whose_name_is_too_long_for_a_label_keeps_its_features(story: Story) -> None:
    long = "node-" + "x" * 80
    story.server.put(resources.NODE, {"metadata": {"name": long}})
    story.feature("kept", names.node_label(long))
    story.feature("gone", "node-9")
    async with story.run(collecting.Collector):

        def left() -> set[str]:
            return set(story.server.objects(resources.NODE_FEATURE))

        await story.server.until(lambda: left() == {f"{NAMESPACE}/kept"})
        story.server.remove(resources.NODE, long)
        await story.server.until(lambda: left() == set())


async def test_a_bad_rule_is_said_on_the_rule_and_the_others_go_on(story: Story) -> None:
    bad = {"name": "bad", "labels": {"a": "b"}, "labelsTemplate": "{{ .pci.device }",
           "matchFeatures": [{"feature": "pci.device", "matchExpressions": {}}]}  # fmt: skip
    story.host.plug("0000:1b:00.0")
    story.server.put(
        resources.NODE_FEATURE_RULE,
        {
            "metadata": {"name": "r", "uid": "rule-uid"},
            "spec": {"rules": [bad, {"name": "good", "labels": {"c": "d"}}]},
        },
    )
    async with story.run(worker.Worker, master.Master):
        await story.server.until(lambda: "feature.node.kubernetes.io/c" in story.labels)
        events = await story.server.until(lambda: story.server.objects(resources.EVENT))
    assert {each["involvedObject"]["name"] for each in events.values()} == {"r"}
    assert any("spec.rules[0].labelsTemplate" in each["message"] for each in events.values())
    assert "feature.node.kubernetes.io/a" not in story.labels


async def test_what_the_api_server_refuses_is_said_on_the_node(story: Story) -> None:
    story.feature(count="4")
    story.server.fail(1, 422, method="PATCH", path=f"/nodes/{NODE}")
    async with story.run(master.Master):
        events = await story.server.until(lambda: story.server.objects(resources.EVENT))
    assert {each["involvedObject"]["name"] for each in events.values()} == {NODE}
    assert {each["reason"] for each in events.values()} == {"FeatureRefused"}


async def test_the_master_answers_while_a_rule_takes_long_and_the_rule_is_refused(
    story: Story,
) -> None:
    there = {"local.feature": {"x": "y"}}
    some = [{"feature": "local.feature", "matchExpressions": {"x": {"op": "Exists"}}}]
    long = "{{ range 9999 }}{{ $x := until 9999 | uniq }}{{ end }}"
    rules = [{"name": "long", "labels": {"a": "b"}, "labelsTemplate": long, "matchFeatures": some},
             {"name": "good", "labels": {"c": "d"}}]  # fmt: skip
    given = {"metadata": {"name": "r", "uid": "rule-uid"}, "spec": {"rules": rules}}
    story.feature()
    feature = story.server.objects(resources.NODE_FEATURE)[KEY]
    feature["spec"]["features"] = {
        "attributes": {name: {"elements": found} for name, found in there.items()}
    }
    story.server.put(resources.NODE_FEATURE, feature)
    begin = time.thread_time()
    deciding.wanted([], deciding.named([msgspec.convert(given, NodeFeatureRule)]), NAMESPACE,
                    Policy(), known=Known(attributes=there))  # fmt: skip
    takes = time.thread_time() - begin
    gaps: list[float] = []

    async def tick() -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0.001)
            gaps.append(time.thread_time() - last)
            last = time.thread_time()

    story.server.put(resources.NODE_FEATURE_RULE, given)
    async with story.run(master.Master):
        ticks = asyncio.create_task(tick())
        await story.server.until(lambda: "feature.node.kubernetes.io/c" in story.labels)
        events = await story.server.until(lambda: story.server.objects(resources.EVENT))
        ticks.cancel()
    (event,) = events.values()
    assert "rule 'long'" in event["message"]
    assert "takes too long" in event["message"]
    assert "feature.node.kubernetes.io/a" not in story.labels
    assert max(gaps) < takes / 2  # Of the processor, which others may keep from us.


async def test_a_mistake_in_a_rule_is_told_before_a_node_fits(story: Story) -> None:
    rule = {"name": "later", "labelsTemplate": "{{ now }}",
            "matchFeatures": [{"feature": "pci.device", "matchExpressions": {
                "vendor": {"op": "In", "value": ["ffff"]}}}]}  # fmt: skip
    story.server.put(
        resources.NODE_FEATURE_RULE,
        {"metadata": {"name": "r", "uid": "rule-uid"}, "spec": {"rules": [rule]}},
    )
    async with story.run(worker.Worker, master.Master):
        events = await story.server.until(lambda: story.server.objects(resources.EVENT))
    (event,) = events.values()
    assert event["involvedObject"]["name"] == "r"
    assert "'now' is not known here: labels would change" in event["message"]


async def test_a_worker_that_starts_beside_a_sick_bus_takes_no_label_away(story: Story) -> None:
    story.host.plug("0000:1b:00.0")
    async with story.run(worker.Worker, master.Master):
        await story.server.until(lambda: PCI in story.labels)
    bus = story.host.root / "sys/bus"
    bus.rename(bus.with_name("away"))
    story.host.write("proc/sys/kernel/osrelease", "6.9.0\n")
    version = "feature.node.kubernetes.io/kernel-version.full"
    async with story.run(worker.Worker, master.Master):
        await story.server.until(lambda: story.labels.get(version) == "6.9.0")
        assert PCI in story.labels
        bus.with_name("away").rename(bus)
        story.host.unplug("0000:1b:00.0")
        await story.server.until(lambda: PCI not in story.labels)


async def test_features_that_change_while_their_node_is_written_are_not_lost(story: Story) -> None:
    async with story.run(master.Master):
        for count in range(1, 20):
            story.feature("other", count=str(count))
            await story.server.until(lambda: "nvidia.com/count" in story.labels)
            story.feature("other", count=str(-count), more="true")
            story.feature("other", count=f"{count}-last")
            wanted = f"{count}-last"
            await story.server.until(
                lambda wanted=wanted: story.labels.get("nvidia.com/count") == wanted
            )
    assert "nvidia.com/more" not in story.labels


async def test_a_quiet_world_is_not_written_to(story: Story) -> None:
    story.host.plug("0000:1b:00.0")

    def looks() -> float:
        return metrics.registry.get_sample_value("gpudeck_features_scan_seconds_count") or 0.0

    def writes() -> int:
        return len([each for each in story.server.writes if "lease" not in each.path])

    async with story.run(worker.Worker, master.Master, resync_seconds=0.05):
        await story.server.until(lambda: PCI in story.labels)
        before, count = looks(), writes()
        await story.server.until(lambda: looks() > before + 5)
        assert writes() == count


async def test_a_group_lists_the_nodes_that_fit(story: Story) -> None:
    story.host.plug("0000:1b:00.0")
    rules = [{"name": "gpu", "matchFeatures": RULE["spec"]["rules"][0]["matchFeatures"]}]  # type: ignore[index]
    story.server.put(
        resources.NODE_FEATURE_GROUP,
        {
            "metadata": {"name": "gpus", "namespace": NAMESPACE},
            "spec": {"featureGroupRules": rules},
        },
    )

    def members() -> list[str]:
        group = story.server.objects(resources.NODE_FEATURE_GROUP)[f"{NAMESPACE}/gpus"]
        return [each["name"] for each in group.get("status", {}).get("nodes", [])]

    async with story.run(worker.Worker, master.Master):
        await story.server.until(lambda: members() == [NODE])
        story.host.unplug("0000:1b:00.0")
        await story.server.until(lambda: members() == [])


async def test_a_configuration_that_changes_changes_the_labels_and_a_wrong_one_nothing(
    story: Story, tmp_path: Path
) -> None:
    file = tmp_path / "nfd-worker.conf"
    file.write_text("sources: {pci: {deviceLabelFields: [vendor]}}")
    by_vendor = "feature.node.kubernetes.io/pci-10de.present"
    story.host.plug("0000:1b:00.0")

    def is_read() -> float | None:
        return metrics.registry.get_sample_value("gpudeck_features_config_success")

    async with story.run(worker.Worker, master.Master):
        await story.server.until(lambda: story.labels.get(PCI) == "true")
    async with (
        story.run(worker.Worker, config=str(file), scan_seconds=3600.0),
        story.run(master.Master),
    ):
        await story.server.until(lambda: story.labels.get(by_vendor) == "true")
        assert PCI not in story.labels
        file.write_text("sources: {pci: {deviceLabelField: [class, vendor]}}")
        await story.server.until(lambda: is_read() == 0)
        assert by_vendor in story.labels
        file.write_text("sources: {pci: {deviceLabelFields: [class, vendor]}}")
        await story.server.until(lambda: story.labels.get(PCI) == "true")
        assert by_vendor not in story.labels


async def test_features_that_are_not_published_still_give_labels(
    story: Story, tmp_path: Path
) -> None:
    file = tmp_path / "nfd-worker.conf"
    file.write_text("core: {noPublishFeatures: [pci.device, 'cpu.*']}")
    story.host.plug("0000:1b:00.0")
    async with story.run(worker.Worker, config=str(file)), story.run(master.Master):
        await story.server.until(lambda: story.labels.get(PCI) == "true")
    features = story.server.objects(resources.NODE_FEATURE)[KEY]["spec"]["features"]
    assert "pci.device" not in features["instances"]
    assert "usb.device" in features["instances"]
    assert not [name for name in features["attributes"] if name.startswith("cpu.")]


async def test_only_namespaces_that_are_selected_count(story: Story, tmp_path: Path) -> None:
    file = tmp_path / "nfd-master.conf"
    file.write_text("restrictions: {nodeFeatureNamespaceSelector: {matchLabels: {gpu: 'yes'}}}")
    story.server.put(resources.NAMESPACE, {"metadata": {"name": NAMESPACE, "labels": {}}})
    story.feature(**{"gpu.count": "4"})
    async with story.run(master.Master, config=str(file)):
        story.server.put(
            resources.NAMESPACE, {"metadata": {"name": NAMESPACE, "labels": {"gpu": "yes"}}}
        )
        await story.server.until(lambda: story.labels.get("nvidia.com/gpu.count") == "4")
        story.server.put(resources.NAMESPACE, {"metadata": {"name": NAMESPACE, "labels": {}}})
        await story.server.until(lambda: "nvidia.com/gpu.count" not in story.labels)
        file.write_text("enableTaints: true")
        await story.server.until(lambda: story.labels.get("nvidia.com/gpu.count") == "4")


async def test_an_order_of_another_namespace_is_not_written_and_told_on_the_node(
    story: Story,
) -> None:
    story.server.put(
        resources.NODE_FEATURE,
        {
            "metadata": {
                "name": "mine",
                "namespace": "team",
                "labels": {labels.FEATURES_NODE: NODE},
            },
            "spec": {"labels": {labels.MODE: "dra", "example.com/fact": "true"}},
        },
    )
    async with story.run(master.Master):
        await story.server.until(lambda: story.labels.get("example.com/fact") == "true")
        events = await story.server.until(lambda: story.server.objects(resources.EVENT))
    (event,) = events.values()
    assert (event["involvedObject"]["kind"], event["reason"]) == ("Node", "FeatureRefused")
    assert f"label {labels.MODE} of NodeFeature team/mine: 'dra'" in event["message"]
    assert labels.MODE not in story.labels


async def test_gpu_labels_pass_although_all_namespaces_are_denied(
    story: Story, tmp_path: Path
) -> None:
    file = tmp_path / "nfd-master.conf"
    file.write_text('{"extraLabelNs": ["nvidia.com"], "denyLabelNs": ["*"]}')
    story.feature(**{"gpu.count": "4"})
    story.server.put(resources.NODE_FEATURE_RULE, {
        "metadata": {"name": "r"},
        "spec": {"rules": [{"name": "denied", "labels": {"example.com/a": "b", "own": "c"}}]},
    })  # fmt: skip
    async with story.run(master.Master, config=str(file)):
        await story.server.until(lambda: "feature.node.kubernetes.io/own" in story.labels)
        assert story.labels["nvidia.com/gpu.count"] == "4"
        assert "example.com/a" not in story.labels


async def test_what_is_a_labels_owner_elsewhere_stays_its_owner_without_overwriting(
    story: Story,
) -> None:
    story.server.put(
        resources.NODE,
        {"metadata": {"name": NODE, "labels": {"nvidia.com/team": "blue"}}},
    )
    story.feature(**{"team": "red", "gpu.count": "4"})
    async with story.run(master.Master, allow_overwrite=False):
        await story.server.until(lambda: story.labels.get("nvidia.com/gpu.count") == "4")
        assert story.labels["nvidia.com/team"] == "blue"
        events = await story.server.until(lambda: story.server.objects(resources.EVENT))
    assert any("nvidia.com/team" in each["message"] for each in events.values())


async def test_a_master_that_may_not_publish_writes_to_no_node(story: Story) -> None:
    story.feature(**{"gpu.count": "4"})
    async with story.run(master.Master, no_publish=True):
        await story.server.until(lambda: any("leases" in each.path for each in story.server.writes))
    assert story.labels == {"team": "blue"}
