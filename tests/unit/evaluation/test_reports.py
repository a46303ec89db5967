"""Reports say the same thing everywhere, losses first; files carry the promised names."""

from __future__ import annotations

import io
import json

import jsonschema
import pytest
from rich.console import Console

from rlscaler_rl.evaluation.files import Layout, write_all
from rlscaler_rl.evaluation.report.terminal import show
from rlscaler_rl.evaluation.report.text import text_report
from rlscaler_rl.evaluation.result import rows_digest
from rlscaler_rl.evaluation.schema import ResultFile, json_schema


def test_the_text_report_has_losses_on_its_first_page(result):
    lines = text_report(result).splitlines()
    losses = next(index for index, line in enumerate(lines) if line.startswith("LOSSES"))
    assert losses < 15
    assert losses < next(index for index, line in enumerate(lines) if line.startswith("WINS"))
    lost = [row for row in result.rows if row.difference and row.difference.verdict == "loss"]
    assert lost
    assert all(any(row.label in line for line in lines) for row in lost if row.role != "reference")


def test_an_invalid_run_says_so_before_any_figure(result):
    broken = result.model_copy(update={"valid": False, "reasons": ["broken meter: made up"]})
    assert text_report(broken).splitlines()[2].startswith("INVALID")
    assert "broken meter: made up" in text_report(broken)


def test_the_terminal_summary_fits_80_columns(result, tmp_path):
    console = Console(file=io.StringIO(), width=80)
    (spike,) = (item for item in result.workloads if item.name == "spike")
    copies = {"random": "periodic", "spike": "ramp"}
    more = [row.model_copy(update={"workload": copies[row.workload]}) for row in result.rows if row.workload in copies]
    wide = [*result.workloads, *(spike.model_copy(update={"name": name}) for name in copies.values())]
    longer = result.model_copy(update={"rows": [*result.rows, *more], "workloads": wide})
    show(longer, tmp_path / "somewhere", console)
    shown = console.file.getvalue()
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    assert shown.index("LOSSES") < shown.index("J PER WORKLOAD")
    assert "somewhere" in shown


def test_the_folder_holds_exactly_the_files_that_are_named(result, played, tmp_path):
    layout = Layout.at("comparison", tmp_path / "x", [item.name for item in result.workloads])
    made = result.model_copy(update={"files": layout.names()})
    write_all(layout, made, played)
    assert {path.name for path in layout.folder.iterdir()} == set(layout.names())
    page = (layout.folder / layout.html).read_text()
    assert page.count("data:image/png;base64,") == 2 + len(result.workloads)
    assert "http://" not in page
    assert "https://" not in page
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
    assert expected <= set(Layout.at(kind, tmp_path / "evaluation_20260101_000000", ["ramp"]).names())


def test_the_digest_follows_the_rows(result):
    assert result.digests.rows == rows_digest(result.rows)
    assert rows_digest(result.rows[1:]) != result.digests.rows


def test_every_workload_prints_its_physical_floor(result):
    text = text_report(result)
    for workload in result.workloads:
        assert workload.cost_floor > 0
        assert f"{workload.cost_floor:.2f}" in text
