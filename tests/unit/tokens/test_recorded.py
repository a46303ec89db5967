"""Recorded requests of a model server: read from a log, and played by their own moments and lengths."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.tokens.load import of_requests
from rlscaler_rl.evaluation.tokens.recorded import read_requests, worlds
from rlscaler_rl.simulation.tokens.demand import Probe, Weights
from rlscaler_rl.simulation.tokens.servers import SERVERS, Kind

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
ROWS = "2023-11-16 18:17:04.0000000,300,8\n2023-11-16 18:17:03.5000000,100,2\n2023-11-16 18:17:05.5000000,900,32\n"


def log_of(path: Path, minutes: int, *lengths: int) -> Path:
    """Three requests a second, of these tokens in turn, prompts and answers alike."""
    moments = np.datetime64("2023-11-16T18:00:00") + np.arange(180 * minutes) * np.timedelta64(333, "ms")
    rows = (f"{moment},{lengths[i % len(lengths)]},{lengths[i % len(lengths)]}\n" for i, moment in enumerate(moments))
    path.write_text(HEADER + "".join(rows))
    return path


@pytest.mark.parametrize(
    ("minutes", "lengths", "told"),
    [
        (15, (100,), "TIMESTAMP covers 15.0 minutes; settings are tuned on the earlier half and judged on the later"),
        (21, (100, 60_000), "ContextTokens and GeneratedTokens of a request are 120,000 together, and the server with"),
    ],
)
def test_a_log_that_cannot_be_compared_on_is_refused(
    tmp_path: Path, minutes: int, lengths: tuple[int, ...], told: str
) -> None:
    path = log_of(tmp_path / "requests.csv", minutes, *lengths)
    with pytest.raises(EvaluationError) as error:
        worlds(path, 4, 3600, 1, 1)
    assert f"{path}: {told}" in str(error.value)


def test_settings_are_tuned_on_the_earlier_half_and_judged_on_the_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = log_of(tmp_path / "requests.csv", 25, 10, 20, 90)
    asked = []

    def load_tests(server: str, share: object, first: float, token: float, kinds: list[Kind]) -> tuple[Probe, ...]:
        asked.append(np.mean([kind.prompt for kind in kinds]))
        return Probe(2.0, 40.0, 40.0), Probe(1.0, 100.0, 10.0)

    monkeypatch.setattr("rlscaler_rl.evaluation.tokens.recorded.load_tests", load_tests)
    past, judged = worlds(path, 4, 600, 2, 1)
    assert (len(past.services), len(judged.services), judged.seconds) == (2, 4, 600)
    assert len(asked) == 2 * len(SERVERS)
    for world in (past, judged):
        counts = np.diff(world.requests.first)
        assert (counts == counts[0]).all()
        assert 0 <= world.requests.arrived.min() < world.requests.arrived.max() < 600
        assert counts[0] == pytest.approx(6 * 600, rel=0.01)
        # Half of a replica carries a request/s by the load tests, whose mean length is that of the log.
        need = world.requests.need[: counts[0]].sum() / 600
        assert world.services.max_replicas[0] == pytest.approx(1.25 * need + 2, abs=1)
    off = judged.declared.capacity / judged.truth.capacity
    assert ((off >= 0.75) & (off <= 1.25)).all()
    assert len(set(off)) == 4


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "requests.csv"
    path.write_text(HEADER + ROWS)
    return path


def test_requests_are_in_order_of_arrival_with_their_own_lengths(trace: Path) -> None:
    recorded = read_requests(trace)
    np.testing.assert_allclose(recorded.arrived, [0.0, 0.5, 2.0])
    assert recorded.prompt.tolist() == [100, 300, 900]
    assert recorded.answer.tolist() == [2, 8, 32]
    last = recorded.last(1)
    assert (last.arrived.tolist(), last.prompt.tolist()) == ([1.0], [900])
    assert [(round(kind.prompt), round(kind.answer), kind.cached) for kind in recorded.kinds()] == [
        (100, 2, 0.0), (300, 8, 0.0), (900, 32, 0.0)
    ]  # fmt: skip
    twice = recorded.times(2)
    assert twice.arrived.tolist() == [0.0, 0.25, 0.5, 0.75, 2.0, 2.25]
    assert twice.prompt.tolist() == [100, 300, 300, 900, 900, 100]


def test_the_need_of_a_request_is_that_of_its_weighted_tokens(trace: Path) -> None:
    requests = read_requests(trace).requests(Weights(1.0, 50.0, 1000.0))
    np.testing.assert_allclose(requests.need, [0.2, 0.7, 2.5])
    assert requests.first.tolist() == [0, 3]


def test_a_zone_counts_and_no_zone_is_utc(tmp_path: Path) -> None:
    path = tmp_path / "zones.csv"
    path.write_text(HEADER + "2023-11-16T18:00:01Z,1,1\n2023-11-16 18:00:00,1,1\n2023-11-16T19:00:03+01:00,1,1\n")
    assert read_requests(path).arrived.tolist() == [0.0, 1.0, 3.0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("time,ContextTokens,GeneratedTokens\n", "no column TIMESTAMP; the first line has to name TIMESTAMP, "),
        ("", "no column TIMESTAMP, ContextTokens, GeneratedTokens"),
        (HEADER + "2023-11-16 18:17:03,5,5\n", "1 requests; a load needs at least two"),
        (HEADER + ROWS + "2023-11-16 18:17:09,10,0\n", "line 5: GeneratedTokens '0' is no whole number"),
        (HEADER + "2023-11-16 18:17:09,-4,1\n" + ROWS, "line 2: ContextTokens '-4' is no whole number"),
        (HEADER + ROWS + "2023-11-16 18:17:09,1.5,1\n", "ContextTokens '1.5' is no whole number"),
        (HEADER + ROWS + "2023-11-16 18:17:09,10\n", "GeneratedTokens '' is no whole number"),
        (HEADER + ROWS + "soon,10,1\n", "line 5: TIMESTAMP 'soon' is no time such as"),
    ],
)
def test_a_wrong_log_is_refused_with_its_line_and_column(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "wrong.csv"
    path.write_text(text)
    with pytest.raises(EvaluationError) as error:
        read_requests(path)
    assert f"{path}" in str(error.value)
    assert told in str(error.value)


def test_a_load_of_recorded_requests_lasts_until_the_last_one_has_come(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlscaler_rl.evaluation.tokens.load.load_tests", lambda *given: (Probe(2.0, 300.0, 8.0),))
    monkeypatch.setattr("rlscaler_rl.evaluation.tokens.load.weights_of", lambda tests: Weights(1.0, 2.0, tests[0][0]))
    load = of_requests(trace, SERVERS["8b-a100"], 2.5, 0.15)
    assert (load.seconds, load.usual.per_second, load.label) == (5, 2.0, "requests.csv")
    np.testing.assert_allclose(load.requests.need, [52.0, 158.0, 482.0])
