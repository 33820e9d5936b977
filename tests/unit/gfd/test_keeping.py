# SPDX-License-Identifier: Apache-2.0
"""What the process says of a config that it cannot follow while it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudeck.gfd import keeping, options, publishing
from gpudeck.gfd.settings import Settings
from gpudeck.host.root import Root
from gpudeck.pluginconfig import selecting

ELSEWHERE = "flags: {useNodeFeatureAPI: false, gfd: {outputFile: /run/labels}}"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (Settings(config_file="/config.yaml"), "a restart of the process"),
        (Settings(config_map="configs"), "settings use-node-feature-api and output-file"),
    ],
)
def test_a_config_that_sends_the_labels_elsewhere_is_told_what_would(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, settings: Settings, words: str
) -> None:
    sink = publishing.File(Root(tmp_path), "/gfd")
    labels = keeping.Labels(settings, sink, options.Options())
    labels.choose(selecting.of_file("config", "version: v1"))
    assert "labels go" not in caplog.text
    labels.choose(selecting.of_file("config", ELSEWHERE))
    assert words in caplog.text
