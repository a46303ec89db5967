"""`benchmarks.blis`: traces for BLIS, times from its results, and errors in one line."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.blis import BLOCK, Blis, main, same_formula, sent, write_trace
from click import ClickException
from click.testing import CliRunner

from rlscaler_rl.simulation.tokens.servers import SERVERS

# It answers a request after 20 ms, and each further token after 2.5 ms.
PROGRAM = """#!/usr/bin/env python3
import csv, json, sys
given = dict(argument.split("=", 1) for argument in sys.argv[2:])
if given.get("--model") == "a/none":
    sys.exit(print('level=fatal msg="no config of \\\\"a/none\\\\"\\\\n  tried"', file=sys.stderr) or 1)
rows = csv.DictReader(open(given["--trace-data"]))
results = [
    {"request_id": int(row["request_id"]), "ttft_us": 20000, "e2e_us": 10**9}
    | ({"itl_mean_us": 2500} if int(row["output_tokens"]) > 1 else {})
    for row in rows
]
json.dump(results[:-1] if given.get("--model") == "a/short" else results, open(given["--results-path"], "w"))
print("Starting replay with 100 KV blocks", file=sys.stderr)
"""

AT, PROMPT, ANSWER = np.array([0.0, 0.0000014, 1.5]), np.array([5, 3, 8], np.int32), np.array([4, 1, 20], np.int32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository of BLIS whose binary stands for the real one."""
    (tmp_path / "blis").write_text(PROGRAM)
    (tmp_path / "blis").chmod(0o755)
    return tmp_path


def test_a_trace_has_whole_microseconds_and_lengths(tmp_path: Path) -> None:
    write_trace(tmp_path / "trace.csv", AT, PROMPT, ANSWER)
    with (tmp_path / "trace.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert len(rows[0]) == 27, "BLIS reads the columns by their places"
    assert [[row[place] for place in (0, 9, 10, 19)] for row in rows[1:]] == [
        ["0", "5", "4", "0"],
        ["1", "3", "1", "1"],
        ["2", "8", "20", "1500000"],
    ]
    assert {row[4] for row in rows[1:]} == {""}, "no request is part of a session"


def test_times_are_those_that_a_client_sees(folder: Path) -> None:
    target = Blis(folder, ["--model=a/llama"])
    times = target.send(AT, PROMPT, ANSWER)
    assert times.first == pytest.approx(0.02)
    assert times.token[[0, 2]] == pytest.approx(0.0025)
    assert np.isnan(times.token).tolist() == [False, True, False]
    assert times.seconds == pytest.approx(1.5 + 0.02 + 19 * 0.0025), "work after the last token is not seen"
    assert target.kv_tokens() == 100 * BLOCK


def test_requests_without_an_answer_are_counted() -> None:
    with pytest.raises(ClickException, match="answered 1 of 3 requests; shorten the mixes"):
        sent(AT, PROMPT, ANSWER, [{"request_id": 0, "ttft_us": 1, "itl_mean_us": 1}])


def test_wrong_input_is_told_in_one_line(folder: Path) -> None:
    def message(*given: str) -> str:
        result = CliRunner().invoke(main, [str(folder), "--out", str(folder / "out"), *given])
        assert result.exit_code in (1, 2)
        return result.output

    assert 'no config of "a/none"; take --hardware of hardware_config.json there' in message("--model", "a/none")
    assert "BLIS answered 1,023 of 1,024 requests" in message("--model", "a/short", "--kv-tokens", "100000")
    assert "must be above --sequences 256" in message("--batched-tokens", "200")
    (folder / "blis").unlink()
    assert "No such file or directory; `go build -o blis main.go` there" in message()


def test_blis_is_given_the_formula_of_a_server(tmp_path: Path) -> None:
    server = replace(SERVERS["8b-l40s"], request_ms=5.0)
    given = dict(option.split("=") for option in same_formula(server, tmp_path))
    betas = [float(number) for number in given["--beta-coeffs"].split(",")]
    assert betas[5:7] == [90.0, 22_000.0], "microseconds of a sequence and of an iteration"
    assert [number for place, number in enumerate(betas) if place not in (0, 5, 6)] == [0.0] * 8
    assert given["--alpha-coeffs"] == "5000.0,0,0"
    model = json.loads((tmp_path / "config.json").read_text())
    width, layer = model["hidden_size"], model["intermediate_size"]
    peak = json.loads((tmp_path / "gpus.json").read_text())["any"]["TFlopsPeak"]

    def prompt_us(tokens: int) -> float:
        attention = 4 * width * tokens * 1.5 * tokens
        return betas[0] * (2 * tokens * width * 4 * width + attention + 6 * tokens * width * layer) / (1e6 * peak)

    for tokens in (100, 2000):
        assert prompt_us(tokens) == pytest.approx(110 * tokens, rel=1e-4), "BLIS's own time of a prompt"


@pytest.mark.slow
def test_conversations_are_played_beside_the_mixes(folder: Path) -> None:
    given = ("--server", "8b-a100", "--requests", "20", "--sequences", "4", "--out", str(folder / "out"))
    result = CliRunner().invoke(main, [str(folder), *given])
    assert result.exit_code == 0, result.output
    loads = json.loads((folder / "out" / "blis.json").read_text())["loads"]
    assert [load["share"] for load in loads] == [None, 0.2, 0.5, 0.8] * 3 + [None, 0.8]
    assert all(load["measured"]["first_p95"] == pytest.approx(20) for load in loads)
    prompt, answer = map(int, loads[-1]["mix"].split("+"))
    assert 900 < prompt < 2000
    assert 100 < answer < 350
