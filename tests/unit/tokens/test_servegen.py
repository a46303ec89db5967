"""Logs of requests from the windows that ServeGen publishes."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks.servegen import arrivals, main
from click.testing import CliRunner

from rlscaler_rl.evaluation.tokens.recorded import read_requests


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two clients: one asks at all times, the other in two windows, with lengths for the later one."""
    lengths = {"input_tokens": "{10: 0.5, 30: 0.5}", "output_tokens": "{200: 1.0}"}
    for number, (windows, since) in enumerate(((range(0, 86_400, 600), 0), ((600, 30_000), 21_600))):
        rows = [(begin, 0.1, 1.0, "Gamma" if number else "Weibull", 0.7, 3.0) for begin in windows]
        with (tmp_path / f"chunk-{number}-trace.csv").open("w", newline="") as file:
            csv.writer(file).writerows([*rows, (86_400, 0, 0, "", 0, 0)])
        known = {str(begin): lengths if begin >= since else {"input_tokens": "{}"} for begin in (0, 21_600)}
        (tmp_path / f"chunk-{number}-dataset.json").write_text(json.dumps(known))
    return tmp_path


def test_the_log_has_the_rates_and_lengths_of_the_clients(folder: Path) -> None:
    out = folder / "requests.csv"
    found = CliRunner().invoke(main, [str(folder), "--mean", "5", "--out", str(out)])
    assert found.exit_code == 0, found.output
    assert "100 % of those published" in found.output
    read = read_requests(out)
    assert len(read.arrived) == pytest.approx(0.1 * 86_400 + 60, rel=0.05), "the window without lengths is left out"
    assert set(read.prompt.tolist()) == {10, 30}
    assert set(read.answer.tolist()) == {200}


def test_a_mean_thins_the_log_and_long_requests_are_left_out(folder: Path) -> None:
    out = folder / "requests.csv"
    given = [str(folder), "--mean", "0.02", "--longest", "215", "--out", str(out)]
    assert CliRunner().invoke(main, given).exit_code == 0
    read = read_requests(out)
    assert len(read.arrived) == pytest.approx(0.01 * 86_400, rel=0.15)
    assert set(read.prompt.tolist()) == {10}


def test_a_window_whose_shares_are_all_zero_has_no_requests_to_learn_from(folder: Path) -> None:
    (folder / "chunk-0-dataset.json").write_text('{"0": {"input_tokens": "{5: 0}", "output_tokens": "{5: 0}"}}')
    out = folder / "requests.csv"
    assert CliRunner().invoke(main, [str(folder), "--out", str(out)]).exit_code == 0
    assert len(read_requests(out).arrived) == pytest.approx(60, rel=0.4), "those of the other client alone"


def test_days_without_requests_are_refused_by_name(folder: Path) -> None:
    found = CliRunner().invoke(main, [str(folder), "--first-day", "3", "--out", str(folder / "requests.csv")])
    assert found.exit_code == 1
    assert "--first-day" in found.output


def test_a_folder_or_an_option_that_leaves_nothing_is_named(folder: Path) -> None:
    def message(*given: str) -> str:
        found = CliRunner().invoke(main, [*given, "--out", str(folder / "requests.csv")])
        assert found.exit_code in (1, 2)
        return found.output

    assert "name the folder of one model" in message(str(folder.parent))
    assert "--longest" in message(str(folder), "--longest", "5")
    assert "--mean" in message(str(folder), "--mean", "0")
    trace = folder / "chunk-1-trace.csv"
    trace.write_text(trace.read_text().replace("Gamma", "Poisson"))
    assert "chunk-1-trace.csv" in message(str(folder))
    (folder / "chunk-1-dataset.json").unlink()
    assert "chunk-1-dataset.json" in message(str(folder))
    days = message(str(folder), "--first-day", "12", "--days", "3")
    assert "--first-day 12 and --days 3: ServeGen has 14 days; name at most --days 2" in days


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("[]", "dataset.json: Input should be an object"),
        ('{"0": []}', "dataset.json: 0: "),
        ('{"0": {"input_tokens": "[1, 2]"}}', "dataset.json: 0: input_tokens: Input should be an object"),
        ('{"0": {"input_tokens": 5}}', "dataset.json: 0: input_tokens: Value error, malformed node"),
        ('{"0": {"input_tokens": "{5: nan}"}}', "dataset.json: 0: input_tokens: Value error, malformed node"),
        ('{"0": {"input_tokens": "{5: -1}"}}', "dataset.json: 0: input_tokens: 5: "),
        ('{"0": {"input_tokens": "{5: 0.5"}}', "chunk-1-dataset.json: '{' was never closed"),
    ],
)
def test_lengths_that_are_no_shares_of_tokens_are_refused_by_file_and_window(
    folder: Path, written: str, told: str
) -> None:
    (folder / "chunk-1-dataset.json").write_text(written)
    refused = CliRunner().invoke(main, [str(folder), "--out", str(folder / "requests.csv")])
    assert refused.exit_code == 1
    assert told in refused.output
    assert "from ServeGen again" in refused.output


def test_the_folder_of_the_log_is_created_or_refused_before_anything_is_read(folder: Path) -> None:
    out = folder / "new" / "requests.csv"
    assert CliRunner().invoke(main, [str(folder), "--out", str(out)]).exit_code == 0
    assert len(read_requests(out).arrived) > 1000
    refused = CliRunner().invoke(main, [str(folder / "new"), "--out", str(out / "requests.csv")])
    assert refused.exit_code == 2
    assert "is a file, no folder" in refused.output


@pytest.mark.parametrize("law", ["Weibull", "Gamma"])
def test_distances_follow_the_law_within_the_window(law: str) -> None:
    seconds = np.concatenate([arrivals(1.0, law, 0.3, np.random.default_rng(seed)) for seed in range(20)])
    assert ((seconds > 0) & (seconds < 600)).all()
    distances = np.diff(np.sort(seconds[:500]))
    assert distances.std() / distances.mean() > 1.3, "burstier than a Poisson process"
