# SPDX-License-Identifier: Apache-2.0
"""What the kubelet is answered for a container."""

import pytest
from tests.unit.deviceplugin.nodes import card, offer

from gpudeck.cdi import spec
from gpudeck.deviceplugin import answering, offering
from gpudeck.deviceplugin.answering import Answer, Mount, Ready, Way
from gpudeck.errors import InvalidError, UnavailableError
from gpudeck.pluginconfig.model import IdStrategy, ListStrategy

READY = Ready(named=("GPU-0", "GPU-1"))
NODE = spec.DeviceNode(path="/dev/nvidia1", host_path="/dev/nvidia1", major=195, minor=1)
CTL = spec.DeviceNode(path="/dev/nvidiactl", host_path="/dev/nvidiactl", major=195, minor=255)


def resource(config: str = "") -> offering.Resource:
    found = offer(config, card(0), card(1))
    return max(found.resources, key=lambda each: len(each.devices))


def test_the_variable_names_the_cards() -> None:
    answer = answering.answer(resource(), ["GPU-0", "GPU-1"], way=Way(), ready=READY)
    assert answer == Answer(envs=(("NVIDIA_VISIBLE_DEVICES", "GPU-0,GPU-1"),))


def test_cards_can_be_named_by_index() -> None:
    way = Way(ids=IdStrategy.INDEX)
    answer = answering.answer(resource(), ["GPU-1"], way=way, ready=READY)
    assert answer.envs == (("NVIDIA_VISIBLE_DEVICES", "1"),)


def test_mounts_name_the_cards() -> None:
    way = Way(strategies=(ListStrategy.VOLUME_MOUNTS,), imex_channels=(0,))
    answer = answering.answer(resource(), ["GPU-1"], way=way, ready=READY)
    folder = "/var/run/nvidia-container-devices"
    assert answer.envs == (("NVIDIA_VISIBLE_DEVICES", folder),)
    assert answer.mounts == (
        Mount(container_path=f"{folder}/GPU-1", host_path="/dev/null"),
        Mount(container_path=f"{folder}/imex/0", host_path="/dev/null"),
    )


def test_cdi_names_stand_in_the_answer_or_in_an_annotation() -> None:
    way = Way(strategies=(ListStrategy.CDI_CRI, ListStrategy.CDI_ANNOTATIONS))
    answer = answering.answer(resource(), ["GPU-1"], way=way, ready=READY)
    name = "k8s.device-plugin.nvidia.com/gpu=GPU-1"
    assert answer.cdi_devices == (name,)
    ((key, value),) = answer.annotations
    assert key.startswith("cdi.k8s.io/nvidia-device-plugin_")
    assert value == name
    assert answer.envs == ()


def test_a_card_without_a_cdi_entry_is_refused_with_its_reason() -> None:
    way = Way(strategies=(ListStrategy.CDI_CRI,))
    ready = Ready(unready=(("GPU-0", "/dev/nvidia0 is missing."),))
    with pytest.raises(UnavailableError, match="/dev/nvidia0 is missing"):
        answering.answer(resource(), ["GPU-0"], way=way, ready=ready)


def test_device_nodes_are_passed_once_each() -> None:
    ready = Ready(nodes=(("GPU-0", (CTL,)), ("GPU-1", (CTL, NODE))), named=READY.named)
    way = Way(pass_device_specs=True)
    answer = answering.answer(resource(), ["GPU-0", "GPU-1"], way=way, ready=ready)
    assert answer.nodes == (CTL, NODE)


@pytest.mark.parametrize("way", [Way(pass_device_specs=True), Way(imex_required=True)])
def test_a_card_is_refused_where_the_answer_would_lack_what_it_needs(way: Way) -> None:
    ready = Ready(unready=(("GPU-0", "/dev/nvidia0 is missing."),))
    with pytest.raises(UnavailableError, match="/dev/nvidia0 is missing"):
        answering.answer(resource(), ["GPU-0"], way=way, ready=ready)


def test_a_replica_is_refused_while_it_is_not_known_how_it_finds_its_daemon() -> None:
    by_mps = resource("sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}")
    with pytest.raises(UnavailableError, match="need of GPU-0"):
        answering.answer(by_mps, ["GPU-0::1"], way=Way(), ready=Ready())
    pipe = answering.Addition(envs=(("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"),))
    ready = Ready(named=("GPU-0",), additions=(("GPU-0", pipe),))
    answer = answering.answer(by_mps, ["GPU-0::1"], way=Way(), ready=ready)
    assert answer.envs == (("NVIDIA_VISIBLE_DEVICES", "GPU-0"), *pipe.envs)


SHARED = (
    "sharing: {timeSlicing: {failRequestsGreaterThanOne: %s, "
    "resources: [{name: gpu, replicas: 2}]}}"
)


def test_replicas_of_one_card_are_one_card() -> None:
    ids = ["GPU-0::0", "GPU-0::1"]
    answer = answering.answer(resource(SHARED % "false"), ids, way=Way(), ready=READY)
    assert answer.envs == (("NVIDIA_VISIBLE_DEVICES", "GPU-0"),)


def test_more_than_one_replica_is_refused_with_a_sentence() -> None:
    with pytest.raises(InvalidError, match=r"asks for 2 of nvidia.com/gpu; allowed: 1") as caught:
        answering.answer(
            resource(SHARED % "true"), ["GPU-0::0", "GPU-1::0"], way=Way(), ready=READY
        )
    assert caught.value.reason == "SharedRequestTooLarge"


def test_a_device_of_another_time_is_refused() -> None:
    with pytest.raises(InvalidError, match="GPU-9"):
        answering.answer(resource(), ["GPU-9"], way=Way(), ready=READY)


def test_features_are_named_to_the_toolkit() -> None:
    answer = answering.answer(resource(), ["GPU-0"], way=Way(features=("gds",)), ready=READY)
    assert ("NVIDIA_GDS", "enabled") in answer.envs
