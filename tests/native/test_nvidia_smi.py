# SPDX-License-Identifier: Apache-2.0
"""nvidia-smi of a simulated host prints what people's scripts parse, byte for byte.

The golden texts are written from captures and the MIG user guide (drivers 570 to 580).
"""

import os
import re
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from gpudeck.lab import hosttree, machine, places, simulation

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="device nodes need CAP_MKNOD")

FIRST = "00000000:1B:00.0"


class Host:
    """A simulated host and its nvidia-smi."""

    def __init__(self, name: str, folder: Path) -> None:
        artifacts = simulation.build_native(places.cache())
        self.machine = machine.load(name)
        place, self.root = folder / "simulation", folder / "host"
        self.cards = simulation.Simulation.create(self.machine, place, artifacts=artifacts)
        hosttree.write(
            self.machine, self.root, simulation=place, artifacts=artifacts, boot_id="boot"
        )
        self.program = self.root / "usr/bin/nvidia-smi"
        self.environment = {
            "PATH": "/usr/bin:/bin",
            "TZ": "UTC",
            "LD_LIBRARY_PATH": str(artifacts),
            "GPUDECK_SIMULATION": str(place),
            "GPUDECK_SIMULATION_DEV": str(self.root / "dev"),
        }

    def smi(self, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [str(self.program), *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert (done.returncode, done.stderr) == (code, ""), done.stdout
        return done.stdout


Make = Callable[[str], Host]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return lambda name: Host(name, tmp_path / name)


def block(text: str) -> str:
    return textwrap.dedent(text).lstrip("\n")


def test_the_list_names_cards_and_their_mig_devices(make: Make) -> None:
    host = make("h100-x8")
    assert host.smi("-L").splitlines()[1] == (
        f"GPU 1: NVIDIA H100 80GB HBM3 (UUID: {host.machine.cards[1].uuid})"
    )
    host.smi("-i", "1", "-mig", "1")
    host.smi("mig", "-i", "1", "-cgi", "9,19", "-C")
    _, first, second = host.smi("-L", "-i", "1").splitlines()
    shape = r"  MIG {}     Device  {}: \(UUID: MIG-[0-9a-f-]{{36}}\)"
    assert re.fullmatch(shape.format(r"3g\.40gb", 0), first)
    assert re.fullmatch(shape.format(r"1g\.10gb", 1), second)


def test_the_table_is_91_columns_wide_as_drivers_from_550_print_it(make: Make) -> None:
    host = make("h100-x8")
    stamp, *lines = host.smi("-i", "0").splitlines()
    assert re.fullmatch(r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4} {7}", stamp)
    assert "\n".join(lines) + "\n" == block("""
        +-----------------------------------------------------------------------------------------+
        | NVIDIA-SMI 580.105.08             Driver Version: 580.105.08     CUDA Version: 13.0     |
        +-----------------------------------------+------------------------+----------------------+
        | GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
        | Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
        |                                         |                        |               MIG M. |
        |=========================================+========================+======================|
        |   0  NVIDIA H100 80GB HBM3          On  |   00000000:1B:00.0 Off |                    0 |
        | N/A   31C    P0             69W /  700W |       0MiB /  81559MiB |      0%      Default |
        |                                         |                        |             Disabled |
        +-----------------------------------------+------------------------+----------------------+

        +-----------------------------------------------------------------------------------------+
        | Processes:                                                                              |
        |  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
        |        ID   ID                                                               Usage      |
        |=========================================================================================|
        |  No running processes found                                                             |
        +-----------------------------------------------------------------------------------------+
        """)


def test_a_process_has_a_row_with_its_memory(make: Make) -> None:
    host = make("h100-x8")
    host.cards.busy(0, pid=1, memory_mib=2000)
    row = host.smi("-i", "0").splitlines()[-2]
    assert row.startswith("|    0   N/A  N/A               1      C   ")
    assert (len(row), row.endswith(" 2000MiB |")) == (91, True)


def test_an_integrated_card_says_that_memory_is_not_supported(make: Make) -> None:
    rows = make("gb10-x1").smi().splitlines()[8:11]
    assert "\n".join(rows) + "\n" == block("""
        |   0  NVIDIA GB10                    On  |   0000000F:01:00.0 Off |                  N/A |
        | N/A   40C    P0              4W /  N/A  | Not Supported          |      0%      Default |
        |                                         |                        |                  N/A |
        """)


def test_mig_devices_have_a_table_of_their_own(make: Make) -> None:
    host = make("a100-40gb-x4")
    host.smi("-i", "0", "-mig", "1")
    assert "|  No MIG devices found   " in host.smi("-i", "0")
    host.smi("mig", "-i", "0", "-cgi", "9", "-C")
    lines = host.smi("-i", "0").splitlines()
    at = lines.index("| MIG devices:" + " " * 76 + "|")
    assert "\n".join(lines[at : at + 9]) + "\n" == block("""
        | MIG devices:                                                                            |
        +------------------+----------------------------------+-----------+-----------------------+
        | GPU  GI  CI  MIG |              Shared Memory-Usage |        Vol|        Shared         |
        |      ID  ID  Dev |                Shared BAR1-Usage | SM     Unc| CE ENC  DEC  OFA  JPG |
        |                  |                                  |        ECC|                       |
        |==================+==================================+===========+=======================|
        |  0    2   0   0  |               0MiB / 19968MiB    | 42      0 |  3   0    2    0    0 |
        |                  |                 1MiB / 65536MiB  |           |                       |
        +------------------+----------------------------------+-----------+-----------------------+
        """)
    assert {len(line) for line in lines[1:] if line} == {91}


def test_mig_shows_on_for_ecc_and_no_utilisation(make: Make) -> None:
    host = make("h100-x8")
    host.smi("-i", "0", "-mig", "1")
    first, second, third = host.smi("-i", "0").splitlines()[8:11]
    assert first.endswith("|                   On |")
    assert second.endswith("|     N/A      Default |")
    assert third.endswith("|              Enabled |")


def test_a_query_prints_units_in_header_and_values(make: Make) -> None:
    fields = "index,name,pci.bus_id,memory.total,temperature.gpu,power.draw"
    assert make("h100-x8").smi(f"--query-gpu={fields}", "--format=csv", "-i", "0") == block("""
        index, name, pci.bus_id, memory.total [MiB], temperature.gpu, power.draw [W]
        0, NVIDIA H100 80GB HBM3, 00000000:1B:00.0, 81559 MiB, 31, 69.00 W
        """)


def test_a_query_without_header_and_units_is_bare(make: Make) -> None:
    shown = make("t4-x4").smi(
        "--query-gpu", "index,clocks.max.sm,mig.mode.current,temperature.memory,compute_cap",
        "--format=csv,noheader,nounits", "-i", "3",
    )  # fmt: skip
    assert shown == "3, 1590, [N/A], [N/A], 7.5\n"


def test_every_field_can_be_queried_on_every_machine(make: Make) -> None:
    listing = make("h100-x8").smi("--help-query-gpu")
    fields = [name for name in re.findall(r'"([a-zA-Z0-9_.]+)"', listing) if "=" not in name]
    assert len(fields) > 130
    for name in ("h100-x8", "t4-x4", "gb10-x1"):
        shown = make(name).smi("--query-gpu=" + ",".join(fields), "--format=csv,noheader")
        assert len(shown.splitlines()[0].split(", ")) == len(fields)


def test_a_card_is_chosen_by_index_uuid_serial_or_bus_id(make: Make) -> None:
    host = make("h100-x8")
    card = host.machine.cards[2]
    for name in ("2", card.uuid, card.serial, card.address, "00000000:52:00.0"):
        shown = host.smi("-i", name, "--query-gpu=index", "--format=csv,noheader")
        assert shown == "2\n"


def test_processes_are_queried_with_their_card(make: Make) -> None:
    host = make("h100-x8")
    host.cards.busy(0, pid=1, memory_mib=512)
    shown = host.smi("--query-compute-apps=gpu_bus_id,pid,used_memory", "--format=csv")
    assert shown == f"gpu_bus_id, pid, used_gpu_memory [MiB]\n{FIRST}, 1, 512 MiB\n"


def test_profiles_are_listed_as_the_users_guide_shows(make: Make) -> None:
    lines = make("a30-x2").smi("mig", "-lgip", "-i", "0").splitlines()
    assert "\n".join(lines[:11]) + "\n" == block("""
        +-------------------------------------------------------------------------------+
        | GPU instance profiles:                                                        |
        | GPU   Name               ID    Instances   Memory     P2P    SM    DEC   ENC  |
        |                                Free/Total   GiB              CE    JPEG  OFA  |
        |===============================================================================|
        |   0  MIG 1g.6gb          14     0/4        5.81       No     14     0     0   |
        |                                                               1     0     0   |
        +-------------------------------------------------------------------------------+
        |   0  MIG 1g.6gb+me       21     0/1        5.81       No     14     1     0   |
        |                                                               1     1     1   |
        +-------------------------------------------------------------------------------+
        """)


def test_placements_are_listed_one_a_line(make: Make) -> None:
    assert make("h100-x8").smi("mig", "-lgipp", "-i", "0") == block("""
        GPU  0 Profile ID 19 Placements: {0,1,2,3,4,5,6}:1
        GPU  0 Profile ID 20 Placements: {0,1,2,3,4,5,6}:1
        GPU  0 Profile ID 15 Placements: {0,2,4,6}:2
        GPU  0 Profile ID 14 Placements: {0,2,4}:2
        GPU  0 Profile ID  9 Placements: {0,4}:4
        GPU  0 Profile ID  5 Placement : {0}:4
        GPU  0 Profile ID  0 Placement : {0}:8
        """)


def test_instances_are_made_listed_and_destroyed(make: Make) -> None:
    host = make("a100-40gb-x4")
    host.smi("-i", "0", "-mig", "1")
    made = host.smi("mig", "-i", "0", "-cgi", "9", "-C").splitlines()
    assert made == [
        "Successfully created GPU instance ID  2 on GPU  0 using profile MIG 3g.20gb (ID  9)",
        "Successfully created compute instance ID  0 on GPU  0 GPU instance ID  2 "
        "using profile MIG 3g.20gb (ID  2)",
    ]
    assert host.smi("mig", "-lgi") == block("""
        +-------------------------------------------------------+
        | GPU instances:                                        |
        | GPU   Name             Profile  Instance   Placement  |
        |                          ID       ID       Start:Size |
        |=======================================================|
        |   0  MIG 3g.20gb          9        2          4:4     |
        +-------------------------------------------------------+
        """)
    assert host.smi("mig", "-lci").splitlines()[-2:] == [
        "|   0      2       MIG 3g.20gb          2         0          0:3     |",
        "+--------------------------------------------------------------------+",
    ]
    assert host.smi("mig", "-lcip").splitlines()[-6:] == [
        "|   0      2       MIG 2c.3g.20gb       1      0/1           28        2     0     0   |",
        "|                                                                      3     0         |",
        "+--------------------------------------------------------------------------------------+",
        "|   0      2       MIG 3g.20gb          2*     0/1           42        2     0     0   |",
        "|                                                                      3     0         |",
        "+--------------------------------------------------------------------------------------+",
    ]
    assert host.smi("mig", "-dgi", code=19) == block("""
        Unable to destroy GPU instance ID  2 from GPU  0: In use by another client
        Failed to destroy GPU instances: In use by another client
        """)
    assert host.smi("mig", "-dci") == (
        "Successfully destroyed compute instance ID  0 from GPU  0 GPU instance ID  2\n"
    )
    assert host.smi("mig", "-dgi") == "Successfully destroyed GPU instance ID  2 from GPU  0\n"
    assert host.smi("mig", "-lgi", code=6) == "No GPU instances found: Not Found\n"


def test_an_order_that_leaves_no_room_fails_as_in_the_users_guide(make: Make) -> None:
    """The guide's A100 sample: 19,19,14 and then 9 has no room; 9,19,14,19 has."""
    host = make("a100-40gb-x4")
    host.smi("-i", "0", "-mig", "1")
    refused = host.smi("mig", "-i", "0", "-cgi", "19,19,14,9", code=23)
    assert refused.endswith(
        "Unable to create a GPU instance on GPU  0 using profile 9: Insufficient Resources\n"
        "Failed to create GPU instances: Insufficient Resources\n"
    )
    host.smi("mig", "-dgi")
    host.smi("mig", "-i", "0", "-cgi", "9,19,14,19")


def test_a_profile_is_named_by_id_or_name_with_a_placement(make: Make) -> None:
    host = make("h100-x8")
    host.smi("-i", "0", "-mig", "1")
    host.smi("mig", "-i", "0", "-cgi", "1g.10gb:2,MIG 3g.40gb:4")
    starts = re.findall(r"(\d):\d     \|", host.smi("mig", "-lgi"))
    assert starts == ["4", "2"]


def test_a_card_without_mig_says_so(make: Make) -> None:
    host = make("t4-x4")
    assert host.smi("-i", "0", "-mig", "1") == block("""
        Unable to enable MIG Mode for GPU 00000000:12:00.0: Not Supported
        Treating as warning and moving on.
        All done.
        """)
    assert host.smi("mig", "-lgip", code=6) == "No MIG-supported devices found.\n"
    assert host.smi("mig", "-lgi", code=6) == "No MIG-enabled devices found.\n"


def test_mig_mode_is_enabled_with_the_makers_words(make: Make) -> None:
    host = make("h100-x8")
    assert host.smi("-i", "0", "-mig", "1") == f"Enabled MIG Mode for GPU {FIRST}\nAll done.\n"
    host.smi("-i", "1", "-pm", "0")
    first, *rest = host.smi("-i", "1", "-mig", "1").splitlines()
    assert first.startswith("Warning: persistence mode is disabled on device 00000000:43:00.0.")
    assert rest == ["Enabled MIG Mode for GPU 00000000:43:00.0", "All done."]


def test_a_busy_card_keeps_its_mig_mode_pending(make: Make) -> None:
    host = make("h100-x8")
    host.cards.busy(0, pid=1, memory_mib=10)
    shown = host.smi("-i", "0", "-mig", "1").splitlines()
    assert shown[0] == (
        f"Warning: MIG mode is in pending enable state for GPU {FIRST}:In use by another client"
    )
    assert host.smi("-i", "0").splitlines()[10].endswith("|            Disabled* |")


def test_settings_are_changed_with_the_makers_words(make: Make) -> None:
    host = make("h100-x8")
    assert host.smi("-i", "0", "-pl", "300") == (
        f"Power limit for GPU {FIRST} was set to 300.00 W from 700.00 W.\nAll done.\n"
    )
    assert host.smi("-i", "0", "-pl", "900", code=2) == (
        "Provided power limit 900.00 W is not a valid power limit which should be between "
        f"200.00 W and 700.00 W for GPU {FIRST}\nTerminating early due to previous errors.\n"
    )
    assert host.smi("-i", "0", "-c", "EXCLUSIVE_PROCESS") == (
        f"Set compute mode to EXCLUSIVE_PROCESS for GPU {FIRST}.\nAll done.\n"
    )
    assert host.smi("-i", "0", "-pm", "1") == (
        f"Persistence mode is already Enabled for GPU {FIRST}.\nAll done.\n"
    )
    assert host.smi("-i", "0", "-e", "0").endswith("All done.\nReboot required.\n")
    assert host.smi("-i", "0", "-r") == f"GPU {FIRST} was successfully reset.\nAll done.\n"


def test_a_card_in_use_is_not_reset(make: Make) -> None:
    host = make("h100-x8")
    host.cards.busy(0, pid=1, memory_mib=10)
    shown = host.smi("-r", "-i", "0", code=255)
    assert shown.startswith(
        f"The following GPUs could not be reset:\n  GPU {FIRST}: In use by another client\n\n1 dev"
    )


def test_the_time_slice_is_kept(make: Make) -> None:
    host = make("h100-x8")
    host.smi("compute-policy", "-i", "0", "--set-timeslice", "2")
    rows = host.smi("compute-policy", "-l").splitlines()
    assert rows[4] == "|   0     Timeslice        Medium                       |"
    assert rows[6] == "|   1     Timeslice        Default                      |"


def test_topology_is_the_hybrid_cube_mesh_of_a_dgx_1(make: Make) -> None:
    lines = make("v100-x8").smi("topo", "-m").splitlines()
    assert lines[0] == (
        "\t\033[4mGPU0\tGPU1\tGPU2\tGPU3\tGPU4\tGPU5\tGPU6\tGPU7\t"
        "CPU Affinity\tNUMA Affinity\tGPU NUMA ID\033[0m"
    )
    assert lines[1] == ("GPU0\t X \tNV1\tNV1\tNV2\tNV2\tSYS\tSYS\tSYS\t0-19,40-59\t0\t\tN/A")


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("h100-x8", "\t".join([" X ", *["NV18"] * 7])),
        ("a100-40gb-x4", " X \tNV4\tNV4\tNV4"),
        ("l40s-x4", " X \tPIX\tSYS\tSYS"),
        ("t4-x4", " X \tNODE\tSYS\tSYS"),
    ],
)
def test_each_machine_has_its_own_paths(make: Make, name: str, row: str) -> None:
    assert make(name).smi("topo", "-m").splitlines()[1].startswith(f"GPU0\t{row}\t")


def test_a_lost_card_is_reported_and_the_rest_is_shown(make: Make) -> None:
    host = make("h100-x8")
    host.cards.lose(0, unknown=True)
    lines = host.smi("-L").splitlines()
    assert lines[0] == "Unable to determine the device handle for GPU0: 0000:1B:00.0: Unknown Error"
    assert len(lines) == 8
    host.cards.return_(0)
    host.cards.lose(0)
    assert host.smi("-i", "0", code=15) == (
        "Unable to determine the device handle for GPU0: 0000:1B:00.0: GPU is lost\n"
        "No devices were found\n"
    )


def test_a_host_without_its_driver_is_told_apart(make: Make) -> None:
    host = make("h100-x8")
    (host.root / "dev/nvidiactl").unlink()
    assert host.smi(code=9) == (
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure "
        "that the latest NVIDIA driver is installed and running.\n\n"
    )
    host.environment["LD_LIBRARY_PATH"] = ""
    assert host.smi(code=12).startswith("NVIDIA-SMI couldn't find libnvidia-ml.so library")


def test_a_library_of_another_version_is_told_apart(make: Make) -> None:
    host = make("h100-x8")
    host.cards.driver(init_code=18)
    assert host.smi(code=18).splitlines()[0] == (
        "Failed to initialize NVML: Driver/library version mismatch"
    )


def test_no_card_is_seen_without_device_nodes(make: Make) -> None:
    host = make("t4-x4")
    for node in host.root.glob("dev/nvidia[0-9]"):
        node.unlink()
    assert host.smi("-L", code=6) == "No devices were found\n"


def test_bad_arguments_are_refused_with_2(make: Make) -> None:
    host = make("t4-x4")
    assert host.smi("--query-gpu=colour", "--format=csv", code=2) == (
        'Field "colour" is not a valid field to query.\n\n'
    )
    host.smi("--no-such-option", code=2)
    host.smi("--query-gpu=name", code=2)
    host.smi("mig", "-zz", code=2)
    assert host.smi("-i", "9", code=6) == "No devices were found\n"


def test_the_long_listing_aligns_labels_at_column_55(make: Make) -> None:
    lines = make("h100-x8").smi("-q", "-i", "0").splitlines()
    assert lines[1] == "==============NVSMI LOG=============="
    assert f"GPU {FIRST}" in lines
    labelled = [line for line in lines if " : " in line]
    assert len(labelled) > 100
    assert {line.index(": ", 54) for line in labelled} == {55}


def test_a_section_of_the_long_listing_stands_alone(make: Make) -> None:
    shown = make("h100-x8").smi("-q", "-d", "POWER", "-i", "0")
    assert "Default Power Limit                            : 700.00 W" in shown
    assert "Product Name" not in shown
