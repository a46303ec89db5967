"""`rlscaler trace days`, `make` and `count` as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from rlscaler_loadgen.traces import Trace, read_trace
from rlscaler_rl.workloads import days as library
from rlscaler_rl.workloads.cli import trace
from rlscaler_rl.workloads.days import day_load, day_loads
from rlscaler_rl.workloads.originals import Recipe


def call(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(trace, list(map(str, arguments)))
    assert result.exit_code == code, result.output
    return result.output


def test_days_lists_every_load_with_its_licence_and_what_is_there(tmp_path):
    text = call("days", "--days", tmp_path, "--markdown")
    for name, load in day_loads().items():
        assert f"| {name} | {load.what} | {load.days} |" in text
    assert text.count("| ships |") == 3
    assert text.count("| to be made |") == len(day_loads()) - 3
    rows = {row["name"]: row for row in json.loads(call("days", "-o", "json", "--days", tmp_path))}
    for name, load in day_loads().items():
        for field in ("group", "fold", "days", "width_s", "seconds", "licence", "source"):
            assert rows[name][field] == getattr(load, field), (name, field)
    (found,) = json.loads(call("days", "balancer", "-o", "json", "--days", tmp_path))
    assert found["licence"] == "MIT"
    assert not found["there"]
    assert found["originals"][0].startswith("https://raw.githubusercontent.com/numenta/NAB/")
    assert "no load of the library" in call("days", "nothing", code=2)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A library with one load, made of a table of four counts."""
    rate = Trace(np.array([1.0, 2.0, 3.0, 4.0]), 60.0)
    load = day_load("balancer").model_copy(
        update={"recipe": Recipe(reader="bins", width_s=60), "bins": 4, "width_s": 60.0, "digest": rate.digest()}
    )
    monkeypatch.setattr(library, "day_loads", lambda: {"balancer": load})
    (tmp_path / "original.csv").write_text("timestamp,value\n0,60\n60,120\n120,180\n180,240\n")
    (tmp_path / "other.csv").write_text("timestamp,value\n0,60\n60,120\n120,180\n180,241\n")
    library.day_trace.cache_clear()
    return tmp_path


def test_make_writes_the_file_of_the_index_with_source_and_licence(tiny):
    text = call("make", "balancer", tiny / "original.csv", "--days", tiny / "days")
    assert "4 bins of 60 s, 0 filled, the series of the index" in text
    made = read_trace(tiny / "days" / "balancer.csv.gz")
    assert made.rate.tolist() == [1, 2, 3, 4]
    assert any("Licence: MIT" in line for line in made.comments)
    assert library.day_trace("balancer", tiny / "days").rate.tolist() == [1, 2, 3, 4]
    assert "exists; name another place or add --force" in call(
        "make", "balancer", tiny / "original.csv", "--days", tiny / "days", code=2
    )


def test_make_refuses_another_original_and_leaves_no_file_under_the_name(tiny):
    text = call("make", "balancer", tiny / "other.csv", "--days", tiny / "days", code=2)
    assert "not the 4 bins with" in text
    assert "are these the files of" in text
    assert not (tiny / "days" / "balancer.csv.gz").exists()


def test_a_wrong_original_does_not_replace_a_good_file(tiny):
    call("make", "balancer", tiny / "original.csv", "--days", tiny / "days")
    call("make", "balancer", tiny / "other.csv", "--days", tiny / "days", "--force", code=2)
    assert read_trace(tiny / "days" / "balancer.csv.gz").rate.tolist() == [1, 2, 3, 4]


def test_make_says_that_a_file_ships():
    assert "its file ships; nothing to make" in call("make", "worldcup", __file__, code=2)


def test_count_makes_a_trace_of_an_access_log(tmp_path):
    log = tmp_path / "access.log"
    log.write_text(
        "".join(f'h - - [01/Aug/1995:00:00:{s:02} -0400] "GET /" 200 1\n' for s in range(60) for _ in range(s % 3))
    )
    text = call("count", log, tmp_path / "mine.csv.gz", "--reader", "access-log", "--width", 10, "--source", "my shop")
    assert "bins of 10 s" in text
    made = read_trace(tmp_path / "mine.csv.gz")
    assert made.width_s == 10
    assert made.comments == ("Source: my shop",)
    assert made.rate.tolist() == [1.0, 1.1, 0.9, 1.0]
    assert "mine" in call("list", tmp_path / "mine.csv.gz")


def test_count_names_wrong_options(tmp_path):
    (tmp_path / "a").write_text("1 2 3")
    assert "--width: Input should be greater than 0" in call(
        "count", tmp_path / "a", tmp_path / "b", "--reader", "counts", "--width", 0, code=2
    )
    assert "Missing option '--reader'" in call("count", tmp_path / "a", tmp_path / "b", code=2)
