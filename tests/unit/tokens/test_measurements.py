"""Load tests of a calibration outlive its failures, and are taken up with --resume."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.tokens.calibrate import Mix, calibrated
from rlscaler_rl.evaluation.tokens.client import Sent
from rlscaler_rl.simulation.scenario import ScenarioError
from rlscaler_rl.simulation.tokens.servers import Server
from tests.unit.tokens.test_constants import TRUTH


class Steady:
    """A target whose requests take as long as their tokens say, until its calls are used up."""

    url = "http://a"

    def __init__(self, calls: int = 100) -> None:
        self.calls = calls

    def send(self, at: Any, prompt: Any, answer: Any) -> Sent:
        self.calls -= 1
        if self.calls < 0:
            raise EvaluationError("http://a: no answer; see the log of the server")
        return Sent(at, prompt, answer, prompt / 100, np.where(answer > 2, 0.01 * answer, np.nan))


@pytest.fixture
def calibrate(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The calibration of `TRUTH` with constants that are known already."""
    monkeypatch.setattr("rlscaler_rl.evaluation.tokens.calibrate.fitted", lambda limits, tests: limits)
    mixes = [Mix(60, 12), Mix(10, 30), Mix(20, 4)]

    def call(target: Any, *options: Any, requests: int = 20, limits: Server = TRUTH) -> Any:
        return calibrated(target, limits, mixes, requests, lambda text: None, *options)

    return call


def test_load_tests_outlive_a_server_that_dies_and_are_not_repeated(calibrate: Any, tmp_path: Path) -> None:
    file = tmp_path / "out" / "measurements.json"
    whole = calibrate(Steady())
    with pytest.raises(EvaluationError, match=r"http://a: no answer; see the log of the server$"):
        calibrate(Steady(0), file)
    with pytest.raises(EvaluationError, match=rf"server; 5 of 12 load tests are in {file}: repeat .* with --resume"):
        calibrate(Steady(5), file)
    rest = Steady(7)
    assert calibrate(rest, file, True) == whole, "the rest is drawn as in a run without a failure"
    assert rest.calls == 0
    assert calibrate(Steady(0), file, True) == whole


def test_load_tests_outlive_a_search_that_fails(
    calibrate: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fitted(limits: Server, tests: Any) -> Server:
        raise ScenarioError("service 0: batched_tokens = 8")

    with monkeypatch.context() as patched:
        patched.setattr("rlscaler_rl.evaluation.tokens.calibrate.fitted", fitted)
        with pytest.raises(EvaluationError, match=r"batched_tokens = 8; 12 of 12 load tests are in "):
            calibrate(Steady(), tmp_path / "measurements.json")
    other = replace(TRUTH, batched_tokens=1024)
    resumed = calibrate(Steady(0), tmp_path / "measurements.json", True, limits=other)
    assert resumed.server["batched_tokens"] == 1024, "no load test depends on it"


def test_load_tests_of_other_options_are_not_taken_up(calibrate: Any, tmp_path: Path) -> None:
    file = tmp_path / "measurements.json"
    calibrate(Steady(), file)
    with pytest.raises(
        EvaluationError, match=r"measurements.json: requests is 20, not 30; name the same, or leave out"
    ):
        calibrate(Steady(), file, True, requests=30)
    with pytest.raises(EvaluationError, match=r"measurements.json: model is truth, not another; "):
        calibrate(Steady(), file, True, limits=replace(TRUTH, label="another"))
    file.write_text(file.read_text().replace('"share":', '"part":', 1))
    with pytest.raises(
        EvaluationError, match=r"measurements.json: tests: 0: share: Field required; leave out --resume"
    ):
        calibrate(Steady(), file, True)
