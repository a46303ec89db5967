"""The dashboards as files: they ask for what the operator says, and they show all of it."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import get_args

import pytest

from rlscaler_core.api.promotion import PromotionStatus
from tests.harness.monitoring import DASHBOARDS, SUFFIXES, exported, families, panels

NAME = re.compile(r"\brlscaler_\w+")
POLICY = next(path for path in DASHBOARDS if path.stem == "policy")


def queries(path: Path) -> list[str]:
    return [target["expr"] for panel in panels(path) for target in panel["targets"]]


def test_the_policys_dashboard_leads_with_state_savings_and_late_requests() -> None:
    first = panels(POLICY)
    assert [panel["title"] for panel in first[:4]] == [
        "State",
        "Saved today",
        "Late requests",
        "Late, times what may be",
    ]
    assert sum(panel["gridPos"]["y"] < 21 for panel in first) == 12
    colours = [step["color"] for step in first[3]["fieldConfig"]["defaults"]["thresholds"]["steps"]]
    assert colours == ["green", "orange", "red"]
    assert all("unit" in panel["fieldConfig"]["defaults"] for panel in first if panel["type"] == "timeseries")


def test_the_state_is_in_words_and_figures_have_units_and_bounds() -> None:
    state, saved, late, over, cost, ready = panels(POLICY)[:6]
    words = {rename["options"]["regex"].strip("^$") for rename in state["transformations"]}
    assert words == set(get_args(PromotionStatus.model_fields["state"].annotation))
    for panel in (saved, late, over, cost, ready):
        defaults = panel["fieldConfig"]["defaults"]
        assert defaults["unit"] != "short" or defaults.get("mappings")
    assert over["fieldConfig"]["defaults"]["unit"] == "suffix:\N{MULTIPLICATION SIGN}"


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_curve_of_one_point_is_visible(path: Path) -> None:
    curves = [panel["fieldConfig"]["defaults"]["custom"] for panel in panels(path) if panel["type"] == "timeseries"]
    assert {curve["showPoints"] for curve in curves} == {"auto"}


def test_decisions_are_marked() -> None:
    marks = [mark for mark in json.loads(POLICY.read_text())["annotations"]["list"] if mark.get("expr")]
    assert [mark["titleFormat"] for mark in marks] == ["{{pool}}: other replicas decided", "{{type}} changed"]
    assert {name for mark in marks for name in NAME.findall(mark["expr"])} <= exported()


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
    every = content["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    for panel in every:
        assert panel["title"]
        assert panel["type"] == "row" or (panel["description"] and panel["targets"])
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        for target in panel.get("targets", ()):
            assert target["datasource"]["uid"] == "${datasource}"
    for one, other in itertools.combinations([panel["gridPos"] for panel in every], 2):
        apart = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert apart or above, (one, other)
