# SPDX-License-Identifier: Apache-2.0
"""`gpudeck mig` on simulated hosts: NVIDIA's cards on the mock library, and simulated ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.contract.vendors import benches
from tests.support.systemctl import Systemctl
from tests.unit.mig import seeds

from gpudeck.cli import main
from gpudeck.dra import checkpoint
from gpudeck.mig import configs

SEED = "2x2g.10gb-3x1g.5gb"
WANTED = {"1g.5gb": 3, "2g.10gb": 2}

Bench = benches.NvidiaBench | benches.SimulatedBench


class Host:
    """A host on which the command is given."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.bench = bench
        self.folder = folder
        (Path(bench.settings.host_root) / "run").mkdir(exist_ok=True)

    def mig(self, *words: str, status: int = 0, stdin: str = "") -> Result:
        where = ["--vendor", self.bench.vendor, "--host-root", self.bench.settings.host_root]
        result = CliRunner().invoke(main.main, ["mig", *words, *where], input=stdin)
        assert result.exit_code == status, result.output
        return result

    def write(self, text: str) -> str:
        path = self.folder / "configs.yaml"
        path.write_text(text)
        return str(path)

    def now(self) -> list[configs.Entry]:
        """How the cards are partitioned."""
        return list(configs.read(self.mig("export").stdout).find("current"))


@pytest.fixture
def a100(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Four A100, which are reset by the driver's tool for a change of the mode."""
    if os.geteuid() != 0:
        pytest.skip("device nodes of the simulated host can be made by root only")
    bench = benches.NvidiaBench(tmp_path, monkeypatch, "a100-40gb-x4", mode_change="pending")
    return Host(bench, tmp_path)


@pytest.fixture
def simulated(tmp_path: Path) -> Host:
    """Two cards of another maker, whose mode changes at once."""
    return Host(benches.SimulatedBench(tmp_path, partitionable=True), tmp_path)


def test_the_config_of_the_guide_is_applied_to_four_cards_and_taken_back(a100: Host) -> None:
    file = a100.write(seeds.PRINTED)
    chosen = ("-f", file, "-c", SEED)
    a100.mig("assert", *chosen, status=1)
    shown = a100.mig("plan", *chosen)
    assert shown.stdout.count("turn on, reset") == 4
    assert "line 5 was read as indented like the one above it" in shown.stderr
    assert a100.now() == [configs.Entry(enabled=False)]

    done = a100.mig("apply", *chosen)
    assert done.stdout == "cards as wanted: 4, changes made: 24\n"
    assert a100.now() == [configs.Entry(enabled=True, counts=WANTED)]
    a100.mig("assert", *chosen)
    assert "changes made: 0" in a100.mig("apply", *chosen).stdout

    a100.mig("apply", "-f", file, "-c", "disabled")
    assert a100.now() == [configs.Entry(enabled=False)]


def test_a_change_keeps_the_partitions_that_fit(a100: Host) -> None:
    a100.mig("apply", "-f", a100.write(seeds.PRINTED), "-c", SEED)
    a100.mig("checkpoint", "-f", str(a100.folder / "before.json"))
    plan = json.loads(a100.mig("plan", "-c", "all-1g.5gb", "--json").stdout)
    assert {len(card["stay"]) for card in plan["cards"]} == {3}
    assert {len(card["go"]) for card in plan["cards"]} == {2}
    assert {len(card["new"]) for card in plan["cards"]} == {4}
    a100.mig("apply", "-c", "all-1g.5gb")
    assert a100.now() == [configs.Entry(enabled=True, counts={"1g.5gb": 7})]

    a100.mig("restore", "-f", str(a100.folder / "before.json"))
    assert a100.now() == [configs.Entry(enabled=True, counts=WANTED)]
    a100.mig("checkpoint", "-f", str(a100.folder / "after.json"))
    before, after = (a100.folder / f"{name}.json" for name in ("before", "after"))
    assert after.read_text() == before.read_text()


def test_a_card_in_use_fails_alone_and_is_done_when_it_is_free(a100: Host) -> None:
    chosen = ("-f", a100.write(seeds.PRINTED), "-c", SEED)
    a100.bench.work(1)
    failed = a100.mig("apply", *chosen, status=1)
    assert "1 of 4 cards could not be done" in failed.stdout
    assert "end PID 4242" in failed.stderr
    assert "note: services of the host can be stopped for the change: --stop" in failed.stderr
    assert a100.now() == [
        configs.Entry(enabled=True, counts=WANTED, devices=(0, 2, 3)),
        configs.Entry(enabled=False, devices=(1,)),
    ]
    a100.bench.rest(1)
    a100.mig("apply", *chosen)
    a100.mig("assert", *chosen)


def test_a_card_whose_partition_is_in_use_stays_as_it_was(a100: Host) -> None:
    a100.mig("apply", "-f", a100.write(seeds.PRINTED), "-c", SEED)
    a100.bench.work(1)
    failed = a100.mig("apply", "-c", "all-disabled", status=1)
    assert "0000:41:00.0: the partition at slices" in failed.stderr
    assert "is still in use; end PID 4242." in failed.stderr
    assert a100.now() == [
        configs.Entry(enabled=False, devices=(0, 2, 3)),
        configs.Entry(enabled=True, counts=WANTED, devices=(1,)),
    ]
    a100.bench.rest(1)
    a100.mig("apply", "-c", "all-disabled")
    assert a100.now() == [configs.Entry(enabled=False)]


DCGM, IDLE = "dcgm.service", "idle.service"


@pytest.fixture
def services(simulated: Host) -> Systemctl:
    """The init system of the simulated host, with a service that has cards open."""
    return Systemctl(Path(simulated.bench.settings.host_root), dcgm="active", idle="inactive")


def test_services_are_stopped_where_something_is_to_change(
    simulated: Host, services: Systemctl
) -> None:
    listed = simulated.write(f"version: v1\nsystemd-services: [{DCGM}, {IDLE}]")
    words = ("apply", "-c", "all-enabled", "--stop-services", listed)
    simulated.mig(*words)
    assert services.told == [f"stop {DCGM}", f"start {DCGM}"]
    assert (services.state(DCGM), services.state(IDLE)) == ("active", "inactive")
    simulated.mig(*words)
    assert len(services.told) == 2
    simulated.bench.work(1)
    simulated.mig("apply", "-c", "all-disabled", "--stop-services", listed, status=1)
    assert services.state(DCGM) == "active"


def test_a_service_that_does_not_stop_keeps_the_cards_as_they_are(
    simulated: Host, services: Systemctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpudeck.host.stopping.START_PAUSES", (0.0,))
    listed = simulated.write(f"version: v1\nsystemd-services: [{DCGM}]")
    services.stick(DCGM)
    before = simulated.now()
    failed = simulated.mig("apply", "-c", "all-enabled", "--stop-services", listed, status=1)
    assert "Job for dcgm.service failed" in failed.stderr
    assert simulated.now() == before
    services.free(DCGM)
    services.put(DCGM, "inactive")
    path = Path(simulated.bench.settings.host_root) / "run/gpudeck-mig-stopped"
    path.write_text(DCGM)  # As one that was killed leaves it.
    simulated.mig("apply", "-c", "all-enabled")
    assert services.state(DCGM) == "active"


def test_a_wrong_list_of_services_is_named_by_file_and_field(simulated: Host) -> None:
    listed = simulated.write("version: v1\nsystemd-services: [dcgm]")
    failed = simulated.mig("apply", "-c", "all-enabled", "--stop-services", listed, status=2)
    assert f"{listed}: systemd-services[0]: 'dcgm' is not valid" in failed.stderr


def test_a_lost_card_costs_that_card(a100: Host) -> None:
    chosen = ("-f", a100.write(seeds.PRINTED), "-c", SEED)
    a100.bench.lose(2)
    failed = a100.mig("apply", *chosen, status=1)
    assert "1 of 4 cards could not be done" in failed.stdout
    assert "0000:81:00.0: the card cannot be read now." in failed.stderr
    a100.bench.find(2)
    a100.mig("apply", *chosen)
    assert a100.now() == [configs.Entry(enabled=True, counts=WANTED)]


@pytest.mark.parametrize("changes", [1, 3, 8, 20])
def test_a_kill_on_the_way_is_gone_on_from(a100: Host, changes: int) -> None:
    """Killed while it makes that change, the library process too, it is done by the next call."""
    chosen = ["-f", a100.write(seeds.PRINTED), "-c", SEED]
    root = ["--host-root", a100.bench.settings.host_root, "--log-level", "info"]
    command = [sys.executable, "-c", "from gpudeck.cli import main; main.main()", "mig", "apply"]
    with subprocess.Popen([*command, *chosen, *root], stderr=subprocess.PIPE, text=True) as killed:
        assert killed.stderr is not None
        for line in killed.stderr:
            changes -= "Changing card" in line
            if not changes:
                break
        killed.kill()
    a100.mig("apply", *chosen)
    assert a100.now() == [configs.Entry(enabled=True, counts=WANTED)]


def test_a_profile_that_the_cards_lack_changes_nothing(a100: Host) -> None:
    text = (
        "version: v1\nmig-configs: {x: [{devices: all, mig-enabled: true, "
        "mig-devices: {2g.20gb: 1}}]}\n"
    )
    failed = a100.mig("apply", "-f", "-", status=1, stdin=text)
    assert 'mig-configs["x"][0].mig-devices["2g.20gb"]: card 0' in failed.stderr
    assert a100.now() == [configs.Entry(enabled=False)]


def test_a_filter_is_compared_with_the_pci_bus(a100: Host) -> None:
    def text(name: str) -> str:
        filtered = f"device-filter: {name}, devices: [1, 2], mig-enabled: true, mig-devices: {{}}"
        return f"version: v1\nmig-configs: {{x: [{{{filtered}}}]}}\n"

    a100.mig("apply", "-f", "-", stdin=text("0x20B010DE"))
    assert [each.devices for each in a100.now()] == [(0, 3), (1, 2)]
    a100.mig("assert", "-f", "-", stdin=text("'0x20B010DE:0x134F10DE'"))
    for other in ("0x20B710DE", "'0x20B010DE:0x000110DE'"):
        refused = a100.mig("plan", "-f", "-", status=1, stdin=text(other))
        assert "no entry is for a card of this node" in refused.stderr
        assert "NVIDIA A100-SXM4-40GB (0x20B010DE)" in refused.stderr


def test_the_configs_that_cards_offer_can_all_be_applied(simulated: Host) -> None:
    offered = configs.read(simulated.mig("generate-config").stdout)
    assert list(offered.by_name)[:2] == ["all-disabled", "all-enabled"]
    assert len(offered.by_name) > 3
    for name, config in offered.by_name.items():
        simulated.mig("apply", "-c", name)
        simulated.mig("assert", "-c", name)
        assert simulated.now() == list(config)
    unknown = simulated.mig("apply", "-c", "all-9g.9gb", status=1)
    assert "allowed: all-disabled, all-enabled" in unknown.stderr


def test_the_mode_alone_is_changed_and_asserted(simulated: Host) -> None:
    simulated.mig("assert", "-c", "all-enabled", "--mode-only", status=1)
    simulated.mig("apply", "-c", "all-enabled", "--mode-only")
    simulated.mig("assert", "-c", "all-balanced", "--mode-only")
    simulated.mig("assert", "-c", "all-balanced", status=1)


def test_a_making_that_fails_is_told_and_may_be_repeated(simulated: Host) -> None:
    simulated.bench.fail_making(1)
    failed = simulated.mig("apply", "-c", "all-balanced", status=1)
    assert "the partition cannot be made" in failed.stderr
    simulated.bench.mend_making(1)
    simulated.mig("apply", "-c", "all-balanced")
    assert len(simulated.now()) == 1


def test_a_file_is_checked_without_a_card(simulated: Host) -> None:
    file = simulated.write(seeds.PRINTED)
    simulated.bench.take_driver_away()
    simulated.mig("assert", "--valid-config", "-f", file, "-c", SEED)
    absent = simulated.mig("assert", "--valid-config", "-f", file, "-c", "x", status=1)
    assert "allowed: disabled, 2x2g.10gb-3x1g.5gb" in absent.stderr
    broken = simulated.write("version: v1\nmig-configs: {x: [{devices: some}]}\n")
    refused = simulated.mig("assert", "--valid-config", "-f", broken, status=2)
    assert "mig-enabled: is missing" in refused.stderr
    away = simulated.mig("export", status=1)
    assert "No module." in away.stderr


@pytest.mark.parametrize("call", ["PossiblePlacements_v2", "s"])
def test_what_the_driver_tells_to_root_alone_is_not_taken_for_absent(a100: Host, call: str) -> None:
    a100.mig("apply", "-c", "all-1g.5gb")
    for card in range(a100.bench.cards):
        a100.bench.turn(card, f"fail.nvmlDeviceGetGpuInstance{call}=4")
    for words in ("plan", "-c", "all-1g.5gb"), ("assert", "-c", "all-disabled"), ("export",):
        refused = a100.mig(*words, status=1)
        assert "Insufficient Permissions" in refused.stderr


def test_claims_of_dra_mode_are_not_disturbed(simulated: Host) -> None:
    root = Path(simulated.bench.settings.host_root)
    boot_id = root / "proc/sys/kernel/random/boot_id"
    boot_id.parent.mkdir(parents=True)
    boot_id.write_text(f"{benches.BOOT_ID}\n")
    data = root / "var/lib/kubelet/plugins/gpu.deckhouse.io"
    data.mkdir(parents=True)
    entry = checkpoint.Entry(state=checkpoint.State.COMPLETED, namespace="team", name="pod-gpu")
    kept = checkpoint.Content(boot_id=benches.BOOT_ID, claims={"uid": entry})
    (data / checkpoint.FILE).write_bytes(checkpoint.encode(kept))
    refused = simulated.mig("apply", "-c", "all-balanced", status=1)
    assert "claims of DRA mode are prepared on this node: team/pod-gpu;" in refused.stderr
    simulated.mig("plan", "-c", "all-balanced")
    boot_id.write_text("another boot\n")
    simulated.mig("apply", "-c", "all-balanced")


def test_a_checkpoint_that_is_none_is_refused(simulated: Host) -> None:
    path = simulated.write('{"version": "v1", "cards": []}')
    refused = simulated.mig("restore", "-f", path, status=2)
    assert "version: 'v1' is not valid; allowed: gpudeck.mig/v1" in refused.stderr
