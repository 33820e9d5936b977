# SPDX-License-Identifier: Apache-2.0
"""runc runs our hook, and the driver keeps each container to its share, on cgroup version 2.

The hook of each container is what `vendors.nvidia.sharing` writes for a share; the driver
is the mock; the kernel, runc and the cgroups are real.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.native import hosts
from tests.qemu import guest as guests
from tests.qemu import packages

from gpudeck.cdi import spec
from gpudeck.host import programs, root
from gpudeck.lab import places, simulation
from gpudeck.vendors import contract
from gpudeck.vendors.nvidia import sharing

pytestmark = [
    pytest.mark.skipif(bool(packages.missing()), reason=packages.missing()),
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="the guest is x86_64"),
    pytest.mark.timeout(guests.SECONDS + 30),
]

GIB = 1 << 30
UUIDS = ("GPU-a0b0c0d0-1111-4222-8333-444455556660", "GPU-a0b0c0d1-1111-4222-8333-444455556661")
_LIBRARIES = "/usr/lib/x86_64-linux-gnu"
_BIN = "/usr/bin"
_PREPARE = """
mkdir -p /rootfs /run/gpudeck-simulation
touch /dev/nvidiactl /dev/nvidia0 /dev/nvidia1
simctl create /run/gpudeck-simulation < /description || exit
container() { echo "== $1"; runc --root /run/runc run --no-pivot --bundle /containers/$1 $1
  echo "$1 ended $?"; }
hold() { container $1 > /tmp/$1 &
  until grep -q "GPU 1: holding\\|ended" /tmp/$1; do sleep 0.2; done
  cat /tmp/$1; }
"""
_BESIDE_A_NEIGHBOUR = """
hold neighbour
container greedy
container modest
container two-cards
container two-shares
container plain
"""
_IN_ONE_POD = """
hold first
container second
container small
hold other-share
container before
container second-again
container reported
echo "== end"
tail -n 1 /tmp/neighbour
tail -n 1 /tmp/first
"""
_HOOKS_AT_ONCE = """
pod=/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/SLICE
hook() { echo "{\\"pid\\": $1}" | HOOK --library LIBRARIES/libnvidia-ml.so.1 --limit CARD/$2=$3; }
inside() {
  sh -c "echo \\$\\$ > $pod/$1/cgroup.procs; exec gpu-burn -m $2 0" 2>&1; echo "$1 $2 ended $?"
}
export LD_LIBRARY_PATH=LIBRARIES
running=""
for name in 1 2 3 4 5 6/container; do
  mkdir -p $pod/$name
  sleep 1000 & pid=$!
  echo $pid > $pod/$name/cgroup.procs
  hook $pid share-$name 1073741824 & running="$running $!"
  hook $pid share-$name 1073741824 & running="$running $!"
done
wait $running
mkdir $pod/any
echo "== six"
inside any 5000
inside any 6100
inside 6/container 1000
simctl set /run/gpudeck-simulation 1 fail.nvmlDeviceSetMemoryLimits_v1=hang
mkdir $pod/killed
sleep 1000 & pid=$!
echo $pid > $pod/killed/cgroup.procs
echo "{\\"pid\\": $pid}" > /tmp/killed
HOOK --library LIBRARIES/libnvidia-ml.so.1 --limit CARD/killed=4294967296 < /tmp/killed & killed=$!
until grep -q "FLOCK .* $killed " /proc/locks && grep -q "State:.S" /proc/$killed/status; do
  sleep 0.1
done
kill -9 $killed
simctl set /run/gpudeck-simulation 1 fail.nvmlDeviceSetMemoryLimits_v1=0
echo "== killed"
inside any 6100
hook $(head -n 1 $pod/1/cgroup.procs) share-1 1073741824
inside any 6100
"""
_OUTSIDE_A_POD = """
echo "== lone"
pod=/sys/fs/cgroup/lone
mkdir -p $pod/container $pod/other
sleep 1000 & pid=$!
echo $pid > $pod/container/cgroup.procs
hook $pid share-lone 1073741824
inside container 2000
inside other 2000
"""
_ON_A_BAD_DRIVER = """
simctl set /run/gpudeck-simulation 0 fail.nvmlDeviceSetMemoryLimits_v1=999
container failing
simctl set /run/gpudeck-simulation 0 fail.nvmlDeviceSetMemoryLimits_v1=hang
container hanging > /tmp/hanging & hanging=$!
"""
_AT_THE_END = """
wait $hanging
cat /tmp/hanging
"""
_POD = "pod0f0e0d0c-2222-4333-8444-5555666677"
_Shares = list[tuple[str, str, int | None]]
_CONTAINERS: dict[str, tuple[str, int, _Shares]] = {
    "neighbour": ("70", 7168, [(UUIDS[0], "a", 8 * GIB)]),
    "greedy": ("71", 12288, [(UUIDS[0], "b", 8 * GIB)]),
    "modest": ("72", 7168, [(UUIDS[0], "c", 8 * GIB)]),
    "two-cards": ("73", 6000, [(UUIDS[0], "d", 8 * GIB), (UUIDS[1], "e", 4 * GIB)]),
    "two-shares": ("74", 7168, [(UUIDS[0], "f", 4 * GIB), (UUIDS[0], "g", 4 * GIB)]),
    "plain": ("75", 12288, []),
    "failing": ("76", 12288, [(UUIDS[0], "h", 8 * GIB)]),
    "hanging": ("77", 12288, [(UUIDS[0], "i", 8 * GIB)]),
    "first": ("78", 5000, [(UUIDS[0], "j", 8 * GIB)]),
    "second": ("78", 5000, [(UUIDS[0], "j", 8 * GIB)]),
    "second-again": ("78", 5000, [(UUIDS[0], "j", 8 * GIB)]),
    "small": ("78", 2000, [(UUIDS[0], "j", 8 * GIB)]),
    "other-share": ("78", 7168, [(UUIDS[0], "k", 8 * GIB)]),
    "before": ("78", 1000, [(UUIDS[0], "l", 8 * GIB)]),
    "reported": ("78", 12288, [(UUIDS[0], "m", None)]),
}
"""Name → its pod, MiB that it takes of each of the two cards, its shares: card, ID, amount."""
_REFUSED = "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY"
_HOLDING = ("neighbour", "first", "other-share")


def hooks(tree: Path, shares: _Shares) -> list[dict[str, Any]]:
    """OCI hooks of a container with these shares, as the product writes them."""
    found: list[spec.Hook] = []
    for uuid, share_id, amount in shares:
        card = contract.CardReading(
            address="0000:1b:00.0",
            uuid=uuid,
            share_support=contract.ShareSupport(memory_limits=True),
        )
        share = contract.Share(share_id=share_id, memory_bytes=amount)
        look = root.Root(str(tree), on_node="/")
        given = sharing.edits(
            look,
            contract.Use(card=card, share=share),
            spec.ContainerEdits(),
            hook_path=f"{_BIN}/nvidia-cdi-hook",
        )
        assert given.limits_memory is (amount is not None)
        found += given.edits.hooks
    assert {hook.hook_name for hook in found} <= {"createRuntime"}
    return [{"path": hook.path, "args": list(hook.args)} for hook in found]


def container(name: str, pod: str, words: list[str], hooks: list[dict[str, Any]]) -> str:
    """The runtime's description of one container."""
    bind = [
        {"destination": path, "source": path, "type": "bind", "options": ["rbind", option]}
        for path, option in [
            *((folder, "ro") for folder in ("/bin", "/usr", "/lib", "/lib64")),
            *((f"/dev/nvidia{node}", "rw") for node in ("ctl", "0", "1")),
            ("/run/gpudeck-simulation", "rw"),
        ]
    ]
    mounts = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
        {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["ro"]},
        {"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup", "options": ["ro"]},
    ]
    described = {
        "ociVersion": "1.0.2",
        "root": {"path": "/rootfs"},
        "process": {"args": words, "cwd": "/", "env": [f"LD_LIBRARY_PATH={_LIBRARIES}"]},
        "mounts": mounts + bind,
        "hooks": {"createRuntime": hooks},
        "linux": {
            "cgroupsPath": f"/kubepods/burstable/{_POD}{pod}/{name}",
            "namespaces": [{"type": each} for each in ("pid", "mount", "ipc", "uts", "cgroup")],
        },
    }
    described["process"]["user"] = {"uid": 0, "gid": 0}  # type: ignore[index]
    return json.dumps(described)


def make(folder: Path, *, cgroup_version: int) -> guests.Guest:
    """A node with the mock driver, runc, our hook where the product installs it, and containers."""
    artifacts = simulation.build_native(places.cache())
    made = guests.Guest(folder, cgroup_version=cgroup_version)
    program = artifacts / "gpudeck-memory-limits"
    made.add_program(installed(program), program)
    made.add_program(f"{_BIN}/runc", Path(str(shutil.which("runc"))))
    for name in ("simctl", "gpu-burn"):
        made.add_program(f"{_BIN}/{name}", artifacts / name)
    for name in ("libnvidia-ml.so.1", "libcuda.so.1"):
        made.add_program(f"{_LIBRARIES}/{name}", artifacts / name)
    made.write("/description", hosts.description("h100-x2", ("cuda 13000", "cuda 13040")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharing, "PROGRAM", program)
        for name, (pod, mib, shares) in _CONTAINERS.items():
            words = ["/usr/bin/gpu-burn", "-m", str(mib), "300" if name in _HOLDING else "0"]
            described = container(name, pod, words, hooks(folder / "root", shares))
            made.write(f"/containers/{name}/config.json", described)
    return made


def installed(program: Path) -> str:
    """Where the hook is on the node."""
    return f"{_BIN}/{programs.installed_name(program.name, program.read_bytes())}"


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each container said on a node with cgroup version 2; all run in one guest."""
    node = make(tmp_path_factory.mktemp("guest"), cgroup_version=2)
    program = simulation.build_native(places.cache()) / "gpudeck-memory-limits"
    at_once = _HOOKS_AT_ONCE + _OUTSIDE_A_POD
    for word, value in {
        "SLICE": f"kubepods-burstable-{_POD.replace('-', '_')}80.slice",
        "HOOK": installed(program),
        "LIBRARIES": _LIBRARIES,
        "CARD": UUIDS[1],
    }.items():
        at_once = at_once.replace(word, value)
    # The hook that hangs, on the other card, takes its time beside the hooks at once.
    containers = _BESIDE_A_NEIGHBOUR + _IN_ONE_POD + _ON_A_BAD_DRIVER
    output = node.run(_PREPARE + containers + at_once + _AT_THE_END)
    return {part.partition("\n")[0]: part for part in output.split("== ")}


def test_a_share_of_8_gib_is_refused_12_and_its_neighbour_keeps_its_own(
    said: dict[str, str],
) -> None:
    assert "GPU 0: holding 7168 MiB" in said["neighbour"], said
    assert _REFUSED in said["greedy"], said
    assert "greedy ended 1" in said["greedy"]
    assert "modest ended 0" in said["modest"]
    assert "GPU 0: holding 6000 MiB" in said["two-cards"]  # Each card has the amount of its share.
    assert "GPU 1: holding" not in said["two-cards"]
    assert _REFUSED in said["two-cards"]
    assert "two-shares ended 0" in said["two-shares"]  # Two of one card add up.
    assert "plain ended 0" in said["plain"]


def test_the_containers_of_a_pod_share_its_shares(said: dict[str, str]) -> None:
    assert "GPU 1: holding 5000 MiB" in said["first"], said
    assert _REFUSED in said["second"], said
    assert "GPU 0: holding" not in said["second"]
    assert "small ended 0" in said["small"]  # The rest of the share is to be had.
    assert "GPU 1: holding 7168 MiB" in said["other-share"]  # Another share of the pod adds up.
    assert said["end"].count("2 cards busy") == 2


def test_a_share_whose_container_has_ended_counts_no_more(said: dict[str, str]) -> None:
    assert "before ended 0" in said["before"]
    assert _REFUSED in said["second-again"], said


def test_a_share_without_a_limit_is_not_kept_to_the_others_of_its_pod(
    said: dict[str, str],
) -> None:
    assert "reported ended 0" in said["reported"], said


def test_hooks_that_run_at_once_or_twice_count_each_share_once(said: dict[str, str]) -> None:
    assert "any 5000 ended 0" in said["six"], said
    assert "any 6100 ended 1" in said["six"]
    assert "6/container 1000 ended 1" in said["six"]  # Its own limit, contexts count.


def test_what_a_killed_hook_has_left_undone_the_next_one_does(said: dict[str, str]) -> None:
    assert [line for line in said["killed"].splitlines() if "ended" in line] == [
        "any 6100 ended 1",
        "any 6100 ended 0",
    ], said


def test_where_no_folder_is_a_pod_s_the_container_alone_has_a_limit(said: dict[str, str]) -> None:
    assert "container 2000 ended 1" in said["lone"], said
    assert "other 2000 ended 0" in said["lone"]


def test_a_driver_that_fails_or_hangs_in_the_hook_keeps_no_container_from_starting(
    said: dict[str, str],
) -> None:
    for name in ("failing", "hanging"):
        assert f"{name} ended 0" in said[name], said
        assert "GPU 0: holding 12288 MiB" in said[name]


def test_on_cgroup_version_1_the_container_starts_without_a_limit(tmp_path: Path) -> None:
    node = make(tmp_path, cgroup_version=1)
    output = node.run(f"{_PREPARE}\ncontainer greedy\n")
    assert "GPU 0: holding 12288 MiB" in output
    assert "greedy ended 0" in output
