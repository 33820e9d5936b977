# SPDX-License-Identifier: Apache-2.0
"""The configs that are there without anybody writing one, for every model that has MIG.

Names and counts are those of the ConfigMap `default-mig-parted-config` of the GPU
operator (26.7), so that labels on nodes keep their meaning: `all-disabled`, `all-enabled`,
`all-balanced` and `all-<profile>`. It serves nodes whose cards cannot be asked, and as an
example; `generating` makes the same from what a node's own cards say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from gpudeck.devices import profiles
from gpudeck.mig import configs

DISABLED, ENABLED, BALANCED = "all-disabled", "all-enabled", "all-balanced"
_NVIDIA = 0x10DE

Counts = Mapping[str, int]


class Family(msgspec.Struct, frozen=True):
    """Models whose cards have the same profiles."""

    devices: tuple[int, ...]
    """PCI device ids."""
    full: Counts
    """Each profile with as many of it as a card holds."""
    balanced: Counts

    @property
    def filters(self) -> tuple[configs.Filter, ...]:
        """The models as a config names them."""
        return tuple(configs.Filter(device << 16 | _NVIDIA) for device in self.devices)


def _seven(devices: str, sizes: str, wide: str) -> Family:
    """A card of seven compute slices: sizes in GB of 1g, 2g, 3g, 4g and 7g, and of a wide 1g."""
    one, two, three, four, seven = sizes.split()
    full = {
        f"1g.{one}gb": 7,
        f"1g.{one}gb+me": 1,
        f"1g.{wide}gb": 4,
        f"2g.{two}gb": 3,
        f"3g.{three}gb": 2,
        f"4g.{four}gb": 1,
        f"7g.{seven}gb": 1,
    }
    return Family(_ids(devices), full, {f"1g.{one}gb": 2, f"2g.{two}gb": 1, f"3g.{three}gb": 1})


def _ids(text: str) -> tuple[int, ...]:
    return tuple(int(each, 16) for each in text.split())


FAMILIES = (
    # A30
    Family(
        _ids("20B7"),
        {"1g.6gb": 4, "1g.6gb+me": 1, "2g.12gb": 2, "2g.12gb+me": 1, "4g.24gb": 1},
        {"1g.6gb": 2, "2g.12gb": 1},
    ),
    _seven("20B0 20B1 20F1 20F6", "5 10 20 20 40", "10"),  # A100 40 GB
    _seven("20B2 20B5 20F3 20F5 2330 2331 2322 2324", "10 20 40 40 80", "20"),  # A100, H100 80 GB
    _seven("2321 233A", "12 24 47 47 94", "24"),  # H100 94 GB
    _seven("2342 233D 20B6 2329", "12 24 48 48 96", "24"),  # 96 GB: GH200, H100, H20, A100
    _seven("2335 233B", "18 35 71 71 141", "35"),  # H200 141 GB
    _seven("2348", "18 36 72 72 144", "36"),  # GH200 144 GB
    _seven("2901", "23 45 90 90 180", "45"),  # B200
    _seven("2941", "23 47 93 93 186", "47"),  # GB200
    _seven("3182", "34 67 135 135 269", "67"),  # B300
    _seven("31C2", "35 70 139 139 278", "70"),  # GB300
    # RTX PRO 6000
    Family(
        _ids("2BB5"),
        {
            "1g.24gb": 4,
            "1g.24gb+me": 1,
            "1g.24gb+gfx": 4,
            "1g.24gb+me.all": 1,
            "1g.24gb-me": 4,
            "2g.48gb": 2,
            "2g.48gb+gfx": 2,
            "2g.48gb+me.all": 1,
            "2g.48gb-me": 2,
            "4g.96gb": 1,
            "4g.96gb+gfx": 1,
        },
        {"1g.24gb": 2, "2g.48gb": 1},
    ),
)

_EARLIER_GB200 = {"3g.95gb": 2, "4g.95gb": 1, "7g.189gb": 1}
"""Names of the larger profiles by other firmware of the same model."""


def name_of(profile: str) -> str:
    """The name of the config that fills cards with one profile."""
    return f"all-{profiles.spelled(profile)}"


def all_models() -> dict[str, configs.Config]:
    """Return the configs for every model."""
    found = start()
    counts: dict[str, dict[int, list[Family]]] = {}
    for family in FAMILIES:
        for profile, count in family.full.items():
            counts.setdefault(profile, {}).setdefault(count, []).append(family)
    for profile, by_count in counts.items():
        found[name_of(profile)] = tuple(
            # A profile of which all models hold as many needs no filter: then it serves
            # models that are not known here too.
            entry({profile: count}, families if len(by_count) > 1 else ())
            for count, families in by_count.items()
        )
    for profile, count in _EARLIER_GB200.items():
        found[name_of(profile)] = (entry({profile: count}, ()),)
    balanced: dict[tuple[tuple[str, int], ...], list[Family]] = {}
    for family in FAMILIES:
        balanced.setdefault(tuple(family.balanced.items()), []).append(family)
    found[BALANCED] = tuple(entry(dict(each), those) for each, those in balanced.items())
    return found


def start() -> dict[str, configs.Config]:
    """Return the configs that are the same for all cards."""
    return {
        DISABLED: (configs.Entry(enabled=False),),
        ENABLED: (configs.Entry(enabled=True),),
    }


def entry(counts: Counts, families: Iterable[Family]) -> configs.Entry:
    """Return the entry for cards of some families; for all cards if there are none."""
    filters = tuple(each for family in families for each in family.filters)
    return configs.Entry(enabled=True, counts=counts, filters=filters)
