"""`rlscaler demo`: help, and arguments that are refused before anything starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from rlscaler_dev.demo.cli import demo
from rlscaler_dev.demo.load import Load, demo_options
from rlscaler_dev.demo.run import has_display, page_options
from rlscaler_dev.demo.settings import CPU_POOL, GPU_POOL, Settings
from rlscaler_dev.exceptions import DemoError


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu-cold-start", "9-3"], "from low to high"),
        (["--gpu-cold-start", "soon"], "not a range of seconds such as 35-55"),
        (["--trace", __file__], "--trace is for --pattern trace"),
    ],
)
def test_bad_arguments_are_refused_with_the_option_and_the_reason(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(demo, arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.replace("│", " ").split())


def test_a_file_that_is_no_trace_is_refused(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("time,rate\nnow,many\n")
    with pytest.raises(DemoError, match=r"trace\.csv"):
        Load(demo_options(Settings(out=tmp_path, pattern="trace", trace=trace)), tmp_path)


def test_the_options_are_the_settings_and_the_result_folder_is_named_after_the_pattern(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played: list[Settings] = []
    monkeypatch.setattr("rlscaler_dev.demo.run.play", lambda settings, screen: played.append(settings) or "played")
    options = ["--pattern", "ramp", "--gpu-cold-start", "1-2", "--duration", "60", "--interval", "10"]
    assert CliRunner().invoke(demo, options).exit_code == 0
    (settings,) = played
    assert settings.out == Path.cwd() / "results" / "demo-ramp"
    assert settings.gpu == replace(GPU_POOL, cold_start_seconds=(1, 2))
    assert (settings.duration_seconds, settings.interval_seconds, settings.cpu) == (60, 10, CPU_POOL)


def test_report_of_another_folder_names_the_missing_record(tmp_path: Path) -> None:
    result = CliRunner().invoke(demo, ["report", str(tmp_path)])
    assert result.exit_code == 1
    assert "offered.csv" in result.output


def test_the_page_is_opened_where_there_is_a_display() -> None:
    assert has_display({"DISPLAY": ":0"}, "linux")
    assert has_display({}, "darwin")
    assert not has_display({"DISPLAY": ""}, "linux")
    options = page_options(Path("/k"), "http://127.0.0.1:9", Path("/out/audit.jsonl"))
    assert options[-2:] == ["--decision-log", "/out/audit.jsonl"]
