# SPDX-License-Identifier: Apache-2.0
"""Labels without a rule: names, values, and what gets none."""

from __future__ import annotations

from gpudeck.features.known import Known
from gpudeck.features.labelling import Choices, labels

PREFIX = "feature.node.kubernetes.io/"
GPU = {"class": "0302", "vendor": "10de", "device": "20b0"}
NIC = {"class": "0200", "vendor": "15b3", "device": "101b", "sriov_totalvfs": "8"}


def short(known: Known, choices: Choices | None = None) -> dict[str, str]:
    """The labels of the own namespace, without it."""
    return {
        name.removeprefix(PREFIX): value
        for name, value in labels(known, choices or Choices()).items()
    }


def test_a_card_is_named_by_class_and_vendor_as_the_seed_expects() -> None:
    known = Known(instances={"pci.device": [GPU, GPU, NIC]})
    assert short(known) == {"pci-0302_10de.present": "true", "custom-rdma.capable": "true"}


def test_the_operator_chart_chooses_vendors_only() -> None:
    known = Known(instances={"pci.device": [GPU, NIC]})
    chosen = Choices(pci_classes=("02", "0200", "0207", "0300", "0302"), pci_fields=("vendor",))
    assert short(known, chosen) == {
        "pci-10de.present": "true",
        "pci-15b3.present": "true",
        "pci-15b3.sriov.capable": "true",
        "custom-rdma.capable": "true",
    }


def test_fields_keep_their_order() -> None:
    known = Known(instances={"pci.device": [GPU]})
    assert short(known, Choices(pci_fields=("device", "vendor"))) == {
        "pci-10de_20b0.present": "true"
    }
    assert short(known, Choices(pci_fields=("colour",))) == {"pci-0302_10de.present": "true"}


def test_all_sources_have_their_labels() -> None:
    known = Known(
        flags={
            "cpu.cpuid": {"AVX512F", "SSE2"},
            "kernel.loadedmodule": {"ib_uverbs", "rdma_ucm"},
        },
        attributes={
            "cpu.model": {"vendor_id": "Intel", "family": "6", "id": "143"},
            "cpu.topology": {"hardware_multithreading": "true"},
            "cpu.security": {"sgx.enabled": "true"},
            "kernel.version": {"full": "6.8.0+x", "major": "6"},
            "kernel.config": {"NO_HZ": "y", "PREEMPT": "", "X86": "y"},
            "kernel.selinux": {"enabled": "true"},
            "memory.numa": {"is_numa": "true"},
            "memory.swap": {"enabled": "false"},
            "system.osrelease": {"ID": "ubuntu", "VERSION_ID": "24.04", "NAME": "Ubuntu"},
            "local.label": {"nvidia.com/gpu.count": "4", "mine": "1"},
        },
        instances={
            "network.device": [NIC],
            "storage.block": [{"rotational": "0"}],
            "memory.nv": [{"devtype": "nd_dax"}],
            "usb.device": [{"class": "0e", "vendor": "18d1", "device": "9302"}],
        },
    )
    assert short(known) == {
        "cpu-cpuid.AVX512F": "true",
        "cpu-model.vendor_id": "Intel",
        "cpu-model.family": "6",
        "cpu-model.id": "143",
        "cpu-hardware_multithreading": "true",
        "cpu-security.sgx.enabled": "true",
        "custom-rdma.available": "true",
        "kernel-version.full": "6.8.0x",
        "kernel-version.major": "6",
        "kernel-config.NO_HZ": "true",
        "kernel-selinux.enabled": "true",
        "memory-numa": "true",
        "memory-nv.present": "true",
        "memory-nv.dax": "true",
        "network-sriov.capable": "true",
        "storage-nonrotationaldisk": "true",
        "system-os_release.ID": "ubuntu",
        "system-os_release.VERSION_ID": "24.04",
        "usb-0e_18d1_9302.present": "true",
        "mine": "1",
        "nvidia.com/gpu.count": "4",
    }


def test_a_whitelist_looks_at_the_name_without_its_namespace() -> None:
    known = Known(
        instances={"pci.device": [GPU]}, attributes={"local.label": {"nvidia.com/gpu.count": "4"}}
    )
    assert list(labels(known, Choices(whitelist="^gpu"))) == ["nvidia.com/gpu.count"]


def test_a_name_that_no_label_has_takes_no_time_and_ends_no_worker() -> None:
    known = Known(attributes={"local.label": {"example.com/" + "ab" * 30_000: "1"}})
    assert labels(known, Choices(whitelist="(a|b)*a(a|b){40}c")) == {}


def test_only_chosen_sources_have_labels_and_features_stay_known() -> None:
    known = Known(
        flags={"cpu.cpuid": {"AVX"}},
        attributes={"local.label": {"nvidia.com/gpu.count": "4"}},
        instances={"pci.device": [GPU, NIC]},
    )
    assert short(known, Choices(sources=("pci",))) == {"pci-0302_10de.present": "true"}
    assert short(known, Choices(sources=("local", "cpu"))) == {
        "cpu-cpuid.AVX": "true",
        "nvidia.com/gpu.count": "4",
    }


def test_cpu_features_that_are_shown_are_shown_although_they_are_hidden() -> None:
    known = Known(flags={"cpu.cpuid": {"AVX", "MMX", "SSE2"}})
    assert short(known) == {"cpu-cpuid.AVX": "true"}
    assert short(known, Choices(cpuid_shown=("MMX", "AVX512F"))) == {"cpu-cpuid.MMX": "true"}


def test_features_are_hidden_by_name_or_by_their_beginning() -> None:
    known = Known(
        flags={"kernel.loadedmodule": {"nvidia"}},
        attributes={"kernel.config": {"X86": "y"}, "kernel.version": {"major": "6"}},
        instances={"usb.device": [{}], "pci.device": [GPU]},
    )
    rest = known.without(("kernel.config", "usb.*"))
    assert set(rest.flags) == {"kernel.loadedmodule"}
    assert set(rest.attributes) == {"kernel.version"}
    assert set(rest.instances) == {"pci.device"}
    assert known.without(()) == known
    assert known.without(("*",)) == Known()
