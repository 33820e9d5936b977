# SPDX-License-Identifier: Apache-2.0
"""The feature cpu.security: enclaves and machines whose memory the host cannot read.

Only what is so, as node-feature-discovery has it: a feature that is off has no name. With a
feature that has a limited number of keys comes their number. `cpu` calls it.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from gpudeck.features.sources.attributes import ABSENT, Attributes
from gpudeck.host.root import Root

_AMD, _INTEL = "/sys/module/kvm_amd/parameters", "/sys/module/kvm_intel/parameters"
_NODES = "/sys/devices/system/node"
_TDX_VERSION = re.compile(r"(?P<major>\d+)\.(?P<minor>\d+)\.(?P<revision>\d+)")


def read(root: Root, attributes: Attributes, flags: Collection[str]) -> dict[str, str]:
    """What the processor, the kernel and KVM offer."""
    sgx_bytes = _sgx_bytes(root, attributes) if "sgx" in flags else 0

    def is_on(path: str) -> bool:
        return attributes.get(path) in ("Y", "1")

    found = {
        "sgx.enabled": sgx_bytes > 0,
        "tdx.enabled": is_on(f"{_INTEL}/tdx"),
        "tdx.protected": "tdx_guest" in flags,
        "se.enabled": is_on("/sys/firmware/uv/prot_virt_host"),
        "sev.enabled": is_on(f"{_AMD}/sev"),
        "sev.es.enabled": is_on(f"{_AMD}/sev_es"),
        "sev.snp.enabled": is_on(f"{_AMD}/sev_snp"),
    }
    capacity = _capacity(root)
    amounts = {
        "sgx.epc": str(sgx_bytes) if sgx_bytes else None,
        "tdx.total_keys": capacity.get("tdx") if found["tdx.enabled"] else None,
        "sev.asids": capacity.get("sev") if found["sev.enabled"] else None,
        "sev.encrypted_state_ids": capacity.get("sev_es") if found["sev.es.enabled"] else None,
    }
    return {
        **{name: "true" for name, is_so in found.items() if is_so},
        **{name: amount for name, amount in amounts.items() if amount is not None},
        **_tdx_module(attributes),
    }


def _tdx_module(attributes: Attributes) -> dict[str, str]:
    """The version of the TDX module, of kernels that tell it (node-feature-discovery v0.20)."""
    full = attributes.get("/sys/devices/faux/tdx_host/version") or ""
    parts = _TDX_VERSION.fullmatch(full)
    if parts is None:
        return {}
    named = {"full": full, **parts.groupdict()}
    return {f"tdx.module-version.{name}": value for name, value in named.items()}


def _capacity(root: Root) -> dict[str, str]:
    """What the cgroup controller misc has to give, by name; of the second or the first version."""
    for path in ("/sys/fs/cgroup/misc.capacity", "/sys/fs/cgroup/misc/misc.capacity"):
        try:
            lines = root.read_text(path).splitlines()
        except ABSENT:
            continue
        pairs = (line.split() for line in lines)
        return {pair[0]: pair[1] for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
    return {}


def _sgx_bytes(root: Root, attributes: Attributes) -> int:
    total = 0
    for name in root.list(_NODES):
        text = attributes.get(f"{_NODES}/{name}/x86/sgx_total_bytes") or "0"
        total += int(text) if text.isdigit() else 0
    return total
