"""Tasks on groups of machines: what the environment counts, and an experiment from the command to its picture."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from rlscaler_rl.placement import openb
from rlscaler_rl.tenants import cli, task_studies
from rlscaler_rl.tenants.cli import tenants as command
from rlscaler_rl.tenants.environment import AS_THE_RULE
from rlscaler_rl.tenants.tasks import MOST, MOST_STEPS, STEPS, Tasks, TasksEnv
from rlscaler_rl.workloads import Part

AS_RULE = np.full((2, 3, 3), AS_THE_RULE)


def trace(count: int = 400) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(4)
    return draw.uniform(1, 12, (count, 2)) * (1, 4), draw.exponential(900, count)


def played(actions: np.ndarray, lost: float = 0.0) -> TasksEnv:
    env, done = TasksEnv(Tasks.of(*trace()), 2, 3, 240, lost), False
    env.reset(5)
    while not done:
        _, _, done = env.step(actions)
        assert (env._used <= env._offered + 1e-6).all()
        assert (env._offered <= MOST).all()
        used = np.zeros_like(env._used)
        pool, task = np.nonzero(env._group >= 0)
        np.add.at(used, (pool, env._group[pool, task]), env._requests[pool, task])
        np.testing.assert_allclose(env._used, used, atol=1e-6)
    return env


def test_groups_hold_what_their_tasks_ask_for_and_every_task_comes() -> None:
    env = played(AS_RULE)
    assert env._come == 240
    assert (env._end > 0).mean() > 0.95, "most tasks were placed"
    figures = env.figures()
    assert ((figures.use > 0.5) & (figures.use <= 1.0)).all()
    assert (figures.waited >= 0).all()


def test_agents_that_offer_more_let_tasks_wait_less_and_use_less() -> None:
    rule, more = played(AS_RULE).figures(), played(AS_RULE + np.array([2, 2, 0])).figures()
    assert more.use.mean() < rule.use.mean()
    assert more.waited.mean() < rule.waited.mean()


def test_lost_observations_are_zero_and_marked() -> None:
    env = TasksEnv(Tasks.of(*trace()), 2, 3, 240, 1.0)
    assert not env.reset(5).any()
    some = TasksEnv(Tasks.of(*trace()), 40, 3, 240, 0.5)
    known = some.reset(5).any(-1)
    assert 0.4 < known.mean() < 0.6


def test_parts_of_the_trace_share_no_task_and_lifetimes_are_bounded() -> None:
    whole = Tasks.of(*trace())
    parts = [whole.part(part) for part in (Part.TRAIN, Part.TUNE, Part.TEST)]
    np.testing.assert_array_equal(np.concatenate([part.requests for part in parts]), whole.requests)
    assert whole.steps.min() >= 1
    assert whole.steps.max() <= MOST_STEPS < STEPS


def test_the_paper_stands_beside_each_variant_and_untrained_seeds_are_named() -> None:
    line = task_studies.TaskLine(
        variant="three roles",
        use=task_studies.mean_interval(np.array([90.0, 91.0, 99.9])).within(0.0, 100.0),
        deviation=0.01,
        waited=0.2,
        epochs=0.0,
        untrained=[0, 2],
    )
    assert line.use.high <= 100
    study = task_studies.TaskStudy(name="use", tasks=1000, seeds=[0, 1, 2], epochs=4, lines=[line], curves={})
    report = task_studies.report(study)
    assert report[-2].endswith("| 0, 2 |")
    assert report[-1] == "| (the paper) | ≥ 85 | < 0.2 |  | < 500 |  |"
    assert tuple(task_studies.EXPERIMENTS) == cli.EXPERIMENTS


def test_a_missing_trace_is_named_with_the_remedy(tmp_path) -> None:
    done = CliRunner().invoke(command, ["tasks", "use", "--folder", str(tmp_path), "--out", str(tmp_path / "out")])
    assert done.exit_code == 1
    assert "is not there; download it from" in done.output


@pytest.mark.slow
def test_an_experiment_leaves_table_and_picture(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(openb, "task_list", lambda folder: trace())
    words = ["tasks", "lambda", "--tasks", "120", "--seeds", "1", "--epochs", "1", "--out", str(tmp_path), "-o", "json"]
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == json.loads((tmp_path / "lambda" / "tasks.json").read_text())
    found = json.loads(done.stdout)
    assert [line["variant"] for line in found["lines"]] == ["rule", "lambda 0.2", "lambda 0.5", "lambda 0.8"]
    assert (tmp_path / "lambda" / "tasks.png").read_bytes().startswith(b"\x89PNG")
