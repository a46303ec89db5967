"""Reports say the same thing everywhere, losses first; files carry the promised names."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import jsonschema
import pytest
from rich.console import Console

from rlscaler_rl.evaluation.plots import bars
from rlscaler_rl.evaluation.plots.radar import shown_of
from rlscaler_rl.evaluation.report import firstpage
from rlscaler_rl.evaluation.report.documents import text_report
from rlscaler_rl.evaluation.report.terminal import show
from rlscaler_rl.evaluation.result import Layout, rows_digest, write_all
from rlscaler_rl.evaluation.schema import ResultFile, json_schema

pytestmark = pytest.mark.slow


def test_the_text_report_has_losses_on_its_first_page(result):
    lines = text_report(result).splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("WHERE IT LOSES"))
    every = next(index for index, line in enumerate(lines) if line.startswith("EVERY LOSS"))
    assert first < 25
    assert first < every < next(index for index, line in enumerate(lines) if line.startswith("WINS"))
    lost = [row for row in result.rows if row.difference and row.difference.verdict == "loss"]
    assert lost
    assert all(any(row.label in line for line in lines[every:]) for row in lost if row.role != "reference")


def test_pictures_show_whom_they_promise(result):
    assert shown_of(result) == ["policy", "hpa_tuned", "rule_tuned", "keda_tuned", "hindsight_tuned"]
    assert set(bars.SHOWN_METRICS) <= {row.contender for row in result.rows}


def test_workloads_with_losses_come_first(result):
    listed = firstpage.losses_first(result)
    assert listed[0] == "all"
    worst = {
        name: any(
            row.difference is not None and row.difference.verdict == "loss"
            for row in result.rows
            if row.workload == name and row.contender in firstpage.rivals_of(result)
        )
        for name in listed
    }
    counted = [worst[name] for name in listed[1:3]]
    assert counted == sorted(counted, reverse=True)


def test_the_first_page_says_gate_distance_and_floor(result):
    text = text_report(result)
    assert text.index("GATE") < text.index("EVERY LOSS")
    table = firstpage.losses_table(result)
    assert {"floor", "gate", "closed"} <= set(table.header)
    assert "stand in: hpa, rule" in text or not result.gate.untuned


def test_an_invalid_run_says_so_before_any_figure(result):
    broken = result.model_copy(update={"valid": False, "reasons": ["broken meter: made up"]})
    assert text_report(broken).splitlines()[2].startswith("INVALID")
    assert "broken meter: made up" in text_report(broken)


def test_the_terminal_summary_fits_80_columns(result, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    console = Console(file=io.StringIO(), width=80)
    show(result, Path("somewhere"), console)
    shown = console.file.getvalue()
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    assert shown.index("LOSSES FIRST") < shown.index("GATE")
    assert "somewhere" in shown


def test_the_folder_holds_exactly_the_files_that_are_named(result, played, tmp_path):
    layout = Layout(tmp_path / "x", "comparison", [item.name for item in result.workloads])
    made = result.model_copy(update={"files": layout.names()})
    write_all(layout, made, played)
    assert {path.name for path in layout.folder.iterdir()} == set(layout.names())
    page = (layout.folder / layout.html).read_text()
    assert page.count("data:image/png;base64,") == 4 + len(result.workloads)
    assert not re.search(r"(src|href)=.https?:", page), "nothing is fetched"
    assert page.index("Where it loses") < page.index("data:image/png")
    content = json.loads((layout.folder / layout.json).read_text())
    assert {"rows", "invariants", "digests"} <= set(content)
    jsonschema.validate(content, json.loads(json_schema(ResultFile)))
    assert ResultFile.model_validate(content).rows == made.rows


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (
            "comparison",
            {
                "rl_comparison_data.json",
                "rl_comparison_plots.png",
                "rl_comparison_report.txt",
                "rl_comparison_report.html",
            },
        ),
        (
            "evaluation",
            {
                "comprehensive_evaluation.json",
                "evaluation_comparison.png",
                "evaluation_20260101_000000_report.txt",
                "evaluation_20260101_000000_report.html",
            },
        ),
    ],
)
def test_the_names_are_those_users_know(kind, expected, tmp_path):
    assert expected <= set(Layout(tmp_path / "evaluation_20260101_000000", kind, ["ramp"]).names())


def test_the_digest_follows_the_rows(result):
    assert result.digests.rows == rows_digest(result.rows)
    assert rows_digest(result.rows[1:]) != result.digests.rows


def test_every_workload_prints_its_physical_floor(result):
    text = text_report(result)
    for workload in result.workloads:
        assert workload.cost_floor > 0
        assert f"{workload.cost_floor:.2f}" in text
