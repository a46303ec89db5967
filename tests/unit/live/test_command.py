"""Which fields of a live environment an evaluation takes, and what it keeps of every episode."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from rlscaler_live import command
from rlscaler_rl.evaluation.errors import EvaluationError


def config(tmp_path, **environment):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"environment": environment}))
    return path


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"patterns": ["ramp"]}, "patterns: leave it out, choose the loads with --workloads"),
        ({"trace": "day.csv"}, "trace: leave it out"),
        ({"gpu": {"deployment": "chat-gpu", "start_replicas": 3}}, "start_replicas: leave it out"),
    ],
)
def test_what_would_be_passed_over_is_refused(tmp_path, environment, said):
    with pytest.raises(EvaluationError, match=said):
        command.execute("evaluation", ("rule",), config(tmp_path, **environment), tmp_path / "out", Console())


def test_levels_of_the_file_are_played_and_every_episode_is_kept_at_once(tmp_path, monkeypatch):
    heard = {}

    def play(settings, kind, loaded, place, watch):
        heard.update(settings=settings, place=place)
        watch.ended("spike", "rule", {"j": 5.0, "p95_ms": float("nan"), "observation": [1.0], "folder": "x"})
        raise EvaluationError("Prometheus went away")

    monkeypatch.setattr(command, "play", play)
    path = config(tmp_path, namespace="small", low_rps=1, high_rps=8, episode_duration=120)
    with pytest.raises(EvaluationError, match="went away"):
        command.execute("evaluation", ("rule",), path, tmp_path / "out", Console())
    assert (heard["settings"].low_rps, heard["settings"].high_rps) == (1, 8)
    assert heard["settings"].duration_seconds == 120
    kept = [json.loads(line) for line in (tmp_path / "out" / command.EPISODES).read_text().splitlines()]
    assert kept == [{"workload": "spike", "contender": "rule", "j": 5.0, "p95_ms": None}]
