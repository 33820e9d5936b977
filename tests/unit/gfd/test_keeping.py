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


def test_a_file_that_sends_the_labels_elsewhere_is_told_what_would(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A named config is told so on the Node (`pluginconfig.selecting`)."""
    sink = publishing.File(Root(tmp_path), "/gfd")
    labels = keeping.Labels(Settings(config_file="/config.yaml"), sink, options.Options())
    named = selecting.select({"a": ELSEWHERE}, selecting.Choices(label="a"), None)
    labels.choose(named)
    assert "restart" not in caplog.text
    labels.choose(selecting.of_file("config", "version: v1"))
    assert "a restart of the process" in caplog.text
