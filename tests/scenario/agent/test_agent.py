# SPDX-License-Identifier: Apache-2.0
"""The node agent against an API server: cards come, go, return, and are told apart from faults."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.scenario.agent.bus import FIRST, NODE, SECOND, Host, Story
from tests.support import apiserver

from gpudeck.agent import metrics, nodes
from gpudeck.api import resources
from gpudeck.api.meta import Meta
from gpudeck.kube.client import Client

NVIDIA_ONLY = 'vendors: [{id: "10de", name: nvidia}]\nclasses: ["03"]\n'


@pytest.fixture
async def story(tmp_path: Path) -> AsyncIterator[Story]:
    async with apiserver.ApiServer() as server:
        server.put(resources.NODE, {"metadata": {"name": NODE, "uid": "node-uid"}})
        host = Host(tmp_path / "root")
        host.plug("0000:1b:00.0")
        yield Story(server, host)


async def test_a_card_becomes_an_object_and_the_node_is_labelled(story: Story) -> None:
    async with story.agent():
        await story.is_found(FIRST)
        await story.server.until(lambda: story.vendor_label() == "nvidia")
    gpu = story.gpus[FIRST]
    assert gpu["metadata"]["labels"] == {
        "gpu.deckhouse.io/node": NODE,
        "gpu.deckhouse.io/vendor": "nvidia",
        "gpu.deckhouse.io/device": "h100-sxm5-80gb",
    }
    (owner,) = gpu["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == (
        "Node",
        story.server.objects(resources.NODE)[NODE]["metadata"]["uid"],
    )
    assert gpu["status"]["nodeInfo"] == {
        "nodeName": NODE,
        "os": {"id": "ubuntu", "version": "24.04", "name": "Ubuntu 24.04"},
        "kernelRelease": "6.8.0-60-generic",
        "bareMetal": True,
    }
    assert gpu["status"]["pciInfo"] == {
        "address": "0000:1b:00.0",
        "class": {"code": "0302", "name": "3D controller"},
        "vendor": {"id": "10de", "name": "NVIDIA Corporation"},
        "device": {"id": "2330", "name": "GH100 [H100 SXM5 80GB]"},
        "numaNode": 0,
        "pcieRoot": "pci0000:15",
    }
    assert gpu["status"]["currentState"] == {"driverType": "Nvidia"}


async def test_nothing_is_written_while_nothing_changes(story: Story) -> None:
    async with story.agent():
        await story.is_found(FIRST)
        await story.server.until(lambda: story.vendor_label() == "nvidia")
        await story.server.until(lambda: "PhysicalGPUCreated" in story.events())
        written = len(story.server.writes)
        await _another_look(story)
        # The kubelet reports the Node's state now and then: that is no reason to write either.
        story.change_node(annotations={"volumes": "1"})
        await _another_look(story)
        assert story.server.writes[written:] == []


async def _another_look(story: Story) -> None:
    """Wait until the bus has been looked at three times more."""
    before = _looks()
    await story.server.until(lambda: _looks() >= before + 3)


def _looks() -> float:
    return metrics.registry.get_sample_value("gpudeck_agent_scan_seconds_count") or 0.0


async def test_a_card_that_is_plugged_in_is_found_and_its_driver_followed(story: Story) -> None:
    async with story.agent():
        await story.is_found(FIRST)
        story.host.plug("0000:43:00.0", driver="none")
        await story.is_found(FIRST, SECOND)
        assert story.gpus[SECOND]["status"]["currentState"]["driverType"] == "None"
        story.host.bind("0000:43:00.0", "vfio-pci")
        await story.server.until(
            lambda: story.gpus[SECOND]["status"]["currentState"]["driverType"] == "VFIO"
        )


async def test_a_lost_card_keeps_its_object_and_returns(story: Story) -> None:
    async with story.agent():
        await story.is_found(FIRST)
        await story.occupy(FIRST, state="Free")
        story.host.unplug("0000:1b:00.0")
        await story.server.until(lambda: story.discovered(FIRST) == ("False", "CardLost"))
        lost = story.gpus[FIRST]["status"]
        assert lost["lostSince"]
        assert lost["pciInfo"]["address"] == "0000:1b:00.0"
        assert lost["occupancy"] == {"state": "Free"}
        await story.server.until(lambda: story.vendor_label() is None)
        story.host.plug("0000:1b:00.0")
        await story.is_found(FIRST)
        assert "lostSince" not in story.gpus[FIRST]["status"]
        await story.server.until(lambda: {"CardLost", "CardReturned"} <= story.events())
        await story.server.until(lambda: story.vendor_label() == "nvidia")


async def test_a_loss_while_the_agent_was_down_is_noticed_at_the_next_start(story: Story) -> None:
    story.host.plug("0000:43:00.0")
    async with story.agent():
        await story.is_found(FIRST, SECOND)
        await story.server.until(lambda: story.vendor_label() == "nvidia")
    await story.occupy(FIRST, state="Free")
    story.host.unplug("0000:1b:00.0")
    story.host.unplug("0000:43:00.0")
    async with story.agent():
        await story.server.until(lambda: story.discovered(FIRST) == ("False", "CardLost"))
        # The second had no occupancy yet: nothing can hold it, so it goes at once.
        await story.server.until(lambda: set(story.gpus) == {FIRST})
        await story.server.until(lambda: story.vendor_label() is None)


async def test_a_node_whose_last_card_goes_in_a_change_of_partitions_is_given_back_first(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The MIG manager runs where the label is; without it the cordon would stay for ever."""
    monkeypatch.setattr(nodes, "WRITE_SECONDS", 0.0)
    taint = {"key": "mig-reconfigure", "value": "true", "effect": "NoSchedule"}
    async with story.agent(), story.server.client() as api:
        await story.server.until(lambda: story.vendor_label() == "nvidia")
        body = {"spec": {"taints": [taint]}}
        await api.merge_patch(resources.NODE, NODE, body, Meta, manager="mig-manager")
        story.host.unplug("0000:1b:00.0")
        await story.server.until(lambda: not story.gpus)
        await _another_look(story)
        assert story.vendor_label() == "nvidia"
        body = {"spec": {"taints": []}}
        await api.merge_patch(resources.NODE, NODE, body, Meta, manager="mig-manager")
        await story.server.until(lambda: story.vendor_label() is None)


async def test_a_label_of_somebody_else_stays(story: Story) -> None:
    story.host.unplug("0000:1b:00.0")
    node = {"metadata": {"name": NODE, "labels": {"gpu.deckhouse.io/vendor": "x", "team": "blue"}}}
    story.server.put(resources.NODE, node)
    async with story.agent():
        await story.server.until(lambda: _node_writes(story))
        await _another_look(story)
        assert story.vendor_label() == "x"
        assert len(_node_writes(story)) == 1
    labels = story.server.objects(resources.NODE)[NODE]["metadata"]["labels"]
    assert labels["team"] == "blue"


def _node_writes(story: Story) -> list[apiserver.Seen]:
    return [each for each in story.server.writes if each.path.endswith(f"/nodes/{NODE}")]


async def test_a_label_that_somebody_removes_is_back_within_seconds(story: Story) -> None:
    async with story.agent():
        await story.server.until(lambda: story.vendor_label() == "nvidia")
        story.change_node(labels={"team": "blue"})
        await story.server.until(lambda: story.vendor_label() == "nvidia")
    assert story.server.objects(resources.NODE)[NODE]["metadata"]["labels"]["team"] == "blue"


async def test_a_label_that_somebody_else_overwrites_is_ours_while_there_are_cards(
    story: Story,
) -> None:
    async with story.agent():
        await story.server.until(lambda: story.vendor_label() == "nvidia")
        story.change_node(labels={"gpu.deckhouse.io/vendor": "x", "team": "blue"})
        await story.server.until(lambda: story.vendor_label() == "nvidia")
        # Taken back, it is ours again, so it goes with the last card.
        story.host.unplug("0000:1b:00.0")
        await story.server.until(lambda: story.vendor_label() is None)
    labels = story.server.objects(resources.NODE)[NODE]["metadata"]["labels"]
    assert labels == {"team": "blue"}


async def test_one_who_overwrites_the_label_again_and_again_makes_no_storm(story: Story) -> None:
    async with story.agent():
        await story.server.until(lambda: story.vendor_label() == "nvidia")
        written = len(_node_writes(story))
        for value in ("x", "y"):
            story.change_node(labels={"gpu.deckhouse.io/vendor": value})
            await _another_look(story)
        await story.server.until(lambda: story.vendor_label() == "nvidia")
        assert len(_node_writes(story)) <= written + 2


async def test_a_node_made_anew_is_labelled_and_owns_its_cards_within_seconds(
    story: Story,
) -> None:
    async with story.agent():
        await story.is_found(FIRST)
        await story.server.until(lambda: story.vendor_label() == "nvidia")
        story.server.remove(resources.NODE, NODE)
        await _another_look(story)
        assert story.server.objects(resources.NODE) == {}
        story.server.put(resources.NODE, {"metadata": {"name": NODE, "uid": "another"}})
        await story.server.until(lambda: story.vendor_label() == "nvidia")
        await story.server.until(lambda: story.owners(FIRST) == ["another"])


async def test_a_label_removed_while_the_agent_was_cut_off_is_back_when_it_is_not(
    story: Story,
) -> None:
    async with story.agent():
        await story.server.until(lambda: story.vendor_label() == "nvidia")
        story.server.cut_streams()
        story.server.expire()
        story.change_node(labels={})
        await story.server.until(lambda: story.vendor_label() == "nvidia")


async def test_a_sick_card_is_unknown_and_the_others_are_found(story: Story) -> None:
    async with story.agent():
        await story.is_found(FIRST)
        story.host.sicken("0000:1b:00.0")
        story.host.plug("0000:43:00.0")
        await story.server.until(lambda: story.discovered(FIRST) == ("Unknown", "CardUnreadable"))
        await story.server.until(lambda: story.discovered(SECOND) == ("True", "CardFound"))
        await story.server.until(lambda: "PciDeviceUnreadable" in story.events())
        story.host.heal("0000:1b:00.0")
        await story.is_found(FIRST, SECOND)


async def test_an_absent_bus_makes_no_card_lost(story: Story) -> None:
    async with story.agent():
        await story.is_found(FIRST)
    bus = story.host.root / "sys/bus"
    bus.rename(story.host.root / "sys/away")
    async with story.agent():
        await story.server.until(
            lambda: metrics.registry.get_sample_value("gpudeck_agent_scan_success") == 0
        )
        assert story.discovered(FIRST) == ("True", "CardFound")
        await story.server.until(lambda: "PciBusUnreadable" in story.events())
        (story.host.root / "sys/away").rename(bus)
        await story.server.until(
            lambda: metrics.registry.get_sample_value("gpudeck_agent_scan_success") == 1
        )
        assert story.discovered(FIRST) == ("True", "CardFound")


async def test_a_new_list_of_vendors_is_used_at_once(story: Story) -> None:
    story.host.plug(
        "0000:43:00.0", driver="metax", **{"class": "0x120000"}, vendor="0x9999", device="0x4001"
    )
    story.allow(NVIDIA_ONLY)
    async with story.agent():
        await story.is_found(FIRST)
        story.allow(NVIDIA_ONLY.replace("name: nvidia}", 'name: nvidia}, {id: "9999", name: m}'))
        story.allow('vendors: [{id: "10de", name: nvidia}, {id: "9999", name: m}]\nclasses: ["12"]')
        await story.server.until(lambda: story.discovered(SECOND) == ("True", "CardFound"))
        await story.is_found(SECOND)
    assert story.gpus[SECOND]["metadata"]["labels"]["gpu.deckhouse.io/device"] == "mxc500"
    assert story.gpus[SECOND]["status"]["currentState"]["driverType"] == "MetaX"


async def test_a_wrong_list_keeps_the_last_good_one_and_says_so(story: Story) -> None:
    story.allow(NVIDIA_ONLY)
    async with story.agent():
        await story.is_found(FIRST)
        story.allow("vendors: [{id: 10de, name: NVIDIA}]\nclasses: [3]\n")
        await story.server.until(lambda: "SupportedVendorsInvalid" in story.events())
        messages = [
            each["message"]
            for each in story.server.objects(resources.EVENT).values()
            if each["reason"] == "SupportedVendorsInvalid"
        ]
        assert "vendors[0].name: 'NVIDIA'" in messages[0]
        assert messages[0].endswith("The last valid list stays in force.")
        story.host.plug("0000:43:00.0")
        await story.is_found(FIRST, SECOND)


async def test_a_held_card_taken_out_of_the_list_says_why_it_is_not_discovered(
    story: Story,
) -> None:
    async with story.agent():
        await story.is_found(FIRST)
        claim = {"namespace": "default", "name": "c", "uid": "u", "device": "d"}
        await story.occupy(FIRST, state="Full", claims=[claim])
        story.allow(NVIDIA_ONLY.replace("10de", "1002"))
        await story.server.until(lambda: story.discovered(FIRST) == ("False", "CardNotSupported"))
        await story.occupy(FIRST, state="Free")
        await story.server.until(lambda: story.gpus == {})


async def test_what_others_change_or_delete_is_put_right(story: Story) -> None:
    async with story.agent():
        await story.is_found(FIRST)
        async with story.server.client() as api:
            await _relabel(api, {"gpu.deckhouse.io/vendor": "wrong"})
            await story.server.until(
                lambda: (
                    story.gpus[FIRST]["metadata"]["labels"]["gpu.deckhouse.io/vendor"] == "nvidia"
                )
            )
            await _relabel(api, {"gpu.deckhouse.io/node": "elsewhere"})
            await story.server.until(
                lambda: story.gpus[FIRST]["metadata"]["labels"]["gpu.deckhouse.io/node"] == NODE
            )
        uid = story.gpus[FIRST]["metadata"]["uid"]
        story.server.remove(resources.PHYSICAL_GPU, FIRST)
        await story.server.until(
            lambda: story.gpus.get(FIRST, {}).get("metadata", {}).get("uid", uid) != uid
        )
        await story.is_found(FIRST)


async def _relabel(api: Client, labels: dict[str, str]) -> None:
    patch = {"metadata": {"labels": labels}}
    await api.merge_patch(resources.PHYSICAL_GPU, FIRST, patch, dict)


async def test_while_the_api_server_is_away_changes_wait_and_then_arrive(story: Story) -> None:
    async with story.agent():
        await story.is_found(FIRST)
        await story.server.stop()
        story.host.plug("0000:43:00.0")
        await story.server.start()
        await story.is_found(FIRST, SECOND)


async def test_refused_writes_are_repeated(story: Story) -> None:
    story.server.fail(3, 503, method="PATCH")
    story.server.fail(1, 409, method="PATCH", reason="Conflict")
    story.server.fail(1, 403, method="PATCH", path=f"/api/v1/nodes/{NODE}", reason="Forbidden")
    async with story.agent():
        await story.is_found(FIRST)
        await story.server.until(lambda: story.vendor_label() == "nvidia")


async def test_cards_of_two_vendors_are_all_found_and_the_label_names_one(story: Story) -> None:
    for address in ("0000:43:00.0", "0000:44:00.0"):
        story.host.plug(address, driver="metax", vendor="0x9999", device="0x4001")
    async with story.agent():
        await story.is_found(FIRST, SECOND, "node-0-0000-44-00-0")
        await story.server.until(lambda: story.vendor_label() == "metax")
        await story.server.until(lambda: "SeveralVendors" in story.events())
        story.host.unplug("0000:44:00.0")
        await story.server.until(lambda: story.vendor_label() == "nvidia")


async def test_the_product_that_the_adapter_reports_becomes_the_device_label(
    story: Story,
) -> None:
    async with story.agent():
        await story.is_found(FIRST)
        async with story.server.client() as api:
            await api.apply(
                resources.PHYSICAL_GPU,
                {
                    "metadata": {"name": FIRST},
                    "status": {"capabilities": {"productName": "NVIDIA H100 80GB HBM3"}},
                },
                dict,
                manager="gpudeck-adapter",
                subresource="status",
            )
        await story.server.until(
            lambda: (
                story.gpus[FIRST]["metadata"]["labels"]["gpu.deckhouse.io/device"]
                == "h100-80gb-hbm3"
            )
        )
        assert story.gpus[FIRST]["status"]["capabilities"] == {
            "productName": "NVIDIA H100 80GB HBM3"
        }


async def test_a_node_that_is_not_registered_yet_is_waited_for(story: Story) -> None:
    story.server.remove(resources.NODE, NODE)
    async with story.agent():
        await _another_look(story)
        assert story.server.objects(resources.NODE) == {}
        story.server.put(resources.NODE, {"metadata": {"name": NODE}})
        await story.is_found(FIRST)
        await story.server.until(lambda: story.vendor_label() == "nvidia")
