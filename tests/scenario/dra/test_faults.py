# SPDX-License-Identifier: Apache-2.0
"""What a claim comes to when processes, files, peers or whole boots go away in between."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
from pathlib import Path

import pytest
from tests.scenario.dra.conftest import World
from tests.scenario.dra.standins import card, device

from gpudeck import errors, sockets
from gpudeck.adapter.v1 import adapter_pb2
from gpudeck.api import resources
from gpudeck.cdi import hooks
from gpudeck.dra import adapters, main
from gpudeck.kubelet import registering


async def test_a_restarted_plugin_gives_the_same_answer_without_its_peers(world: World) -> None:
    claim = world.claim("c", 1)
    first = await world.kubelet.prepare(claim)
    await world.restart()
    await world.adapter.stop()
    await world.api.stop()
    assert await world.kubelet.prepare(claim) == first
    assert await world.kubelet.unprepare(claim) == {"uid-c": ""}
    assert (world.specs(), world.states()) == ([], {})


@pytest.mark.parametrize("damage", ["lost", "changed"])
async def test_a_cdi_spec_is_made_again_by_a_repeated_prepare(world: World, damage: str) -> None:
    claim = world.claim("c", 1)
    await world.kubelet.prepare(claim)
    wanted = world.spec("c")
    path = world.cdi_root / "k8s.gpu.deckhouse.io-claim_uid-c.json"
    path.unlink() if damage == "lost" else path.write_text("{}")
    await world.adapter.stop()
    await world.api.stop()
    assert (await world.kubelet.prepare(claim))["uid-c"].error == ""
    assert world.spec("c") == wanted


async def test_a_new_driver_renews_the_spec_of_a_prepared_claim(world: World) -> None:
    claim = world.claim("c", 1)
    await world.kubelet.prepare(claim)
    old = world.spec("c")
    cards = [card(number) for number in range(5)]
    for each in cards:
        each.driver.version = "590.1.2"
    world.adapter.environment = ["DRIVER=590.1.2"]
    world.adapter.show(cards)
    await world.published(5)
    await world.api.stop()
    assert (await world.kubelet.prepare(claim))["uid-c"].error == ""
    assert world.spec("c")["containerEdits"]["env"] == ["DRIVER=590.1.2"]
    await world.kubelet.prepare(claim)
    assert world.adapter.prepare_calls == 2
    world.adapter.refusals["0000:11:00.0"] = adapter_pb2.Error(reason="CardNotReady", message="m")
    rewrite(world, "uid-c", {**entry_of(world, "c"), "driverVersion": "1", "spec": json.dumps(old)})
    assert (await world.kubelet.prepare(claim))["uid-c"].error == ""
    assert world.spec("c") == old


async def test_a_boot_drops_what_was_prepared_and_prepares_anew(world: World) -> None:
    claim, other = world.claim("c", 1), world.claim("gone", 2)
    await world.kubelet.prepare(claim, other)
    await world.stop()
    world.boot("boot-2")
    await world.start()
    assert world.states() == {}
    await world.published(4)
    calls = world.adapter.prepare_calls
    assert (await world.kubelet.prepare(claim))["uid-c"].error == ""
    assert (world.specs(), world.states()) == (["c"], {"c": "PrepareCompleted"})
    assert world.adapter.prepare_calls == calls + 1


async def test_a_checkpoint_without_a_boot_id_counts_as_this_boots(world: World) -> None:
    claim = world.claim("c", 1)
    world.boot_id_file.unlink()
    await world.restart()
    await world.published(4)
    first = await world.kubelet.prepare(claim)
    world.boot_id_file.write_text("boot-1")
    await world.restart()
    assert await world.kubelet.prepare(claim) == first
    assert world.adapter.prepare_calls == 1


@pytest.mark.parametrize("content", ["", "{", "garbage", '{"version":"v9"}', None])
async def test_an_unusable_checkpoint_is_replaced_and_said(
    world: World, content: str | None
) -> None:
    claim, other = world.claim("c", 1), world.claim("other", 2)
    first = await world.kubelet.prepare(claim, other)
    await world.stop()
    whole = world.checkpoint.read_text()
    world.checkpoint.write_text(whole[: len(whole) // 2] if content is None else content)
    bad = world.checkpoint.read_text()
    await world.start()
    assert await world.until(lambda: "CheckpointReplaced" in world.events())
    assert (world.data_dir / "checkpoint.corrupt-0").read_text() == bad
    assert world.specs() == ["c", "other"]
    await world.published(4)
    again = (await world.kubelet.prepare(claim))["uid-c"]
    assert (again.error, again.devices) == ("", first["uid-c"].devices)
    late = world.claim("late", 2)
    refused = (await world.kubelet.prepare(late))["uid-late"].error
    assert refused.startswith("DeviceHeld: ")
    assert "t/other" in refused
    assert await world.kubelet.unprepare(other) == {"uid-other": ""}
    assert (await world.kubelet.prepare(late))["uid-late"].error == ""


async def test_a_checkpoint_damaged_while_the_plugin_runs_is_replaced_too(world: World) -> None:
    claim = world.claim("c", 1)
    await world.kubelet.prepare(claim)
    world.checkpoint.write_text("")
    assert await world.kubelet.unprepare(claim) == {"uid-c": ""}
    assert (world.specs(), world.states()) == ([], {})


async def test_a_folder_in_place_of_the_checkpoint_is_set_aside(world: World) -> None:
    claim, late = world.claim("c", 1), world.claim("late", 2)
    await world.kubelet.prepare(claim)
    world.checkpoint.unlink()
    world.checkpoint.mkdir()
    assert (await world.kubelet.prepare(late))["uid-late"].error == ""
    assert set(world.states()) == {"c", "late"}
    assert (world.data_dir / "checkpoint.corrupt-0").is_dir()
    assert await world.until(lambda: "CheckpointReplaced" in world.events())
    assert await world.kubelet.unprepare(claim, late) == {"uid-c": "", "uid-late": ""}


async def test_a_deleted_checkpoint_beside_cdi_specs_is_rebuilt(world: World) -> None:
    await world.kubelet.prepare(world.claim("c", 1))
    await world.stop()
    world.checkpoint.unlink()
    await world.start()
    assert world.states() == {"c": "Recovered"}
    assert world.specs() == ["c"]


async def test_one_bad_entry_is_quarantined_and_the_rest_goes_on(world: World) -> None:
    good, odd = world.claim("good", 1), world.claim("odd", 2)
    await world.kubelet.prepare(good, odd)
    await world.stop()
    rewrite(world, "uid-odd", {"state": "PrepareTwisted"})
    await world.start()
    assert await world.until(lambda: "CheckpointEntryQuarantined" in world.events())
    assert (await world.kubelet.prepare(good))["uid-good"].error == ""
    assert world.specs() == ["good", "odd"]
    assert await world.kubelet.unprepare(odd) == {"uid-odd": ""}
    assert (world.specs(), list(world.states())) == (["good"], ["good"])


async def test_unknown_fields_of_a_newer_checkpoint_are_passed_over(world: World) -> None:
    claim = world.claim("c", 1)
    first = await world.kubelet.prepare(claim)
    await world.stop()
    entry = json.loads(world.checkpoint.read_text())["data"]["claims"]["uid-c"]
    rewrite(world, "uid-c", {**entry, "sharing": {"strategy": "New"}})
    await world.start()
    assert await world.kubelet.prepare(claim) == first


async def test_a_kill_after_prepare_started_is_rolled_back(world: World) -> None:
    claim = world.claim("c", 1)
    await world.kubelet.prepare(claim)
    await world.stop()
    entry = json.loads(world.checkpoint.read_text())["data"]["claims"]["uid-c"]
    rewrite(world, "uid-c", {**entry, "state": "PrepareStarted"})
    (world.data_dir / ".checkpoint.json.0123456789ab.tmp").write_text("half")
    await world.start()
    assert (world.states(), world.specs()) == ({}, [])
    assert list(world.data_dir.glob(".*.tmp")) == []
    await world.published(4)
    assert (await world.kubelet.prepare(claim))["uid-c"].error == ""


async def test_a_spec_without_an_entry_is_removed_at_the_start(world: World) -> None:
    await world.kubelet.prepare(world.claim("c", 1))
    await world.stop()
    left = world.cdi_root / "k8s.gpu.deckhouse.io-claim_uid-left.json"
    foreign = world.cdi_root / "nvidia.com-gpu.json"
    left.write_text("{}")
    foreign.write_text("{}")
    await world.start()
    assert (world.specs(), foreign.exists()) == (["c"], True)


async def test_a_card_that_is_still_held_is_refused_with_the_holders_name(world: World) -> None:
    await world.kubelet.prepare(world.claim("first", 1))
    error = (await world.kubelet.prepare(world.claim("second", 1)))["uid-second"].error
    assert error == (
        f"DeviceHeld: device {device(1)} is held by claim t/first (UID uid-first) of "
        "pod t/pod-of-first, which has not been unprepared"
    )


async def test_a_card_of_a_claim_that_is_gone_waits_for_the_kubelet(world: World) -> None:
    first, second = world.claim("first", 1), world.claim("second", 1)
    await world.kubelet.prepare(first)
    world.forget_claim("first")
    error = (await world.kubelet.prepare(second))["uid-second"].error
    assert error.startswith("DeviceBeingReleased: ")
    await world.kubelet.unprepare(first)
    assert (await world.kubelet.prepare(second))["uid-second"].error == ""


async def test_two_claims_of_one_call_cannot_have_the_same_card(world: World) -> None:
    answer = await world.kubelet.prepare(world.claim("a", 1), world.claim("b", 1))
    assert answer["uid-a"].error == ""
    assert answer["uid-b"].error.startswith("DeviceHeld: ")


async def test_admin_access_looks_at_a_card_that_another_holds(world: World) -> None:
    await world.kubelet.prepare(world.claim("user", 1))
    answer = await world.kubelet.prepare(world.claim("admin", 1, adminAccess=True))
    assert answer["uid-admin"].error == ""


async def test_an_assumed_holder_is_dropped_when_the_api_no_longer_names_it(world: World) -> None:
    world.claim("assumed", 1)
    await world.stop()
    world.checkpoint.write_text("")
    await world.start()
    await world.published(4)
    assert (await world.kubelet.prepare(world.claim("x", 0)))["uid-x"].error == ""
    assert world.states() == {"assumed": "Recovered", "x": "PrepareCompleted"}
    world.forget_claim("assumed")
    assert (await world.kubelet.prepare(world.claim("next", 1)))["uid-next"].error == ""


async def test_a_new_claim_is_refused_in_words_while_the_api_is_away(world: World) -> None:
    claim = world.claim("c", 1)
    await world.api.stop()
    error = (await world.kubelet.prepare(claim))["uid-c"].error
    assert error.startswith("Unreachable: the API server at ")
    await world.api.start()
    assert (await world.kubelet.prepare(claim))["uid-c"].error == ""


async def test_a_new_claim_is_refused_in_words_while_the_adapter_is_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapters, "REACH_SECONDS", 0.05)
    claim = world.claim("c", 1)
    await world.adapter.stop()
    error = (await world.kubelet.prepare(claim))["uid-c"].error
    assert error.startswith("AdapterUnavailable: the nvidia adapter on this node")
    monkeypatch.undo()
    await world.adapter.start()
    assert (await world.kubelet.prepare(claim))["uid-c"].error == ""
    assert world.api.objects(resources.RESOURCE_SLICE)


async def test_two_plugins_of_an_update_serve_one_node_from_one_state(stopped: World) -> None:
    world = stopped
    await world.start("old")
    await world.published(4)
    claim, other = world.claim("c", 1), world.claim("other", 1)
    first = await world.kubelet.prepare(claim)
    await world.start("new")
    assert world.states() == {"c": "PrepareCompleted"}
    assert await world.kubelet.prepare(claim) == first
    refused = (await world.kubelet.prepare(other))["uid-other"].error
    assert refused.startswith("DeviceHeld: ")
    await world.end("old")
    assert await world.kubelet.unprepare(claim) == {"uid-c": ""}
    assert (await world.kubelet.prepare(other))["uid-other"].error == ""
    assert [path.name for path in world.registry_dir.iterdir()] == ["gpu.deckhouse.io-new-reg.sock"]


async def test_a_plugin_that_cannot_work_ends_with_one_sentence(stopped: World) -> None:
    shutil.rmtree(stopped.registry_dir)
    with pytest.raises(errors.GpudeckError, match="registry"):
        await asyncio.wait_for(main.run(stopped.settings()), 10)


def entry_of(world: World, name: str) -> dict[str, object]:
    """A claim's entry in the checkpoint."""
    found: dict[str, object] = json.loads(world.checkpoint.read_text())["data"]["claims"]
    return found[f"uid-{name}"]  # type: ignore[return-value]


def rewrite(world: World, uid: str, entry: object) -> None:
    """Put `entry` into the checkpoint, with a right checksum."""
    file = json.loads(world.checkpoint.read_text())
    file["data"]["claims"][uid] = entry
    data = json.dumps(file["data"], separators=(",", ":"))
    digest = "sha256:" + hashlib.sha256(data.encode()).hexdigest()
    head = json.dumps({"version": "v1", "checksum": digest})
    world.checkpoint.write_text(f'{head[:-1]}, "data": {data}}}')


@pytest.mark.parametrize("which", ["registry/gpu.deckhouse.io-reg.sock", "plugins/dra.sock"])
@pytest.mark.parametrize("instead", ["nothing", "file"])
async def test_a_socket_that_somebody_removes_is_made_anew(
    world: World, which: str, instead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registering, "LOOK_SECONDS", 0.05)
    claim = world.claim("c", 1)
    await world.kubelet.prepare(claim)
    path = world.folder / which
    path.unlink()
    if instead == "file":
        path.touch()
    await world.until(lambda: all(map(sockets.answers, world.sockets())))
    await world.kubelet.register()
    assert (await world.kubelet.prepare(claim))["uid-c"].error == ""
    assert await world.kubelet.unprepare(claim) == {"uid-c": ""}


async def test_a_plugin_whose_sockets_cannot_be_made_anew_ends_with_one_sentence(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next container sees the folders as they are on the node by then."""
    monkeypatch.setattr(registering, "LOOK_SECONDS", 0.05)
    shutil.rmtree(world.registry_dir)
    with pytest.raises(errors.UnavailableError, match="is its folder there"):
        await asyncio.wait_for(world.ended(), 10)
    world.registry_dir.mkdir()
    await world.restart()
    assert (await world.kubelet.prepare(world.claim("c", 1)))["uid-c"].error == ""


async def test_files_of_a_prepared_claim_come_back_without_another_prepare(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container that starts again needs them, and the kubelet does not ask for it (1.37)."""
    monkeypatch.setattr(hooks, "AGAIN_SECONDS", 0.05)
    await world.restart()
    await world.kubelet.prepare(world.claim("c", 1), world.claim("d", 2))
    wanted = files_of(world)
    shutil.rmtree(world.cdi_root)
    world.cdi_root.write_text("no folder")
    await world.until(lambda: "ClaimFilesMissing" in world.events())
    world.cdi_root.unlink()
    await world.until(lambda: files_of(world) == wanted)
    for path in wanted:
        path.write_text("other")
        await world.until(lambda: files_of(world) == wanted)
    shutil.rmtree(world.data_dir / "dra-device-metadata")
    await world.until(lambda: files_of(world) == wanted)


def files_of(world: World) -> dict[Path, str]:
    """Every file that containers need."""
    folders = (world.cdi_root, world.data_dir / "dra-device-metadata")
    return {path: path.read_text() for folder in folders for path in folder.glob("[!.]*.json")}
