# SPDX-License-Identifier: Apache-2.0
"""`gpudeck get` and `gpudeck explain` as people and programs see them."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.support import make
from tests.support.apiserver import ApiServer

from gpudeck.cli.main import main
from gpudeck.cli.output import table

ASK = {"gpu.deckhouse.io/h100": 1}


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer() as server:
        make.put(
            server,
            make.node("node-0"),
            make.card(0),
            make.card(1),
            make.resource_slice(
                "gpu.deckhouse.io", "node-0", *({"name": make.device_name(i)} for i in range(2))
            ),
            *make.classes("h100", products=["*H100*"]),
            make.held(0, "first"),
        )
        yield server


async def run(server: ApiServer, *words: str) -> Result:
    """Run the command line in a thread: it has an event loop of its own."""
    given = [*words, "--kubeconfig", server.kubeconfig()]
    return await asyncio.to_thread(CliRunner().invoke, main, given)


async def run_json(server: ApiServer, *words: str) -> Any:
    result = await run(server, *words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


async def test_cards_are_a_table_with_their_holders(server: ApiServer) -> None:
    result = await run(server, "get", "cards")
    assert result.exit_code == 0
    rows = [re.split(" {3,}", line) for line in result.stdout.splitlines()]
    assert rows == [
        ["NODE", "CARD", "PRODUCT", "MIB", "STATE", "HELD BY", "UUID"],
        ["node-0", "0000:1b:00.0", make.H100, "81559", "Held", "default/first", "GPU-node-0-0"],
        ["node-0", "0000:1c:00.0", make.H100, "81559", "Free", "-", "GPU-node-0-1"],
    ]


async def test_a_card_that_no_slice_offers_is_not_free(server: ApiServer) -> None:
    make.put(server, make.resource_slice("gpu.deckhouse.io", "node-0"))
    found = await run_json(server, "get")
    assert [each["state"] for each in found["cards"]] == ["Held", "NotPublished"]
    assert (found["nodes"][0]["free"], found["nodes"][0]["held"]) == (0, 1)


async def test_where_slices_may_not_be_read_the_phase_counts(server: ApiServer) -> None:
    server.fail(1, 403, path="resourceslices", reason="Forbidden")
    found = await run_json(server, "get", "cards")
    assert [each["state"] for each in found["cards"]] == ["Held", "Free"]


async def test_the_overview_has_all_kinds(server: ApiServer) -> None:
    found = await run_json(server, "get")
    assert list(found) == ["nodes", "cards", "classes", "claims"]
    assert found["nodes"] == [
        {
            "node": "node-0", "ready": True, "status": "Ready", "products": [make.H100],
            "cards": 2, "free": 1, "held": 1, "mode": "", "toldBy": ["gpudeck"], "offered": [],
        }
    ]  # fmt: skip
    assert found["claims"] == [
        {
            "claim": "default/first-claim", "classes": ["h100"], "cards": ["GPU-node-0-0"],
            "pods": ["default/first"], "state": "Allocated",
        }
    ]  # fmt: skip
    assert [each["class"] for each in found["classes"]] == ["h100"]
    text = (await run(server, "get")).stdout
    assert [line for line in text.splitlines() if line in ("Nodes", "Cards", "Classes", "Claims")]


@pytest.mark.parametrize(
    ("ready", "cordoned", "status"),
    [
        ("True", False, "Ready"),
        ("True", True, "Ready,SchedulingDisabled"),
        ("Unknown", False, "NotReady"),
        ("False", True, "NotReady,SchedulingDisabled"),
    ],
)
async def test_a_nodes_status_is_that_of_kubectl(
    server: ApiServer, ready: str, cordoned: bool, status: str
) -> None:
    node = make.node("node-0", spec={"unschedulable": cordoned})
    node["status"]["conditions"] = [{"type": "Ready", "status": ready}]
    make.put(server, node)
    (row,) = (await run(server, "get", "nodes")).stdout.splitlines()[1:]
    assert re.split(" {3,}", row)[1] == status
    (found,) = (await run_json(server, "get", "nodes"))["nodes"]
    assert (found["status"], found["ready"]) == (status, ready == "True")


async def test_a_class_that_lost_its_resource_name_is_not_shown_with_it(server: ApiServer) -> None:
    twin = make.gpu_class("twin", ready=False, resource="gpu.deckhouse.io/h100")
    why = "spec.extendedResourceName: 'gpu.deckhouse.io/h100' belongs to GPUClass h100"
    (condition,) = twin["status"]["conditions"]
    condition.update(reason="ExtendedResourceConflict", message=why)
    make.put(server, twin)
    found = await run_json(server, "get", "classes")
    shown = {each["class"]: (each["ready"], each["resource"]) for each in found["classes"]}
    assert shown == {"h100": ("True", "gpu.deckhouse.io/h100"), "twin": ("False", "")}
    assert found["notes"] == [f"GPUClass twin is not ready: {why}"]
    assert (await run(server, "get", "classes")).stderr == f"note: {found['notes'][0]}\n"


async def test_what_a_device_plugin_offers_is_shown_and_classes_say_that_they_leave_it_out(
    server: ApiServer,
) -> None:
    shared = make.card(0, "node-1")
    shared["status"]["extendedResources"] = [{"resource": "nvidia.com/gpu.shared", "devices": 4}]
    mode = {"gpu.deckhouse.io/active-mode": "device-plugin"}
    make.put(server, make.node("node-1", labels=mode), shared)
    result = await run(server, "get", "nodes")
    rows = [re.split(" {3,}", line) for line in result.stdout.splitlines()]
    assert [row[5] for row in rows] == ["FREE DEVICES", "-", "4/4 nvidia.com/gpu.shared"]
    assert (await run(server, "get", "classes")).stderr == (
        "note: FREE and HELD of classes leave out cards of nodes in device plugin mode "
        "(1 of h100); `gpudeck get nodes` counts what is free of those.\n"
    )


async def test_a_cluster_with_nothing_says_so() -> None:
    async with ApiServer() as server:
        server.served.discard(("gpu.deckhouse.io", "physicalgpus"))
        server.served.discard(("gpu.deckhouse.io", "gpuclasses"))
        result = await run(server, "get", "cards")
        assert result.stdout == "No cards.\n"
        assert result.exit_code == 0


async def test_what_may_not_be_read_is_a_note_and_no_failure(server: ApiServer) -> None:
    server.fail(1, 403, path="deviceclasses", reason="Forbidden")
    result = await run(server, "get", "cards")
    assert result.exit_code == 0
    assert (
        result.stderr == "note: You may not read deviceclasses; what it would tell is left out.\n"
    )


async def test_a_waiting_pod_is_explained_first_in_a_sentence(server: ApiServer) -> None:
    make.put(server, make.held(1, "second"), make.pod("third", limits=ASK))
    result = await run(server, "explain", "pod", "default/third")
    assert result.stdout.splitlines() == [
        "Pod default/third waits for 1 card by gpu.deckhouse.io/h100: all 2 matching cards are "
        "held by other pods (default/first and default/second).",
        "",
        "CARDS   REASON      MEANING",
        "    2   HeldByPod   another pod holds the card, or a part of it",
        "    2   all cards",
        "",
        "NODE     CARD           PRODUCT                 REASON      WHO OR WHY",
        "node-0   0000:1b:00.0   NVIDIA H100 80GB HBM3   HeldByPod   default/first",
        "node-0   0000:1c:00.0   NVIDIA H100 80GB HBM3   HeldByPod   default/second",
    ]


async def test_an_explanation_for_programs_has_counts_that_add_up(server: ApiServer) -> None:
    make.put(server, make.pod("third", limits=ASK))
    found = await run_json(server, "explain", "pod", "third")
    assert found["pod"] == "default/third"
    assert found["state"] == "NotScheduledYet"
    assert found["counts"] == {"HeldByPod": 1, "Matches": 1}
    assert [each["reason"] for each in found["cards"]] == ["HeldByPod", "Matches"]
    assert found["answer"].startswith("Pod default/third waits for 1 card")


async def test_the_template_and_the_events_of_the_pod_are_read(server: ApiServer) -> None:
    template = {
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "card", "namespace": "default"},
        "spec": {"spec": make.claim("x")["spec"]},
    }
    make.put(server, template, make.pod("third", templates=["card"]))
    found = await run_json(server, "explain", "pod", "default/third")
    assert found["asks"] == ["1 card of class h100"]


async def test_a_pod_that_does_not_exist_is_refused_with_the_nearest(server: ApiServer) -> None:
    make.put(server, make.pod("trainer-1"))
    result = await run(server, "explain", "pod", "default/trainer-2")
    assert result.exit_code == 1
    assert result.stderr == (
        "error: pod default/trainer-2 does not exist; did you mean trainer-1?\n"
    )


@pytest.mark.parametrize("name", ["a/b/c", "default/"])
async def test_what_is_no_pod_name_is_wrong_usage(server: ApiServer, name: str) -> None:
    result = await run(server, "explain", "pod", name)
    assert result.exit_code == 2
    assert "allowed: NAME or NAMESPACE/NAME" in result.stderr


async def test_a_server_that_is_away_is_one_line(server: ApiServer) -> None:
    await server.stop()
    result = await run(server, "get")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert "cannot be reached: connection refused" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("words", [("first", "-n", "default"), ("default/first", "-n", "default")])
async def test_the_namespace_of_a_pod_may_be_an_option(
    server: ApiServer, words: tuple[str, ...]
) -> None:
    make.put(server, make.pod("first"))
    assert (await run_json(server, "explain", "pod", *words))["pod"] == "default/first"


async def test_a_pod_of_two_namespaces_is_refused(server: ApiServer) -> None:
    result = await run(server, "explain", "pod", "default/first", "-n", "other")
    assert result.exit_code == 2
    said = "error: pod: 'default/first' is not valid; allowed: NAME or other/NAME\n"
    assert result.stderr == said


def test_a_missing_kubeconfig_is_wrong_usage() -> None:
    result = CliRunner().invoke(main, ["get", "--kubeconfig", "/nonexistent/config"])
    assert result.exit_code == 2
    assert "'/nonexistent/config' is no file" in result.stderr


def test_an_unknown_kind_is_wrong_usage() -> None:
    result = CliRunner().invoke(main, ["get", "things"])
    assert result.exit_code == 2


def test_help_loads_neither_grpc_nor_tables() -> None:
    program = (
        "import sys; from gpudeck.cli.main import main\n"
        "try: main(['get', '--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'grpc', 'rich', 'cryptography', 'pynvml'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_table_aligns_numbers_to_the_right_and_shows_absence() -> None:
    assert table(["A", "COUNT"], [["x", 1], ["", 22]]).splitlines() == [
        "A   COUNT",
        "x       1",
        "-      22",
    ]
    assert table(["A"], []) == "A"
