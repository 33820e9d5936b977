# SPDX-License-Identifier: Apache-2.0
"""`contract.Vendor` for NVIDIA: cards on the PCI bus, and the edits that give a container one.

The edits follow what NVIDIA's toolkit 1.20 writes for CDI in its mode "nvml": device
nodes, the driver's files at the paths they have on the node, and hooks that make links
and the loader's cache in the container. Without hooks each link is mounted as a file
instead: libraries are then found where the container's loader looks in that folder.
`NVIDIA_VISIBLE_DEVICES=void` keeps NVIDIA's legacy hook from adding every card.
"""

from __future__ import annotations

import stat
import threading
from collections.abc import Sequence

from gpudeck import errors, logs
from gpudeck.cdi import spec
from gpudeck.host import pci
from gpudeck.host import root as host
from gpudeck.vendors import contract
from gpudeck.vendors.nvidia import capabilities, files, resetting, sharing
from gpudeck.vendors.nvidia.mps import clients

log = logs.get(__name__)

_VENDOR_ID = 0x10DE
_CLASSES = (0x0300, 0x0302)  # What nvidia.ko binds (open kernel module 595); not NVSwitch, audio.
_KERNEL_DRIVER = "nvidia"
_NEEDED_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm")
_OTHER_NODES = ("/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
_FILE_OPTIONS = ("ro", "nosuid", "nodev", "rbind", "rprivate")
_SOCKET_OPTIONS = ("nosuid", "nodev", "noexec", "rbind", "rprivate")
_PARAMETERS = "/proc/driver/nvidia/params"
_HOOK_PROGRAM = "nvidia-cdi-hook"
_LDCONFIG = ("/sbin/ldconfig.real", "/sbin/ldconfig")  # Ubuntu's second one is a script.


class NvidiaVendor:
    """The serving side."""

    name = "nvidia"

    def __init__(self, settings: contract.VendorSettings) -> None:
        self._root = host.Root(settings.host_root, on_node=settings.host_root_on_node)
        self._lock = threading.Lock()
        self._kept: tuple[object, spec.ContainerEdits] | None = None
        self._failures: frozenset[pci.Failure] = frozenset()

    def sites(self) -> Sequence[contract.Site]:
        """`Vendor.sites`."""
        scan = pci.scan(self._root, lambda class_code, vendor: vendor == _VENDOR_ID)
        failures = frozenset(scan.failures)
        for failure in failures - self._failures:
            log.warning("Cannot read device", address=failure.address, why=failure.message)
        self._failures = failures
        return [
            contract.Site(
                address=device.address,
                served=device.driver == _KERNEL_DRIVER,
                driver=device.driver,
                pcie_root=device.pcie_root,
                numa_node=device.numa_node,
                class_code=device.class_code,
                pci_id=device.device << 16 | device.vendor,
                subsystem_id=_joined(device.subsystem_device, device.subsystem_vendor),
            )
            for device in scan.devices
            if device.class_code >> 8 in _CLASSES and not device.is_virtual_function
        ]

    def traces(self) -> tuple[str, ...]:
        """`Vendor.traces`."""
        look = self._root.look()
        return (*capabilities.traces(look), *look.list(pci.DEVICES))

    def pending(self, use: contract.Use) -> str:
        """`Vendor.pending`."""
        return clients.pending(self._root, use)

    def inject(
        self, uses: Sequence[contract.Use], *, driver_version: str, hook_path: str
    ) -> contract.Injection:
        """`Vendor.inject`."""
        for use in uses:
            # Who only looks on may see the card; CUDA has no device of it there.
            is_whole = use.partition is None and not use.admin_access
            if is_whole and use.card.mode is contract.PartitioningMode.ENABLED:
                raise errors.UnsupportedError(
                    f"{use.card.address}: MIG is enabled, the card cannot be used whole; "
                    "disable MIG or ask for a partition.",
                    reason="CardPartitioned",
                )
        look = self._root.look()
        return contract.Injection(
            shared=self._shared(look, driver_version, hook_path),
            uses=tuple(clients.edits(look, use, self._edits(look, use, hook_path)) for use in uses),
        )

    async def reset(self, addresses: Sequence[str]) -> None:
        """`Vendor.reset`."""
        await resetting.reset(self._root, addresses)

    def _shared(self, look: host.Root, version: str, hook_path: str) -> spec.ContainerEdits:
        """What all cards need. Resolving some fifty paths takes milliseconds, so it is kept until
        any of them may have changed."""
        nodes = tuple(look.device_number(path) for path in (*_NEEDED_NODES, *_OTHER_NODES))
        key = (version, hook_path, nodes, files.stamp(look))
        with self._lock:
            if self._kept is None or self._kept[0] != key:
                found = files.find(self._root, version)
                self._kept = (key, self._make_shared(found, version, hook_path))
            return self._kept[1]

    def _make_shared(
        self, found: files.DriverFiles, version: str, hook_path: str
    ) -> spec.ContainerEdits:
        nodes = [self._node(self._root, path) for path in _NEEDED_NODES]
        nodes += [
            self._node(self._root, path) for path in _OTHER_NODES if self._root.device_number(path)
        ]
        paths = (*found.libraries, *found.programs, *found.others)
        mounts = [self._mount(path, path, _FILE_OPTIONS) for path in paths]
        mounts += [self._mount(path, path, _SOCKET_OPTIONS) for path in found.sockets]
        hooks: list[spec.Hook] = []
        if hook_path:
            hooks = self._hooks(found, version, hook_path)
        else:
            links = [link for link, _ in found.links if self._root.exists(link)]
            mounts += [self._mount(link, link, _FILE_OPTIONS) for link in links]
        return spec.ContainerEdits(
            env=("NVIDIA_VISIBLE_DEVICES=void",),
            device_nodes=tuple(nodes),
            mounts=tuple(sorted(mounts, key=lambda mount: mount.container_path)),
            hooks=tuple(hooks),
        )

    def _edits(self, look: host.Root, use: contract.Use, hook_path: str) -> contract.UseEdits:
        of_card = self._use(look, use, hook_path)
        return sharing.edits(look, use, of_card, hook_path=hook_path)

    def _use(self, look: host.Root, use: contract.Use, hook_path: str) -> spec.ContainerEdits:
        card = use.card
        if card.minor is None:
            raise errors.UnavailableError(
                f"{card.address}: the driver does not tell the number of its device node.",
                reason="DeviceNodeMissing",
            )
        if use.partition is None:
            return self._card(look, card, hook_path)
        # Without the card's nodes for graphics: they lead past the partition.
        gates = capabilities.nodes(look, card, use.partition)
        return spec.ContainerEdits(
            device_nodes=(self._node(look, f"/dev/nvidia{card.minor}"), *gates)
        )

    def _card(
        self, look: host.Root, card: contract.CardReading, hook_path: str
    ) -> spec.ContainerEdits:
        nodes = [f"/dev/nvidia{card.minor}"]
        links = []
        for kind in ("card", "render"):
            by_path = f"/dev/dri/by-path/pci-{card.address}-{kind}"
            target = look.link(by_path)
            node = look.resolve(by_path)
            if target is not None and look.device_number(node):
                nodes.append(node)
                links.append((by_path, target))
        return spec.ContainerEdits(
            device_nodes=tuple(self._node(look, path) for path in nodes),
            hooks=tuple(_links_hook(hook_path, links) if hook_path else ()),
            additional_gids=self._groups(look, nodes),
        )

    def _node(self, look: host.Root, path: str) -> spec.DeviceNode:
        number = look.device_number(path)
        if number is None:
            raise errors.UnavailableError(
                f"{path} is not a device node on the node; is the driver's module loaded?",
                reason="DeviceNodeMissing",
            )
        return spec.DeviceNode(
            path=path,
            host_path=look.on_node(look.resolve(path)),
            type="c",
            major=number[0],
            minor=number[1],
            permissions="rw",
        )

    def _mount(self, host_path: str, path: str, options: tuple[str, ...]) -> spec.Mount:
        source = self._root.on_node(self._root.resolve(host_path))
        return spec.Mount(host_path=source, container_path=path, options=options)

    def _hooks(self, found: files.DriverFiles, version: str, hook_path: str) -> list[spec.Hook]:
        # The order is the toolkit's: compatibility libraries of the image go into the cache.
        compat = [_HOOK_PROGRAM, "enable-cuda-compat", f"--host-driver-version={version}"]
        hooks = [
            *_links_hook(hook_path, found.links),
            _hook(hook_path, compat),
            self._cache_hook(hook_path, found),
        ]
        if self._has_driver_parameters():
            hooks.append(_hook(hook_path, [_HOOK_PROGRAM, "disable-device-node-modification"]))
        return hooks

    def _has_driver_parameters(self) -> bool:
        """Containers see the driver's parameters too, so that the hook can cover them.

        It mounts over the file in the container's own /proc and fails where there is none:
        a file that something else has put into the host's /proc is not there.
        """
        try:
            parameters = self._root.real(_PARAMETERS).stat()
            return parameters.st_dev == self._root.real("/proc").stat().st_dev
        except OSError:
            return False

    def _cache_hook(self, hook_path: str, found: files.DriverFiles) -> spec.Hook:
        args = [_HOOK_PROGRAM, "update-ldcache"]
        for path in _LDCONFIG:
            if self._root.exists(path):
                args += ["--ldconfig-path", self._root.on_node(self._root.resolve(path))]
                break
        folders = sorted({path.rpartition("/")[0] for path in found.libraries})
        for folder in folders:
            args += ["--folder", folder]
        return _hook(hook_path, args)

    def _groups(self, look: host.Root, nodes: Sequence[str]) -> tuple[int, ...]:
        """Groups of nodes that not everybody may use, so that a user of the image may."""
        groups = set()
        for path in nodes:
            found = look.ownership(path)
            world = stat.S_IROTH | stat.S_IWOTH
            if found is not None and found[0] & world != world and found[2] != 0:
                groups.add(found[2])
        return tuple(sorted(groups))


def _joined(device: int | None, vendor: int | None) -> int | None:
    return device << 16 | vendor if device is not None and vendor is not None else None


def _links_hook(hook_path: str, links: Sequence[tuple[str, str]]) -> list[spec.Hook]:
    if not links:
        return []
    args = [_HOOK_PROGRAM, "create-symlinks"]
    for path, target in links:
        args += ["--link", f"{target}::{path}"]
    return [_hook(hook_path, args)]


def _hook(hook_path: str, args: Sequence[str]) -> spec.Hook:
    return spec.Hook(hook_name="createContainer", path=hook_path, args=tuple(args))
