"""`rlscaler trace` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from rlscaler_loadgen.traces import Trace, read_trace, write_trace
from rlscaler_rl.workloads import TRACES
from rlscaler_rl.workloads.cli import trace


def call(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(trace, list(map(str, arguments)))
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "mine.csv"
    write_trace(path, Trace(np.arange(1.0, 1001.0), 1.0, ("Source: my service", "Licence: none of yours")))
    return path


def test_list_names_what_ships():
    text = call("list")
    for name in (*TRACES, "CC-BY-4.0", "Apache-2.0", "MIT", "3502 x 1 s", "36/18/48", "a9cabd7b1449"):
        assert name in text
    found = json.loads(call("list", "-o", "json"))
    assert [one["name"] for one in found] == list(TRACES)
    assert found[0]["blocks"] == {"train": 0, "tune": 0, "test": 5}


def test_list_and_import_show_a_file_of_ones_own(csv, tmp_path):
    for text in (call("list", csv), call("import", csv)):
        assert "mine" in text
        assert "1000 x 1 s" in text
        assert "my service; none of yours" in text
    out = tmp_path / "copy.csv.gz"
    call("import", csv, out)
    assert read_trace(out).digest() == read_trace(csv).digest()
    assert "exists; name another place or add --force" in call("import", csv, out, code=2)
    call("import", csv, out, "--force")


def test_a_bad_file_is_refused_in_one_line(tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("time_s,requests_per_s\n0,1\n1,1\n4,1\n5,1\n")
    for command in ("list", "import", "split"):
        assert call(command, path, code=2) == (
            f"Error: trace {path}:4: gap: 3 s after the line above, bins are 1 s wide; fill it or cut there "
            "(`rlscaler trace import FILE OUT.csv --fill hold` fills)\n"
        )
    assert "name FILE and" in call("import", path, path, path, code=2)
    assert "--query: only with --prometheus" in call("import", path, "--query", "up", code=2)
    assert "--from, --step: only with --prometheus" in call(
        "import", path, "--from", "2026-01-01", "--step", "15s", code=2
    )


def test_import_fills_a_gap_and_chooses_a_series_where_it_is_told_to(tmp_path):
    path, out = tmp_path / "bad.csv", tmp_path / "good.csv"
    path.write_text("time,a,b\n1772409600000,9,1\n1772409601000,9,1\n1772409604000,9,4\n1772409605000,9,1\n")
    call("import", path, out, "--fill", "hold", "--series", "b")
    assert read_trace(out).rate.tolist() == [1, 1, 1, 1, 4, 1]
    assert read_trace(out).begin == 1_772_409_600


def test_import_from_prometheus(api, tmp_path):
    api.token, api.series = "secret", lambda moment: {"": moment % 300}
    token, out = tmp_path / "token", tmp_path / "history.csv"
    token.write_text("secret\n")
    asked = ("--prometheus", api.url, "--query", "sum(rate(a[1m]))", "--from", "2026-01-01", "--to", "2026-01-02")
    text = call("import", *asked, "--step", "30s", "--bearer-token-file", token, out)
    assert "2881 x 30 s" in text
    made = read_trace(out)
    assert made.rate[:11].tolist() == [0, 30, 60, 90, 120, 150, 180, 210, 240, 270, 0]
    assert made.comments[1] == "From 2026-01-01T00:00:00Z to 2026-01-02T00:00:00Z every 30 s"
    token.write_text("")
    assert "is empty" in call("import", *asked, "--bearer-token-file", token, tmp_path / "b.csv", code=2)
    assert "--query: is needed" in call("import", "--prometheus", api.url, tmp_path / "b.csv", code=2)
    assert "only OUT.csv" in call("import", *asked, out, tmp_path / "b.csv", code=2)
    assert "cannot be written" not in text


def test_split_writes_three_traces_and_their_digests(csv, tmp_path):
    out = tmp_path / "parts"
    paths = call("split", csv, "--out", out).split()
    record = json.loads((out / "mine.split.json").read_text())
    assert paths == [
        str(out / name) for name in ("mine-train.csv", "mine-tune.csv", "mine-test.csv", "mine.split.json")
    ]
    pieces = [read_trace(out / part["file"]) for part in record["parts"].values()]
    np.testing.assert_array_equal(np.concatenate([piece.rate for piece in pieces]), np.arange(1.0, 1001.0))
    assert [len(piece.rate) for piece in pieces] == [600, 150, 250]
    assert [piece.digest() for piece in pieces] == [part["digest"] for part in record["parts"].values()]
    assert record["digest"] == read_trace(csv).digest()
    short = tmp_path / "short.csv"
    write_trace(short, Trace(np.ones(5), 60.0))
    assert "its tune part has 1 bins or no traffic; give a longer trace" in call("split", short, code=2)


def test_plot_draws_every_workload(tmp_path):
    call("plot", "--out", tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 20_000
