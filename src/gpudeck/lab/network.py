# SPDX-License-Identifier: Apache-2.0
"""The lab's network: which addresses there are, and the commands that make them.

A bridge inside the control plane's network namespace joins all nodes; the machine itself
gets one interface into it, so that ordinary clients reach the API server. Nothing else of
the machine is touched: no forwarding, no packet filter, no bridge of its own.
The interface's name holds the number of the lab's subnet, and the kernel gives a name once
only: making the interface is what reserves the subnet. Its hardware address holds the
lab's digest, so that no lab removes another's. Pure but for `connect` and `disconnect`.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import json
from collections.abc import Iterable, Iterator

from gpudeck import errors
from gpudeck.lab import processes
from gpudeck.lab.state import Node, Process

SERVICES = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"
DNS_SERVICE = "10.96.0.10"
API_PORT = 6443
REGISTRY_PORT = 5000
SUBNETS = 256
BRIDGE = "lab0"
BRIDGE_ADDRESS = "02:67:64:00:00:01"
"""A bridge without an address of its own has the lowest of its ports': when that node leaves, it
changes, and the machine talks to the old one until its neighbour entry expires, some 10 s later."""
# A veth pair carries the largest packet that IPv4 knows; the bridge follows its ports.
HOST_ADDRESS = 254
MAXIMUM_INDEX = 200


@dataclasses.dataclass(frozen=True)
class Plan:
    """All addresses of a lab, from the number of its subnet."""

    subnet: int

    def address(self, index: int) -> str:
        """The address of the node with that index; 1 is the control plane."""
        return f"10.89.{self.subnet}.{index}"

    @property
    def control_plane(self) -> str:
        """Where the API server and the registry listen."""
        return self.address(1)

    @property
    def server(self) -> str:
        """The API server's URL, the same from the machine and from every node."""
        return f"https://{self.control_plane}:{API_PORT}"

    @property
    def host(self) -> str:
        """The machine's own address in the lab."""
        return self.address(HOST_ADDRESS)

    @property
    def host_link(self) -> str:
        """The machine's interface into the lab."""
        return f"gpudeck-{self.subnet}"

    @staticmethod
    def pods(index: int) -> str:
        """The pods' subnet of the node with that index."""
        return f"10.244.{index}.0/24"


def candidates(digest: str, taken: Iterable[str]) -> Iterator[int]:
    """Yield subnet numbers to try, the lab's own first, but for the networks in `taken`."""
    networks = [ipaddress.ip_network(each, strict=False) for each in taken]
    first = int(digest, 16) % SUBNETS
    for step in range(SUBNETS):
        subnet = (first + step) % SUBNETS
        own = ipaddress.ip_network(f"10.89.{subnet}.0/24")
        if not any(own.overlaps(network) for network in networks if network.version == 4):
            yield subnet


def taken() -> list[str]:
    """List the networks that the machine has a route to, without the default route."""
    routes = json.loads(processes.run(["ip", "-4", "-json", "route", "show", "table", "all"]))
    return [route["dst"] for route in routes if route["dst"] != "default"]


def hardware_address(digest: str) -> str:
    """The hardware address of the machine's interface: locally administered, the lab's own."""
    return ":".join(["02", "67", *(digest[at : at + 2] for at in range(0, 8, 2))])


def link_commands(plan: Plan, digest: str, control_plane: Process) -> list[str]:
    """ip commands, run on the machine, that make its one interface into the lab."""
    name = plan.host_link
    return [
        (
            f"link add {name} address {hardware_address(digest)} type veth"
            f" peer name machine netns {control_plane.pid}"
        ),
        f"address add {plan.host}/24 dev {name}",
        f"link set {name} up",
    ]


def bridge_commands(plan: Plan) -> list[str]:
    """ip commands, run in the control plane's namespace after those of `link_commands`."""
    return [
        f"link add {BRIDGE} address {BRIDGE_ADDRESS} type bridge forward_delay 0",
        f"address add {plan.control_plane}/24 dev {BRIDGE}",
        f"link set {BRIDGE} up",
        f"link set machine master {BRIDGE}",
        "link set machine up",
        *_routes(BRIDGE),
    ]


def node_commands(plan: Plan, node: Node, init: Process) -> tuple[list[str], list[str]]:
    """ip commands for a worker: those for the control plane's namespace, those for its own."""
    port = f"node{node.index}"
    return [
        f"link add {port} type veth peer name eth0 netns {init.pid}",
        f"link set {port} master {BRIDGE}",
        f"link set {port} up",
    ], [
        f"address add {plan.address(node.index)}/24 dev eth0",
        "link set eth0 up",
        *_routes("eth0"),
    ]


def unplug(init: Process) -> None:
    """Take a worker's end of a pair whose other end was in a namespace that is ending."""
    links = json.loads(
        processes.run([*processes.enter(init, ("--net",)), "ip", "-json", "link", "show"])
    )
    if any(link["ifname"] == "eth0" for link in links):
        try:
            batch(["link delete eth0"], inside=init)
        except errors.UnavailableError as error:
            if "Cannot find device" not in error.message:
                raise


def _routes(device: str) -> list[str]:
    # A local process's packet to a Service needs a route before kube-proxy's rules see it;
    # whatever lies outside the lab is refused at once instead of timing out.
    return [f"route replace {SERVICES} dev {device}", "route replace unreachable default"]


def peer_commands(plan: Plan, own: Node, others: Iterable[Node]) -> list[str]:
    """ip commands that route one node to the pods of the others."""
    return [
        f"route replace {plan.pods(other.index)} via {plan.address(other.index)}"
        for other in others
        if other.index != own.index
    ]


def batch(commands: Iterable[str], inside: Process | None = None) -> None:
    """Run ip commands on the machine or in the network namespace of a node."""
    prefix = processes.enter(inside, ("--net",)) if inside else []
    processes.run([*prefix, "ip", "-batch", "-"], text="\n".join(commands) + "\n")


def connect(plan: Plan, digest: str, control_plane: Process) -> bool:
    """Make the machine's interface; False when another lab was given that subnet first."""
    add, *rest = link_commands(plan, digest, control_plane)
    try:
        batch([add])
    except errors.UnavailableError as error:
        if "File exists" in error.message:
            return False
        raise
    batch(rest)
    return True


def disconnect(subnet: int | None, digest: str) -> None:
    """Remove the machine's interface if it is this lab's; fine when it is gone."""
    if subnet is None:
        return
    name = Plan(subnet).host_link
    links = json.loads(processes.run(["ip", "-json", "link", "show"]))
    for link in links:
        if link["ifname"] == name and link.get("address") == hardware_address(digest):
            try:
                batch([f"link delete {name}"])
            except errors.UnavailableError as error:
                # The kernel takes it away by itself when the control plane has ended.
                if "Cannot find device" not in error.message:
                    raise


def next_index(nodes: Iterable[Node]) -> int:
    """The lowest free index of a worker; BusyError when the lab's subnet is full."""
    used = {node.index for node in nodes}
    for index in range(2, MAXIMUM_INDEX):
        if index not in used:
            return index
    raise errors.BusyError("the lab has no address left for another node", reason="SubnetFull")
