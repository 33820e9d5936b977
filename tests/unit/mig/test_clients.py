# SPDX-License-Identifier: Apache-2.0
"""The file of services that have cards open, as users of the GPU operator write it."""

from __future__ import annotations

import pytest
from tests.support.lab import ROOT

from gpudeck import errors
from gpudeck.mig import clients

SHIPPED = ROOT / "charts/gpudeck/files/default-gpu-clients.yaml"


def test_the_units_of_the_file_are_read_each_once() -> None:
    text = "version: v1\nsystemd-services: [nvsm.service, dcgm.service, nvsm.service]\n"
    assert clients.read("mine", text) == ("nvsm.service", "dcgm.service")
    for nothing in ("version: v1", "version: v1\nsystemd-services:\n"):
        assert clients.read("mine", nothing) == ()


def test_the_shipped_ones_are_those_of_the_gpu_operator_and_the_persistence_daemon() -> None:
    found = clients.read("default-gpu-clients", SHIPPED.read_text())
    assert {"nvsm.service", "dcgm.service", "nvidia-persistenced.service"} <= set(found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "clients.yaml: "),
        ("[]", "clients.yaml: [] is not valid; allowed: a mapping with version, systemd-services"),
        ("version: v2", "version: 'v2' is not valid; allowed: v1"),
        (
            "version: v1\nservices: []",
            "services: [] is not valid; allowed: the keys version, systemd",
        ),
        ("version: v1\nsystemd-services: x", "systemd-services: 'x' is not valid; allowed: a list"),
        ("version: v1\nsystemd-services: [dcgm]", "systemd-services[0]: 'dcgm' is not valid"),
        ("version: v1\nsystemd-services: [--now.service]", "systemd-services[0]: '--now.service'"),
    ],
)
def test_a_wrong_file_is_refused_by_its_field(text: str, said: str) -> None:
    with pytest.raises(errors.InvalidError) as caught:
        clients.read("mine", text)
    assert f"mine: {said}" in caught.value.message
    assert caught.value.reason == "GpuClientsInvalid"


def test_all_that_is_wrong_is_named_at_once() -> None:
    with pytest.raises(errors.InvalidError) as caught:
        clients.read("mine", "services: []\nsystemd-services: [dcgm, a.service, 5]")
    message = caught.value.message
    assert message.startswith("mine: 4 fields are wrong: (1) services: ")
    for said in ("(2) version: is missing", "(3) systemd-services[0]", "(4) systemd-services[2]"):
        assert said in message
