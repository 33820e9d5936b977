# SPDX-License-Identifier: Apache-2.0
"""Addresses of labs: never those of the machine, never those of each other."""

from __future__ import annotations

import pytest

from gpudeck import errors
from gpudeck.lab import network
from gpudeck.lab.state import Node, Process


def test_a_lab_begins_at_a_subnet_of_its_own() -> None:
    assert next(network.candidates("000000b0", [])) == 0xB0
    assert next(network.candidates("000000b1", [])) == 0xB1


def test_networks_of_the_machine_are_passed_over() -> None:
    taken = ["10.89.176.0/24", "10.89.177.9", "192.0.2.0/24", "fd00::/64"]
    assert next(network.candidates("000000b0", taken)) == 178


def test_a_machine_that_uses_the_whole_range_leaves_none() -> None:
    assert list(network.candidates("000000b0", ["10.0.0.0/8"])) == []


def test_the_interfaces_name_holds_the_subnet_and_fits_the_kernel() -> None:
    plan = network.Plan(255)
    assert plan.host_link == "gpudeck-255"
    assert len(plan.host_link) <= 15
    assert plan.server == "https://10.89.255.1:6443"
    assert plan.pods(7) == "10.244.7.0/24"


def test_the_hardware_address_is_local_and_of_the_lab() -> None:
    assert network.hardware_address("8f00aa51") == "02:67:8f:00:aa:51"


def test_the_interface_is_made_in_one_command_with_its_mark() -> None:
    first, *_ = network.link_commands(network.Plan(5), "8f00aa51", Process(pid=77, start=1))
    assert first.startswith("link add gpudeck-5 address 02:67:8f:00:aa:51 type veth")
    assert first.endswith("netns 77")


def test_a_node_is_told_the_way_to_the_others_only() -> None:
    nodes = [Node(name=f"n{index}", index=index) for index in (1, 2, 3)]
    assert network.peer_commands(network.Plan(5), nodes[1], nodes) == [
        "route replace 10.244.1.0/24 via 10.89.5.1",
        "route replace 10.244.3.0/24 via 10.89.5.3",
    ]


def test_indexes_of_removed_nodes_are_used_again() -> None:
    nodes = [Node(name=f"n{index}", index=index) for index in (1, 2, 4)]
    assert network.next_index(nodes) == 3
    full = [Node(name=f"n{index}", index=index) for index in range(1, network.MAXIMUM_INDEX)]
    with pytest.raises(errors.BusyError):
        network.next_index(full)


def test_the_bridge_keeps_its_address_when_nodes_leave() -> None:
    made = next(each for each in network.bridge_commands(network.Plan(7)) if "type bridge" in each)
    assert f"address {network.BRIDGE_ADDRESS}" in made
