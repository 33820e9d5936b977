# SPDX-License-Identifier: Apache-2.0
from benchmarks import peers, writing
from benchmarks.figures import Figure


def figure(key: str, group: str = "Start", *values: float) -> Figure:
    return Figure(
        key=key,
        group=group,
        what=f"what {key} takes",
        unit="s",
        values=list(values) or [1.0],
        command="measure it",
        when="2026-01-01",
        load=0.5,
    )


def test_a_command_that_measured_again_replaces_what_it_measured_before() -> None:
    other = figure("other", "Start")
    other.command = "measure something else"
    old = [figure("a"), figure("gone"), other]
    merged = writing.merge(old, [figure("a", "Start", 2.0)])
    assert [(each.key, each.values) for each in merged] == [("other", [1.0]), ("a", [2.0])]


def test_a_figure_stands_beside_the_peers_with_their_ratio() -> None:
    peer = peers.FIGURES["plugin_start"]
    results = writing.Results(figures=[figure("plugin_start", "Start", peer.median / 2)])
    row = next(line for line in writing.tables(results).splitlines() if "plugin_start" in line)
    assert row.endswith(f"| {peer.name}: {peer.text} s | 0.50 |")


def test_each_command_is_told_once_with_its_day_and_load() -> None:
    results = writing.Results(figures=[figure("a"), figure("b")])
    assert (
        writing.tables(results).count("`measure it`, 2026-01-01, load average before it 0.50.") == 1
    )


def test_the_tables_take_the_place_between_the_marks_again_and_again() -> None:
    page = f"# Title\n\n{writing.BEGIN}\nold\n{writing.END}\nafter\n"
    once = writing.placed(page, "new")
    assert once == f"# Title\n\n{writing.BEGIN}\n\nnew\n{writing.END}\nafter\n"
    assert writing.placed(once, "new") == once
