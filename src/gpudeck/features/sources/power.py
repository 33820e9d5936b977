# SPDX-License-Identifier: Apache-2.0
"""How a processor saves power: cpu.cstate, cpu.pstate and cpu.sst, all of them Intel's.

`cpu` calls it. Each is empty where its driver is not the one that is in use.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpudeck.features.sources.attributes import Attributes
from gpudeck.host.root import Root

_CPUS = "/sys/devices/system/cpu"
_NOMINAL = re.compile(r"@ *([0-9.]+) *GHz")


def cstate(attributes: Attributes) -> dict[str, str]:
    """Whether intel_idle may let a processor sleep."""
    if attributes.get(f"{_CPUS}/cpuidle/current_driver") != "intel_idle":
        return {}
    deepest = attributes.get("/sys/module/intel_idle/parameters/max_cstate")
    return {} if deepest is None else {"enabled": "false" if deepest == "0" else "true"}


def pstate(root: Root, attributes: Attributes) -> dict[str, str]:
    """What intel_pstate does; the governor if all processors have the same."""
    status = attributes.get(f"{_CPUS}/intel_pstate/status")
    if status in (None, "off"):
        return {}
    found = {"status": status}
    no_turbo = attributes.get(f"{_CPUS}/intel_pstate/no_turbo")
    if no_turbo is not None:
        found["turbo"] = "true" if no_turbo == "0" else "false"
    governors = _governors(root, attributes) if status == "active" else set()
    if len(governors) == 1:
        found["scaling_governor"] = governors.pop()
    return found


def _governors(root: Root, attributes: Attributes) -> set[str]:
    """Those of policies that a processor has: one that is offline leaves its policy behind."""
    folders = [f"{_CPUS}/cpufreq/{name}" for name in root.list(f"{_CPUS}/cpufreq")]
    policies = [attributes.of(each, ("affected_cpus", "scaling_governor")) for each in folders]
    return {
        each["scaling_governor"]
        for each in policies
        if "affected_cpus" in each and "scaling_governor" in each
    }


def sst(root: Root, attributes: Attributes, block: Mapping[str, str]) -> dict[str, str]:
    """Whether SST-BF gives some cores a higher base frequency than the processor's own.

    node-feature-discovery has the nominal frequency from CPUID (leaf 0x16). Here it is what the
    name of the model says, or the firmware (CPPC); where neither does, nothing is said.
    """
    nominal = _nominal_mhz(attributes, block)
    if nominal is None or attributes.get(f"{_CPUS}/intel_pstate/status") is None:
        return {}
    for name in root.list(_CPUS):
        base = attributes.get(f"{_CPUS}/{name}/cpufreq/base_frequency")
        if base is not None and base.isdigit() and int(base) // 1000 > nominal:
            return {"bf.enabled": "true"}
    return {}


def _nominal_mhz(attributes: Attributes, block: Mapping[str, str]) -> int | None:
    named = _NOMINAL.search(block.get("model name", ""))
    if named is not None:
        return round(float(named[1]) * 1000)
    found = attributes.get(f"{_CPUS}/cpu0/acpi_cppc/nominal_freq")
    return int(found) if found is not None and found.isdigit() and int(found) else None
