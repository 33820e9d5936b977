# SPDX-License-Identifier: Apache-2.0
"""What decides labels and where they go, besides the cards: settings, then config, then defaults.

But for what the device plugin has as well: the MIG strategy of the config wins, for labels are to
tell what the plugin offers.
"""

from __future__ import annotations

import msgspec

from gpudeck import errors
from gpudeck.api import fields
from gpudeck.gfd import sharing
from gpudeck.gfd.settings import Settings
from gpudeck.pluginconfig import model, reading
from gpudeck.pluginconfig import settings as configured

_WORDS = {"true": True, "1": True, "yes": True, "on": True}
_WORDS |= {"false": False, "0": False, "no": False, "off": False}

OUTPUT_FILE = "/etc/kubernetes/node-feature-discovery/features.d/gfd"
MACHINE_TYPE_FILE = "/sys/class/dmi/id/product_name"


class Options(msgspec.Struct, frozen=True):
    """Defaults are those of gpu-feature-discovery 0.20."""

    mig_strategy: model.MigStrategy = model.MigStrategy.NONE
    fail_on_init_error: bool = True
    oneshot: bool = False
    timestamp: bool = True
    sleep_seconds: float = 60.0
    """Infinite for never."""
    output_file: str = OUTPUT_FILE
    machine_type_file: str = MACHINE_TYPE_FILE
    use_node_feature_api: bool = True
    sharing: sharing.Sharing = sharing.Sharing()
    resources: model.Resources = model.Resources()
    """The names by which cards and partitions are offered."""


def merged(settings: Settings, config: model.Config) -> Options:
    """Settle what holds. Raises InvalidError for a setting that cannot be."""
    flags = configured.completed(config, settings).flags
    gfd = flags.gfd
    interval = gfd.sleep_interval_seconds or 60.0
    if settings.sleep_interval:
        interval = fields.read(
            settings.sleep_interval,
            reading.duration,
            reason=errors.InvalidError.reason,
            path="--sleep-interval",
        )
    use_api = settings.use_node_feature_api
    fails = settings.fail_on_init_error
    return Options(
        mig_strategy=flags.mig_strategy or model.MigStrategy.NONE,
        fail_on_init_error=_flag("--fail-on-init-error", fails, flags.fail_on_init_error, True),
        oneshot=_flag("--oneshot", settings.oneshot, gfd.oneshot, False),
        timestamp=not _flag("--no-timestamp", settings.no_timestamp, gfd.no_timestamp, False),
        sleep_seconds=interval,
        output_file=settings.output_file or gfd.output_file or OUTPUT_FILE,
        machine_type_file=settings.machine_type_file or gfd.machine_type_file or MACHINE_TYPE_FILE,
        use_node_feature_api=_flag(
            "--use-node-feature-api", use_api, flags.use_node_feature_api, True
        ),
        sharing=sharing.of_config(config.sharing),
        resources=config.resources,
    )


def _flag(name: str, given: str, in_file: bool | None, default: bool) -> bool:
    if not given:
        return default if in_file is None else in_file
    if given.strip().lower() in _WORDS:
        return _WORDS[given.strip().lower()]
    raise errors.not_valid(name, given, "true or false")
