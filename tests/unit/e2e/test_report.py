"""The picture of an end-to-end run: in its smallest and in its largest case all of its text is on it, side by side."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from rlscaler_dev.demo.timeline import build_timeline
from rlscaler_dev.e2e.report import compare, draw_comparison, tables
from rlscaler_dev.e2e.settings import Play
from tests.unit.demo.records_fixture import made_up_run

SMALLEST, LARGEST = (["spike"], ["hpa"]), (["spike", "ramp", "periodic", "random"], ["rl", "hpa"])


def played(out: Path, patterns: list[str], contenders: list[str]) -> list[Play]:
    timeline = build_timeline(made_up_run(120))
    plays = [Play(f"{one}-{pattern}", one, pattern, 120) for pattern in patterns for one in contenders]
    for play in plays:
        (out / play.name).mkdir()
        timeline.write(out / play.name / "timeline.csv")
    return plays


@pytest.mark.slow
@pytest.mark.parametrize(("patterns", "contenders"), [SMALLEST, LARGEST, (["spike"], ["rl", "hpa"])])
def test_title_legend_and_panels_are_whole_and_apart(
    tmp_path: Path, patterns: list[str], contenders: list[str]
) -> None:
    plays = played(tmp_path, patterns, contenders)
    figure = Figure((1.5 + 4 * len(patterns), 9))
    draw_comparison(figure, plays, tmp_path)
    figure.draw_without_rendering()
    assert len(figure.axes) == 4 * len(patterns)
    assert figure.legends[0].texts[0].get_text() == "all requests"
    (title,) = figure.texts
    boxes = [title.get_window_extent(), figure.legends[0].get_window_extent()]
    boxes += [axes.get_tightbbox() for axes in figure.axes]
    for box in boxes:
        assert box.x0 >= figure.bbox.x0
        assert box.x1 <= figure.bbox.x1
        assert box.y0 >= figure.bbox.y0
        assert box.y1 <= figure.bbox.y1
    for one, other in combinations(boxes, 2):
        assert not one.overlaps(other)


def test_the_picture_is_written_where_there_are_runs(tmp_path: Path) -> None:
    assert compare([], tmp_path) is None
    assert compare(played(tmp_path, *SMALLEST), tmp_path) == tmp_path / "comparison.png"
    assert (tmp_path / "comparison.png").stat().st_size > 20_000


def test_each_kind_of_part_has_a_table_and_what_is_not_known_is_a_dash() -> None:
    amounts = {"weight": 51, "cores": 0.2, "memory_mib": None, "used_mib": 70.0}
    pod = {"pod": "a", "cgroup_at_first": amounts, "cgroup": {**amounts, "cores": 0.6}, "restarts": 0}
    pods = [{**pod, "patch_to_cgroup_seconds": 0.25}, {**pod, "patch_to_cgroup_seconds": None}]
    consumers = {
        "messages": 35_000,
        "lost": 0,
        "late_percent": 12.5,
        "p95_lag_seconds": None,
        "seconds_above_objective": 7,
        "consumer_seconds": 1442.2,
        "rebalances": None,
        "most_members_that_were_ready_pods": 6,
    }
    sizes, streams = tables({"runs": [], "sizes": {"grows": pods, "too_large": pods[1]}, "consumers": consumers})
    cells = [list(column.cells) for column in sizes.columns]
    assert cells[0] == ["grows", "grows", "too large"]
    assert cells[2:6] == [["0.2"] * 3, ["0.6"] * 3, ["-"] * 3, ["-"] * 3]
    assert cells[6] == ["0.25", "-", "-"]
    assert [next(iter(column.cells)) for column in streams.columns] == [
        *("35,000", "0", "12.5 %", "-", "7", "1,442", "-", "6")
    ]
    assert tables({"runs": [], "sizes": None, "consumers": None}) == []
