# SPDX-License-Identifier: Apache-2.0
"""A plugin config: what users write is read, what does nothing is refused by its path."""

import math

import pytest

from gpudeck.errors import InvalidError
from gpudeck.pluginconfig import model, reading

SLICE_4 = """\
version: v1
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources:
    - name: nvidia.com/gpu
      replicas: 4
"""


def test_a_time_slicing_config_as_users_write_it_is_read() -> None:
    sharing = reading.parse(SLICE_4).sharing
    assert sharing == model.Sharing(
        strategy=model.Strategy.TIME_SLICING,
        rename_by_default=True,
        fail_requests_greater_than_one=True,
        resources=(model.Replicated(name="nvidia.com/gpu", replicas=4),),
    )


def test_every_field_is_read() -> None:
    config = reading.parse(
        """\
version: v1
flags:
  migStrategy: mixed
  failOnInitError: false
  mpsRoot: /run/nvidia/mps
  nvidiaDriverRoot: /run/nvidia/driver
  nvidiaDevRoot: /
  gdrcopyEnabled: true
  gdsEnabled: false
  mofedEnabled: true
  useNodeFeatureAPI: true
  deviceDiscoveryStrategy: nvml
  plugin:
    passDeviceSpecs: true
    deviceListStrategy: [envvar, cdi-annotations]
    deviceIDStrategy: index
    cdiAnnotationPrefix: cdi.k8s.io/
    nvidiaCTKPath: /usr/bin/nvidia-ctk
    containerDriverRoot: /driver-root
    sharedDevicesAllocationPolicy: packed
  gfd:
    oneshot: false
    noTimestamp: true
    sleepInterval: 1m30s
    outputFile: /etc/features
    machineTypeFile: /sys/class/dmi/id/product_name
resources:
  gpus: [{pattern: "*A100*", name: a100}]
  mig: [{pattern: "1g.*", name: nvidia.com/small}]
sharing:
  mps:
    resources:
    - {name: gpu, replicas: 2, rename: gpu-half, devices: [0, "0:1", GPU-1], memoryLimit: 8Gi}
imex: {channelIDs: [0], required: true}
"""
    )
    assert config.flags.plugin.device_list_strategy == (
        model.ListStrategy.ENVVAR,
        model.ListStrategy.CDI_ANNOTATIONS,
    )
    assert config.flags.gfd.sleep_interval_seconds == 90
    assert config.resources.gpus == (model.Named(pattern="*A100*", name="nvidia.com/a100"),)
    assert config.sharing is not None
    assert config.sharing.fail_requests_greater_than_one, "MPS gives one replica unless told else"
    assert config.sharing.resources[0] == model.Replicated(
        name="nvidia.com/gpu",
        replicas=2,
        rename="nvidia.com/gpu-half",
        devices=("0", "0:1", "GPU-1"),
        memory_limit="8Gi",
    )
    assert config.imex == model.Imex(channel_ids=(0,), required=True)


@pytest.mark.parametrize("text", ["", "version: v1", "flags:\nsharing:\n", "# nothing"])
def test_a_config_that_says_nothing_changes_nothing(text: str) -> None:
    assert reading.parse(text) == model.Config()


@pytest.mark.parametrize(
    ("written", "strategies"),
    [
        ("envvar", ["envvar"]),
        ("[envvar, cdi-cri]", ["envvar", "cdi-cri"]),
        ('"envvar,cdi-cri"', ["envvar", "cdi-cri"]),
    ],
)
def test_list_strategies_are_one_word_or_a_list(written: str, strategies: list[str]) -> None:
    config = reading.parse(f"flags: {{plugin: {{deviceListStrategy: {written}}}}}")
    assert list(config.flags.plugin.device_list_strategy or ()) == strategies


def test_a_number_is_nanoseconds() -> None:
    flags = reading.parse("flags: {gfd: {sleepInterval: 60000000000}}").flags
    assert flags.gfd.sleep_interval_seconds == 60


def test_an_infinite_interval_is_read() -> None:
    flags = reading.parse("flags: {gfd: {sleepInterval: infinite}}").flags
    assert flags.gfd.sleep_interval_seconds == math.inf


SHARING = "sharing: {timeSlicing: {resources: "


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ("version: v2", "version", "v1"),
        ("flags: {renameByDefault: true}", "flags.renameByDefault", "sharing.timeSlicing"),
        ("flags: {migStrategy: some}", "flags.migStrategy", "none, single, mixed"),
        ("flags: {plugin: {deviceListStrategy: []}}", "flags.plugin.deviceListStrategy", "cdi-cri"),
        (
            "flags: {plugin: {deviceListStrategy: [env-var]}}",
            "flags.plugin.deviceListStrategy[0]",
            "envvar",
        ),
        ("flags: {failOnInitError: 'true'}", "flags.failOnInitError", "true or false"),
        ("flags: {gfd: {sleepInterval: soon}}", "flags.gfd.sleepInterval", "60s"),
        ("flags: {gfd: {sleepInterval: 60}}", "flags.gfd.sleepInterval", "at least 1s"),
        ("flags: {gfd: {sleepInterval: 1ms}}", "flags.gfd.sleepInterval", "at least 1s"),
        ("sharing: {timeSlicing: {}}", "sharing.timeSlicing.resources", "a list of"),
        (SHARING + "[]}}", "sharing.timeSlicing.resources", "at least one"),
        (
            SHARING + "[{name: gpu, replicas: 1}]}}",
            "sharing.timeSlicing.resources[0].replicas",
            "at least 2",
        ),
        (
            SHARING + "[{name: gpu, replicas: 513}]}}",
            "sharing.timeSlicing.resources[0].replicas",
            "at most 512",
        ),
        (
            SHARING + "[{name: gpu, replicas: true}]}}",
            "sharing.timeSlicing.resources[0].replicas",
            "at least 2",
        ),
        (
            "sharing: {mps: {resources: [{name: gpu, replicas: 49}]}}",
            "sharing.mps.resources[0].replicas",
            "at most 48",
        ),
        (SHARING + "[{replicas: 2}]}}", "sharing.timeSlicing.resources[0].name", "lower-case"),
        (
            SHARING + "[{name: GPU, replicas: 2}]}}",
            "sharing.timeSlicing.resources[0].name",
            "lower-case",
        ),
        (
            SHARING + "[{name: gpu, replicas: 2, devices: [x]}]}}",
            "sharing.timeSlicing.resources[0].devices[0]",
            "UUID",
        ),
        (
            SHARING + "[{name: gpu, replicas: 2, memoryLimit: much}]}}",
            "sharing.timeSlicing.resources[0].memoryLimit",
            "8Gi",
        ),
        (
            SHARING + "[{name: gpu, replicas: 2, memoryLimit: '5'}]}}",
            "sharing.timeSlicing.resources[0].memoryLimit",
            "at least 1Mi",
        ),
        ("imex: {channelIDs: [1]}", "imex.channelIDs[0]", "0"),
        ("imex: {channelIDs: [false]}", "imex.channelIDs[0]", "0"),
        ("imex: {channelIDs: [0, 0]}", "imex.channelIDs", "[0]"),
        ("resources: {gpus: [{pattern: x}]}", "resources.gpus[0].name", "lower-case"),
        ("sharing: [1]", "sharing", "timeSlicing, mps"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(text: str, path: str, words: str) -> None:
    with pytest.raises(InvalidError) as caught:
        reading.parse(text)
    assert caught.value.field == path
    assert words in caught.value.allowed
    assert path in caught.value.message


def test_all_that_is_wrong_is_named_at_once() -> None:
    with pytest.raises(InvalidError) as caught:
        reading.parse(
            """\
version: v2
flags: {migStrategy: some, plugin: {passDeviceSpecs: 1, deviceListStrategy: [x, envvar, y]}}
sharing:
  timeSlicing:
    renameByDefault: "yes"
    resources:
    - {name: gpu, replicas: 1}
    - {replicaz: 4, devices: [0, x]}
  mps: 5
imex: [0]
"""
        )
    paths = [
        "version",
        "flags.migStrategy",
        "flags.plugin.passDeviceSpecs",
        "flags.plugin.deviceListStrategy[0]",
        "flags.plugin.deviceListStrategy[2]",
        "sharing.timeSlicing.renameByDefault",
        "sharing.timeSlicing.resources[0].replicas",
        "sharing.timeSlicing.resources[1].replicaz",
        "sharing.timeSlicing.resources[1].devices[1]",
        "sharing.timeSlicing.resources[1].name",
        "sharing.timeSlicing.resources[1].replicas",
        "sharing.mps",
        "imex",
    ]
    assert caught.value.field == "version"
    assert caught.value.message.startswith(f"{len(paths)} fields are wrong: (1) version: 'v2' is")
    shown = [each for each in paths if f") {each}: " in caught.value.message]
    assert shown == paths[: len(shown)]
    assert caught.value.message.endswith(f"; and {len(paths) - len(shown)} more")
    assert len(caught.value.message) < 900


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "YAML"),
        ("version: v1\nversion: v1", "line 2, column 1: the key 'version' stands twice"),
        ("sharing:\n\u00a0timeSlicing:", "line 2 holds a no-break space"),
    ],
)
def test_what_is_no_document_is_said_with_its_line(text: str, words: str) -> None:
    with pytest.raises(InvalidError, match=words):
        reading.parse(text)


def test_a_config_that_would_keep_the_node_busy_is_refused_by_its_length() -> None:
    with pytest.raises(InvalidError, match="70000 characters; allowed: at most 65536"):
        reading.parse("#" * 70_000)


@pytest.mark.parametrize(
    "text", [SLICE_4.replace("\n", "\r\n"), "\ufeff" + SLICE_4, "---\n" + SLICE_4, SLICE_4 + "..."]
)
def test_what_editors_put_around_a_config_changes_nothing(text: str) -> None:
    assert reading.parse(text) == reading.parse(SLICE_4)


def test_a_partition_needs_no_quotes() -> None:
    text = SHARING + "[{name: mig-1g.5gb, replicas: 2, devices: [0:1, 1:0]}]}}"
    sharing = reading.parse(text).sharing
    assert sharing is not None
    assert sharing.resources[0].devices == ("0:1", "1:0")


def test_time_slicing_beside_mps_is_said_to_do_nothing() -> None:
    text = (
        "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}, "
        "mps: {resources: [{name: gpu, replicas: 3}]}}"
    )
    config = reading.parse(text)
    assert config.sharing is not None
    assert config.sharing.strategy is model.Strategy.MPS
    assert config.notes[0].startswith("sharing.timeSlicing:")


def test_what_has_no_effect_here_is_said_by_its_path() -> None:
    config = reading.parse("flags: {mpsRoot: /mps, failOnInitError: true, migStrategy: none}")
    paths = [each.partition(":")[0] for each in config.notes]
    assert paths == ["flags.mpsRoot", "flags.failOnInitError"]
