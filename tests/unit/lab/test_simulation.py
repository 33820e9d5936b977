# SPDX-License-Identifier: Apache-2.0
"""The knobs of a simulated host turn what the library would tell, and only that."""

import threading
from pathlib import Path
from typing import Any

import pytest

from gpudeck import errors
from gpudeck.lab import machine, places, simulation


@pytest.fixture(scope="module")
def artifacts() -> Path:
    return simulation.build_native(places.cache())


@pytest.fixture
def h100(artifacts: Path, tmp_path: Path) -> simulation.Simulation:
    return simulation.Simulation.create(machine.load("h100-x8"), tmp_path, artifacts=artifacts)


def state(of: simulation.Simulation, index: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = of.show()["cards"][index]["state"]
    return found


@pytest.mark.parametrize("name", [name for name in machine.names() if not name.startswith("metax")])
def test_every_machine_becomes_a_simulation(artifacts: Path, tmp_path: Path, name: str) -> None:
    host = machine.load(name)
    shown = simulation.Simulation.create(host, tmp_path, artifacts=artifacts).show()
    assert shown["driver"] == host.driver.version
    assert [card["facts"]["uuid"] for card in shown["cards"]] == [card.uuid for card in host.cards]
    assert [card["facts"]["pci"] for card in shown["cards"]] == [
        card.address for card in host.cards
    ]


def test_an_xid_is_an_event_and_stays_readable(h100: simulation.Simulation) -> None:
    h100.xid(2, 94, mig=(1, 0))
    assert state(h100, 2)["last-xid"] == 94
    assert h100.show()["events"][-1]["data"] == 94


def test_a_card_is_named_by_index_address_or_uuid(h100: simulation.Simulation) -> None:
    card = machine.load("h100-x8").cards[3]
    h100.temperature(3, 50)
    h100.slow("0000:61:00.0", 20)
    h100.ecc(card.uuid, 4)
    found = state(h100, 3)
    assert (found["temperature"], found["slow-ms"]) == (50, 20)
    assert found["ecc"]["uncorrected.volatile.memory"] == 4


def test_a_lost_card_comes_back(h100: simulation.Simulation) -> None:
    h100.lose(0, unknown=True)
    assert (state(h100)["lost"], state(h100)["lost-code"]) == (1, 999)
    h100.return_(0)
    assert state(h100)["lost"] == 0


def test_clearing_ends_faults_but_not_counters(h100: simulation.Simulation) -> None:
    h100.fail(0, 999)
    h100.fail(0, 3, function="nvmlDeviceGetName")
    h100.hang(0, function="nvmlDeviceGetUUID")
    h100.ecc(0, 7, corrected=True, aggregate=True, location="sram")
    assert state(h100)["rules"] == {"nvmlDeviceGetName": 3, "nvmlDeviceGetUUID": -1}
    h100.clear(0)
    found = state(h100)
    assert (found["fail"], found["rules"]) == (0, {})
    assert found["ecc"]["corrected.aggregate.sram"] == 7


def test_a_pretended_process_holds_memory_until_it_is_idle(h100: simulation.Simulation) -> None:
    h100.busy(1, pid=4711, memory_mib=2048, percent=60)
    (process,) = h100.show()["cards"][1]["processes"]
    assert (process["pid"], process["bytes"], process["sm"]) == (4711, 2048 << 20, 60)
    h100.idle(1, pid=4711)
    assert h100.show()["cards"][1]["processes"] == []


@pytest.mark.parametrize(("name", "kept"), [("a100-40gb-x4", 1), ("h100-x8", 0)])
def test_a_reboot_keeps_the_mig_mode_on_ampere_only(
    artifacts: Path, tmp_path: Path, name: str, kept: int
) -> None:
    host = simulation.Simulation.create(machine.load(name), tmp_path, artifacts=artifacts)
    host.turn(0, mig_mode=1)
    host.reboot()
    assert state(host)["mig-mode"] == kept


def test_the_drivers_version_can_change(h100: simulation.Simulation) -> None:
    h100.driver(version="590.44.01")
    assert h100.show()["driver"] == "590.44.01"


def test_a_knob_that_does_not_exist_is_refused(h100: simulation.Simulation) -> None:
    with pytest.raises(errors.InvalidError, match="colour=green is not a knob"):
        h100.turn(0, colour="green")


def test_a_card_that_does_not_exist_is_refused(h100: simulation.Simulation) -> None:
    with pytest.raises(errors.InvalidError, match="no card 8; there are 8"):
        h100.xid(8, 79)


def test_a_folder_without_a_state_is_refused(artifacts: Path, tmp_path: Path) -> None:
    empty = simulation.Simulation(tmp_path / "empty", artifacts=artifacts)
    with pytest.raises(errors.InvalidError, match="holds no simulated host"):
        empty.show()


def sources(folder: Path, recipe: str) -> Path:
    folder.mkdir()
    (folder / "Makefile").write_text(f"all:\n\t{recipe}\n")
    (folder / "one.c").write_text("int one;\n")
    return folder


def test_sources_are_built_once_for_their_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = sources(tmp_path / "native", "touch $(OUT)/built; echo >> ../log")
    monkeypatch.setenv("GPUDECK_NATIVE_DIR", str(place))
    first = simulation.build_native(tmp_path / "cache")
    assert simulation.build_native(tmp_path / "cache") == first
    (place / "one.c").write_text("int two;\n")
    second = simulation.build_native(tmp_path / "cache")
    assert (first != second, (first / "built").exists()) == (True, True)
    assert len((tmp_path / "log").read_text().splitlines()) == 2


def test_two_builders_at_once_build_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = sources(tmp_path / "native", "echo >> ../log")
    monkeypatch.setenv("GPUDECK_NATIVE_DIR", str(place))
    threads = [
        threading.Thread(target=simulation.build_native, args=(tmp_path / "cache",))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len((tmp_path / "log").read_text().splitlines()) == 1


def test_a_failed_build_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = sources(tmp_path / "native", "echo one.c:1: error >&2; exit 1")
    monkeypatch.setenv("GPUDECK_NATIVE_DIR", str(place))
    with pytest.raises(errors.TerminalError, match=r"one\.c:1: error") as caught:
        simulation.build_native(tmp_path / "cache")
    assert caught.value.reason == "BuildFailed"
    assert [path.name for path in (tmp_path / "cache/native").iterdir()] == ["lock"]


def test_finished_artefacts_are_used_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"")
    monkeypatch.setenv("GPUDECK_NATIVE_DIR", str(tmp_path))
    assert simulation.build_native(tmp_path / "cache") == tmp_path


def test_without_sources_the_way_out_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUDECK_NATIVE_DIR", str(tmp_path))
    with pytest.raises(errors.NotFoundError, match="GPUDECK_NATIVE_DIR"):
        simulation.build_native(tmp_path / "cache")
