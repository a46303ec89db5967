"""Token services on days of the library: what they are tuned on, what judges them, and wrong names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from rlscaler_loadgen.traces import Trace
from rlscaler_rl.evaluation.tokens import library
from rlscaler_rl.evaluation.tokens.cli import tokens
from rlscaler_rl.evaluation.tokens.library import stretches, with_days, worlds
from rlscaler_rl.simulation.tokens.demand import Probe
from rlscaler_rl.simulation.tokens.servers import KINDS
from rlscaler_rl.workloads.days import DAY, SecondsOf, own_service
from rlscaler_rl.workloads.names import Part


def test_the_day_after_is_judged_in_the_busiest_hours_of_the_day_before(monkeypatch: pytest.MonkeyPatch) -> None:
    load = library.day_load("worldcup")
    day, begin = own_service(load)[Part.TEST].first, load.first_midnight_s
    # A day of the load has its own number in the rate of every second, and four times as much from six to ten.
    moments = np.arange(load.bins) * load.width_s - begin
    rate = (1 + moments // DAY) * np.where((moments % DAY // 3600 >= 6) & (moments % DAY // 3600 < 10), 4.0, 1.0)
    trace = Trace(np.repeat(np.maximum(rate, 1.0), 60), 1.0)
    monkeypatch.setattr(library, "seconds_of_day_load", lambda name: SecondsOf(trace, name, (0.0, 60.0)))
    tuned, judged = stretches("worldcup", 4 * 3600)
    assert tuned == pytest.approx(np.ones(4 * 3600))
    assert judged == pytest.approx(np.full(4 * 3600, (day + 1) / day))
    tuned, judged = stretches("worldcup", DAY)
    assert (len(tuned), len(judged)) == (library.TUNED_SECONDS, DAY)
    assert judged[[0, 7 * 3600]] == pytest.approx(np.array([0.25, 1.0]) * (day + 1) / day)


@pytest.mark.slow
def test_both_days_have_the_same_services_and_the_requests_follow_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    tests = Probe(2.0, 300.0, 100.0), *(Probe(2.0, 300.0 + 200 * i, 100.0 + 300 * (i % 2)) for i in range(len(KINDS)))
    monkeypatch.setattr("rlscaler_rl.simulation.tokens.drawn.load_tests", lambda *given: tests)
    names = ["worldcup", "servegen_small"]
    past, judged = worlds(names, 1200, 3)
    assert (len(past.services), len(judged.services), past.seconds, judged.seconds) == (2, 2, 1200, 1200)
    for column in ("cold_start_low", "max_replicas"):
        np.testing.assert_array_equal(getattr(past.services, column), getattr(judged.services, column))
    np.testing.assert_array_equal(past.declared.capacity, judged.declared.capacity)
    off = judged.declared.capacity / judged.truth.capacity
    assert ((off >= 0.75) & (off <= 1.25) & (off != 1)).all()
    size = (judged.services.max_replicas - 2) / 2.5
    # Two requests/s for each replica by the load tests; the rounding of maxReplicas is half a replica at most.
    for world, relative in zip(
        (past, judged), np.sum([stretches(name, 1200) for name in names], axis=2).T, strict=True
    ):
        np.testing.assert_allclose(np.diff(world.requests.first), 2 * size * relative, rtol=0.2)
    assert past.requests.first[1] != judged.requests.first[1]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("--loads worldcup,nope", "nope: no load of the library of days; there are servegen_large"),
        ("--loads worldcup,balancer", "balancer.csv.gz: no such file; fetch "),
        ("--loads ,", "--loads ',': names nothing"),
        ("--loads worldcup --services 4", "remove --trace and --services"),
    ],
)
def test_wrong_loads_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, told: str) -> None:
    monkeypatch.setenv("RLSCALER_DAYS", str(tmp_path))
    result = CliRunner().invoke(tokens, ["compare", "--out", str(tmp_path / "out"), *arguments.split()])
    assert result.exit_code == 2
    assert told in " ".join(result.output.split())
    assert not (tmp_path / "out").exists()


def test_a_load_of_too_few_days_is_refused_and_no_part_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLSCALER_DAYS", str(tmp_path))
    assert with_days(["all"]) == ["servegen_large", "servegen_small", "worldcup"]
    assert with_days(["worldcup", "taxi", "worldcup"]) == ["worldcup", "taxi"]
    short = library.day_load("servegen_small").model_copy(update={"bins": 2 * DAY})
    with monkeypatch.context() as patched:
        patched.setattr(library, "day_load", lambda name: short)
        assert with_days(["all"]) == []
        result = CliRunner().invoke(tokens, ["compare", "--loads", "servegen_small", "--out", str(tmp_path / "out")])
    assert "2 whole days; at least 3 are needed, use a longer load" in result.output
