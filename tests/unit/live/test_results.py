"""Live episodes end in the same result files as simulated ones."""

import json

import numpy as np
import pytest

from rlscaler_live import play as live
from rlscaler_rl.evaluation.board import METRICS
from rlscaler_rl.evaluation.models import load_all
from rlscaler_rl.evaluation.result import Layout, result_file, write_all
from rlscaler_rl.evaluation.settings import EvaluationSettings
from rlscaler_rl.simulation.episode import run


@pytest.fixture
def played(monkeypatch, tmp_path):
    """The simulator in place of the cluster: it answers with the figures that an environment has."""

    def episodes(entry, workload, scenarios, settings, place, watch):
        watch.begins(workload, entry.label)
        controller = entry.make(scenarios.rate.astype(np.float64), settings.seed)
        finished = run(scenarios, controller, settings.seed, timeline=1)
        rows = []
        for row in range(len(scenarios)):
            figures = {
                name: float(getattr(finished.result, name)[row]) for name in METRICS if name != "goodput_per_cost"
            }
            counted = {name: float(getattr(finished.result, name)[row]) for name in ("requests", "in_time", "late")}
            queued = float(finished.result.queued[row])
            goodput = figures["goodput_rps"] / figures["cost"]
            rows.append(
                figures
                | counted
                | {"queued": queued, "lost_ticks": 0.0, "dispatch_lag_p99_ms": 0.0, "goodput_per_cost": goodput}
            )
        for figures in rows:
            watch.ended(workload, entry.name, figures)
        record = {name: np.asarray(values)[0] for name, values in finished.timeline.items()}
        shown = {name: rows[0][name] for name in ("j", "cost", "late_percent")}
        return rows, record | shown | {"rps": scenarios.rps[0]}

    monkeypatch.setattr(live, "_episodes", episodes)
    settings = EvaluationSettings(
        workloads=("spike",), runs=1, episodes=1, extras=False, duration_seconds=300, level="live"
    )
    heard = live.Watch(lambda *_: None, lambda *_: None)
    return live.play(settings, "evaluation", load_all((), tmp_path), {}, heard)


@pytest.mark.slow
def test_one_live_episode_each_decides_nothing_and_is_reported_all_the_same(played, tmp_path):
    layout = Layout(tmp_path / "out", "evaluation", ["spike"])
    result = result_file("evaluation", played, load_all((), tmp_path), 1.0, layout.names())
    write_all(layout, result, played)
    content = json.loads((layout.folder / layout.json).read_text())
    assert content["level"] == "live"
    assert {row["contender"] for row in content["rows"]} == set(live.EVALUATED)
    verdicts = {row["difference"]["verdict"] for row in content["rows"] if row["difference"]}
    assert verdicts == {"undecided"}
    assert [item["name"] for item in content["invariants"]] == ["requests", "signs", "ticks", "load"]
    assert all(item["holds"] for item in content["invariants"])
    assert (layout.folder / layout.html).stat().st_size > 10_000
