"""The dashboards as files: they ask for what the operator says, and they show all of it."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest

from rlscaler_dev.cluster.dashboards.model import ROW, expand, load
from rlscaler_dev.exceptions import DevClusterError
from tests.harness.monitoring import DASHBOARDS, SUFFIXES, exported, families

NAME = re.compile(r"\brlscaler_\w+")


def queries(path: Path) -> list[str]:
    return [target.expr for panel in load(path).panels for target in panel.targets]


def test_the_policys_dashboard_leads_with_state_savings_and_late_requests() -> None:
    board = load(next(path for path in DASHBOARDS if path.stem == "policy"))
    first = sorted(
        (panel for panel in board.panels if panel.kind != ROW), key=lambda panel: (panel.box[1], panel.box[0])
    )
    assert [panel.title for panel in first[:4]] == ["State", "Saved today", "Late requests", "Of what may be late"]
    assert sum(panel.box[1] < 21 for panel in first) == 12
    budget = first[3]
    assert [budget.colour(value) for value in (0.1, 0.7, 1.5)] == ["green", "orange", "red"]
    assert {panel.limits for panel in first[:12]} == {"", "SLO", "budget", "max|min"}
    for panel in board.panels:
        assert panel.kind == ROW or panel.unit


def test_decisions_are_marked() -> None:
    board = load(next(path for path in DASHBOARDS if path.stem == "policy"))
    assert [mark.legend for mark in board.marks] == ["{{pool}}: other replicas decided", "{{type}} changed"]
    assert {name for mark in board.marks for name in NAME.findall(mark.expr)} <= exported()


def test_there_are_dashboards() -> None:
    assert [path.stem for path in DASHBOARDS] == ["fleet", "operator", "policy"]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_asks_only_for_metrics_that_exist(path: Path) -> None:
    asked = {name for query in queries(path) for name in NAME.findall(query)}
    assert asked
    assert asked <= exported()


def test_every_metric_is_on_some_dashboard() -> None:
    asked = {name for path in DASHBOARDS for query in queries(path) for name in NAME.findall(query)}
    missing = [name for name, kind in families().items() if not asked & {name + s for s in SUFFIXES[kind]}]
    assert missing == []


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_panels_have_a_place_a_title_and_an_explanation(path: Path) -> None:
    content = json.loads(path.read_text())
    assert content["uid"] == f"rlscaler-{path.stem}"
    panels = content["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["title"]
        assert panel["type"] == ROW or (panel["description"] and panel["targets"])
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        for target in panel.get("targets", ()):
            assert target["datasource"]["uid"] == "${datasource}"
    for one, other in itertools.combinations([panel["gridPos"] for panel in panels], 2):
        apart = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert apart or above, (one, other)


def test_a_variable_without_a_value_is_named() -> None:
    assert expand('x{a="$policy",b=~"${namespace}"}[$__rate_interval]', {"policy": "p", "namespace": ".+",
        "__rate_interval": "8s"}) == 'x{a="p",b=~".+"}[8s]'  # fmt: skip
    with pytest.raises(DevClusterError, match="--var policy=VALUE"):
        expand("$policy", {})


def test_a_file_that_is_no_dashboard_is_named(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text("{}")
    with pytest.raises(DevClusterError, match=r"other\.json: not a dashboard"):
        load(path)
