# SPDX-License-Identifier: Apache-2.0
"""What a maker's driver adds to a simulated host: /proc, /sys/module, /dev, libraries.

Pure but for reading the native artefacts: it returns a `tree.Tree` for `hosttree`.
Formats and device numbers are those of NVIDIA's open kernel module 595 and of MetaX's
public papers. `live` is the part of /proc/driver/nvidia that the mock NVML goes on
writing (MIG capabilities); it stands in the simulation folder and is bound over the tree.
"""

from __future__ import annotations

from pathlib import Path

from gpudeck.lab import elf, machine, tree, tree_pci

NVIDIA_MAJOR = 195
CAPS_MAJOR = 508
UVM_MAJOR = 510
SWITCH_MAJOR = 506
DRM_MAJOR = 226
METAX_MAJOR = 505
GPU_INSTANCES = 15
COMPUTE_INSTANCES = 8
_MINORS_GPUS = 32

LIBRARIES = {
    "libnvidia-ml.so": "libnvidia-ml.so.1",
    "libcuda.so": "libcuda.so.1",
    "libcudadebugger.so": "libcudadebugger.so.1",
    "libnvidia-ptxjitcompiler.so": "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-nvvm.so": "libnvidia-nvvm.so.4",
    "libnvidia-opencl.so": "libnvidia-opencl.so.1",
    "libnvidia-cfg.so": "libnvidia-cfg.so.1",
    "libnvidia-allocator.so": "libnvidia-allocator.so.1",
    "libnvidia-encode.so": "libnvidia-encode.so.1",
    "libnvidia-opticalflow.so": "libnvidia-opticalflow.so.1",
    "libnvcuvid.so": "libnvcuvid.so.1",
    "libnvoptix.so": "libnvoptix.so.1",
    "libGLX_nvidia.so": "libGLX_nvidia.so.0",
    "libEGL_nvidia.so": "libEGL_nvidia.so.0",
    "libnvidia-gpucomp.so": "",
    "libnvidia-rtcore.so": "",
    "libnvidia-glcore.so": "",
    "libnvidia-eglcore.so": "",
    "libnvidia-tls.so": "",
}
"""Library to the link that its SONAME asks for; empty where the version is in the SONAME."""

_PLAIN_LINKS = ("libcuda.so", "libnvidia-ptxjitcompiler.so", "libnvcuvid.so")
_PROGRAMS = (
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-debugdump",
    "nvidia-modprobe",
    "nvidia-persistenced",
    "nvidia-smi",
)
_MODULES = ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm")


def library_folder(host: machine.Machine) -> str:
    """Return where the distribution keeps its libraries, below the host root."""
    if host.os.like == "debian":
        return f"usr/lib/{host.architecture}-linux-gnu"
    return "usr/lib64"


def describe(host: machine.Machine, artifacts: Path | None) -> tree.Tree:
    """Return what the driver adds; without `artifacts` its libraries are all stand-ins."""
    below = {**_modules(host), **_devices_list(host), **drm(host), **_pci_ids()}
    if host.maker == "metax":
        return below | _metax(host)
    below |= {f"proc/driver/nvidia/{path}": entry for path, entry in live(host).items()}
    below["proc/driver/nvidia-caps/mig-minors"] = tree.text(_mig_minors())
    below["proc/driver/nvidia-caps/sys-minors"] = tree.text("fabric-imex-mgmt 4323")
    below["proc/driver/nvidia-caps/nvlink-minors"] = tree.text("fabric-mgmt 0")
    return below | _nodes(host) | _driver_root(host, artifacts) | _configuration()


def live(host: machine.Machine) -> tree.Tree:
    """Return /proc/driver/nvidia as it is when the driver has just been loaded."""
    if host.maker != "nvidia":
        return {}
    below: tree.Tree = {
        "version": tree.text(_version(host)),
        "params": tree.text(_params()),
        "registry": tree.text('Binary: ""'),
        "capabilities/mig/config": _capability(1, 256),
        "capabilities/mig/monitor": _capability(2, 292),
        "capabilities/fabric-imex-mgmt": _capability(4323, 256),
    }
    for minor, card in enumerate(host.cards):
        below |= _gpu(host, card, minor)
        if host.model_of(card).mig:
            below[f"capabilities/gpu{minor}/mig"] = tree.Folder()
    return below


def capability_minor(gpu: int, instance: int, compute: int | None = None) -> int:
    """Return the minor of a MIG capability (open kernel module 595, nv-caps.c)."""
    return 3 + (gpu * GPU_INSTANCES + instance) * 9 + (0 if compute is None else 1 + compute)


def card_paths(host: machine.Machine, address: str) -> tree.Tree:
    """Return what below /proc/driver/nvidia belongs to the card at `address` alone."""
    if host.maker != "nvidia":
        return {}
    for minor, card in enumerate(host.cards):
        if card.address == address:
            return _gpu(host, card, minor)
    return {}


def _capability(minor: int, mode: int) -> tree.File:
    return tree.text(f"DeviceFileMinor: {minor}\nDeviceFileMode: {mode}\nDeviceFileModify: 1")


def _gpu(host: machine.Machine, card: machine.Card, minor: int) -> tree.Tree:
    model = host.model_of(card)
    wide = model.architecture == "blackwell"
    lines = (
        f"Model: \t\t {model.name}",
        f"IRQ:   \t\t {64 + minor}",
        f"GPU UUID: \t {card.uuid}",
        f"Video BIOS: \t {model.board.vbios}",
        "Bus Type: \t PCIe",
        f"DMA Size: \t {52 if wide else 47} bits",
        f"DMA Mask: \t 0x{(1 << (52 if wide else 47)) - 1:x}",
        f"Bus Location: \t {card.address}",
        f"Device Minor: \t {minor}",
        f"GPU Firmware: \t {_firmware(host, model)}",
        "GPU Excluded:\t No",
    )
    folder = f"gpus/{card.address}"
    return {
        f"{folder}/information": tree.text("\n".join(lines)),
        f"{folder}/registry": tree.text('Binary: ""'),
        f"{folder}/power": tree.text(
            "Runtime D3 status:          Disabled by default\nVideo Memory:               Active"
        ),
    }


def _firmware(host: machine.Machine, model: machine.Model) -> str:
    """GSP firmware runs from Turing on."""
    return "N/A" if model.architecture == "volta" else host.driver.version


def _version(host: machine.Machine) -> str:
    version, cpu = host.driver.version, host.architecture
    kind = (
        f"NVIDIA UNIX Open Kernel Module for {cpu}"
        if host.driver.open
        else f"NVIDIA UNIX {cpu} Kernel Module"
    )
    return f"NVRM version: {kind}  {version}  Release Build\nGCC version:  gcc version 11.4.0 (GCC)"


def _params() -> str:
    values = {
        "ResmanDebugLevel": 4294967295,
        "RmLogonRC": 1,
        "ModifyDeviceFiles": 1,
        "DeviceFileUID": 0,
        "DeviceFileGID": 0,
        "DeviceFileMode": 438,
        "InitializeSystemMemoryAllocations": 1,
        "UsePageAttributeTable": 4294967295,
        "EnableMSI": 1,
        "EnablePCIeGen3": 0,
        "MemoryPoolSize": 0,
        "NVreg_EnableStreamMemOPs": 0,
        "EnableGpuFirmware": 18,
        "EnableResizableBar": 0,
        "ImexChannelCount": 2048,
        "CreateImexChannel0": 0,
    }
    strings = (
        "CoherentGPUMemoryMode",
        "RegistryDwords",
        "RegistryDwordsPerDevice",
        "RmMsg",
        "GpuBlacklist",
        "TemporaryFilePath",
        "ExcludedGpus",
    )
    return "\n".join(
        [f"{name}: {value}" for name, value in values.items()] + [f'{name}: ""' for name in strings]
    )


def _mig_minors() -> str:
    lines = ["config 1", "monitor 2"]
    for gpu in range(_MINORS_GPUS):
        for instance in range(GPU_INSTANCES):
            lines.append(f"gpu{gpu}/gi{instance}/access {capability_minor(gpu, instance)}")
            lines += [
                f"gpu{gpu}/gi{instance}/ci{compute}/access "
                f"{capability_minor(gpu, instance, compute)}"
                for compute in range(COMPUTE_INSTANCES)
            ]
    return "\n".join(lines)


def _modules(host: machine.Machine) -> tree.Tree:
    if host.maker == "metax":
        names: tuple[str, ...] = ("metax",)
        listing = ["metax 4198400 0 - Live 0x0000000000000000 (OE)"]
    else:
        names = _MODULES
        taint = "(OE)" if host.driver.open else "(POE)"
        listing = [
            f"nvidia_uvm 2076672 0 - Live 0x0000000000000000 {taint}",
            f"nvidia_drm 131072 0 - Live 0x0000000000000000 {taint}",
            f"nvidia_modeset 1724416 1 nvidia_drm, Live 0x0000000000000000 {taint}",
            f"nvidia 11653120 2 nvidia_uvm,nvidia_modeset, Live 0x0000000000000000 {taint}",
        ]
    listing += [
        "overlay 212992 0 - Live 0x0000000000000000",
        "br_netfilter 32768 0 - Live 0x0000000000000000",
    ]
    if any(each.driver == "mlx5_core" for each in host.others):
        rdma = ("rdma_ucm", "mlx5_ib", "ib_uverbs", "mlx5_core")
        listing += [f"{name} 2199552 0 - Live 0x0000000000000000" for name in rdma]
    below: tree.Tree = {"proc/modules": tree.text("\n".join(listing))}
    for name in names:
        folder = f"sys/module/{name}"
        below[f"{folder}/version"] = tree.text(host.driver.version)
        below[f"{folder}/initstate"] = tree.text("live")
        below[f"{folder}/refcnt"] = tree.text("2")
        below[f"{folder}/parameters"] = tree.Folder()
    driver = f"sys/bus/pci/drivers/{names[0]}/module"
    below[driver] = tree.relative(driver, f"sys/module/{names[0]}")
    return below


def _devices_list(host: machine.Machine) -> tree.Tree:
    majors = [
        (1, "mem"),
        (5, "/dev/tty"),
        (5, "/dev/console"),
        (5, "/dev/ptmx"),
        (10, "misc"),
        (136, "pts"),
        (DRM_MAJOR, "drm"),
    ]
    if host.maker == "metax":
        majors.append((METAX_MAJOR, "mxcd"))
    else:
        majors += [
            (NVIDIA_MAJOR, "nvidia"),
            (NVIDIA_MAJOR, "nvidiactl"),
            (NVIDIA_MAJOR, "nvidia-modeset"),
            (CAPS_MAJOR, "nvidia-caps"),
            (UVM_MAJOR, "nvidia-uvm"),
        ]
        if host.nvlink.switches:
            majors.append((SWITCH_MAJOR, "nvidia-nvswitch"))
    rows = "\n".join(f"{major:3d} {name}" for major, name in sorted(majors, key=_by_major))
    return {
        "proc/devices": tree.text(f"Character devices:\n{rows}\n\nBlock devices:\n259 blkext\n")
    }


def _by_major(row: tuple[int, str]) -> int:
    return row[0]


def _nodes(host: machine.Machine) -> tree.Tree:
    """Nodes that are there at boot; the library makes those of MIG instances with them."""
    below: tree.Tree = {
        "dev/nvidiactl": tree.Device(NVIDIA_MAJOR, 255),
        "dev/nvidia-modeset": tree.Device(NVIDIA_MAJOR, 254),
        "dev/nvidia-uvm": tree.Device(UVM_MAJOR, 0),
        "dev/nvidia-uvm-tools": tree.Device(UVM_MAJOR, 1),
        "dev/nvidia-caps/nvidia-cap1": tree.Device(CAPS_MAJOR, 1, 0o400),
        "dev/nvidia-caps/nvidia-cap2": tree.Device(CAPS_MAJOR, 2, 0o444),
    }
    for minor in range(len(host.cards)):
        below[f"dev/nvidia{minor}"] = tree.Device(NVIDIA_MAJOR, minor)
    if host.nvlink.switches:
        below["dev/nvidia-nvswitchctl"] = tree.Device(SWITCH_MAJOR, 255)
    for index in range(len(host.nvlink.switches)):
        below[f"dev/nvidia-nvswitch{index}"] = tree.Device(SWITCH_MAJOR, index)
    return below


def drm(host: machine.Machine) -> tree.Tree:
    """Card nodes start after the board's own screen, render nodes at 128, as the kernel counts."""
    screens = sum(other.class_code >> 16 == 3 for other in host.others)
    below: tree.Tree = {}
    for index, card in enumerate(host.cards):
        pci = tree_pci.folder_of(host, card.address)
        nodes = (
            (f"card{screens + index}", screens + index, "card"),
            (f"renderD{128 + index}", 128 + index, "render"),
        )
        for name, minor, kind in nodes:
            folder, at = f"{pci}/drm/{name}", f"sys/class/drm/{name}"
            below[f"dev/dri/{name}"] = tree.Device(DRM_MAJOR, minor, 0o660)
            below[f"dev/dri/by-path/pci-{card.address}-{kind}"] = tree.Link(f"../{name}")
            below[f"{folder}/dev"] = tree.text(f"{DRM_MAJOR}:{minor}")
            below[f"{folder}/device"] = tree.Link("../../../" + card.address)
            below[at] = tree.relative(at, folder)
            number = f"sys/dev/char/{DRM_MAJOR}:{minor}"
            below[number] = tree.relative(number, folder)
    return below


def _driver_root(host: machine.Machine, artifacts: Path | None) -> tree.Tree:
    folder, version = library_folder(host), host.driver.version
    below: tree.Tree = {}
    for stem, link in LIBRARIES.items():
        built = artifacts / link if artifacts and link else None
        content = (
            built.read_bytes()
            if built is not None and built.is_file()
            else elf.shared_library(link or f"{stem}.{version}", host.architecture)
        )
        below[f"{folder}/{stem}.{version}"] = tree.File(content, 0o755)
        if link:
            below[f"{folder}/{link}"] = tree.Link(f"{stem}.{version}")
        if stem in _PLAIN_LINKS:
            below[f"{folder}/{stem}"] = tree.Link(link)
    for program in _PROGRAMS:
        built = artifacts / program if artifacts else None
        below[f"usr/bin/{program}"] = (
            tree.File(built.read_bytes(), 0o755)
            if built is not None and built.is_file()
            else _refusing(program)
        )
    for name in ("gsp_ga10x.bin", "gsp_tu10x.bin"):
        below[f"usr/lib/firmware/nvidia/{version}/{name}"] = tree.File(name.encode())
    return below


def _refusing(program: str) -> tree.File:
    return tree.File(
        f"#!/bin/sh\necho '{program}: a simulated host cannot do this' >&2\nexit 1\n".encode(),
        0o755,
    )


def _configuration() -> tree.Tree:
    return {
        "etc/OpenCL/vendors/nvidia.icd": tree.text("libnvidia-opencl.so.1", 0o644),
        "usr/share/glvnd/egl_vendor.d/10_nvidia.json": tree.text(
            '{"file_format_version": "1.0.0", "ICD": {"library_path": "libEGL_nvidia.so.0"}}',
            0o644,
        ),
        "etc/vulkan/icd.d/nvidia_icd.json": tree.text(
            '{"file_format_version": "1.0.1", "ICD": {"library_path": "libGLX_nvidia.so.0", '
            '"api_version": "1.4.312"}}',
            0o644,
        ),
    }


def _pci_ids() -> tree.Tree:
    return {
        "usr/share/misc/pci.ids": tree.File((machine.FOLDER / "pci.ids").read_bytes()),
        "usr/share/hwdata/pci.ids": tree.Link("../misc/pci.ids"),
    }


def _metax(host: machine.Machine) -> tree.Tree:
    layout = "sys/class/mxcd/mxcd/layout"
    below: tree.Tree = {
        "dev/mxcd": tree.Device(METAX_MAJOR, 0),
        f"{layout}/properties": tree.text(f"num_cpu_nodes {len(host.numa_nodes)}\npeer_mem 1"),
        "opt/mxdriver/bin/mx-smi": _refusing("mx-smi"),
        "usr/bin/mx-smi": tree.Link("../../opt/mxdriver/bin/mx-smi"),
        "opt/mxdriver/lib": tree.Folder(),
        "opt/mxdriver/version": tree.text(host.driver.version, 0o644),
        "opt/maca/lib": tree.Folder(),
    }
    for index in range(len(host.cards)):
        node = len(host.numa_nodes) + index
        below[f"{layout}/nodes/{node}/properties"] = tree.text(f"mgpu_id {index}")
    return below
