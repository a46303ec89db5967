"""`rlscaler train --for`, from the files to the folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from rlscaler_core.decision.actor import Actor
from rlscaler_core.decision.manifest import Manifest
from rlscaler_live.train_cli import train
from rlscaler_loadgen.traces import Trace, write_trace
from rlscaler_rl.evaluation.models import load_start
from rlscaler_rl.evaluation.schema import ServiceVerdict
from rlscaler_rl.evaluation.service_tuning import run
from rlscaler_rl.evaluation.service_tuning.history import prepare
from rlscaler_rl.training.errors import DivergedError
from rlscaler_rl.training.finetune import FineTuning

from .conftest import make_service, waves

POLICY = str(Path(__file__).parents[3] / "examples" / "policy.yaml")

TINY = FineTuning(envs=16, critic_rollouts=1, candidates=2).with_agent(
    steps=256, buffer_size=4, batch_size=32, ppo_epochs=1
)


@pytest.mark.slow
@pytest.mark.parametrize("pools", [(True, True), (False, True)])
def test_a_run_leaves_a_policy_a_verdict_and_a_report(tmp_path, pools):
    service = make_service(present=pools)
    history = prepare(Trace(waves(5400) * (1 if pools[0] else 0.2), 1.0), "waves.csv", service)
    options = run.Options(training=TINY, level="fluid", budget=4, finalists=2)
    said = []
    verdict = run.tune_for_service(service, history, load_start(None), options, tmp_path / "out", said.append)
    assert not verdict.publish
    assert "30 min more" in verdict.reasons[0]
    manifest = Manifest.load(tmp_path / "out" / "manifest.json")
    actor = Actor.load(tmp_path / "out" / "policy.onnx", manifest)
    assert not actor.manifest.mask(service.params)[0]
    assert ServiceVerdict.model_validate_json((tmp_path / "out" / "verdict.json").read_bytes()) == verdict
    assert verdict.policy_digest == manifest.digest
    assert set(verdict.training.networks) == {"general", "own_spec", "found_spec"}
    assert verdict.recommendation.changes == {}, "one stretch to tune on shows nothing"
    assert "Spec: nothing to change" in (tmp_path / "out" / "report.txt").read_text()
    assert not (tmp_path / "out" / "spec-patch.yaml").exists()
    names = [row.name for row in verdict.rows]
    assert names == ["policy", "hpa_tuned", "rule_tuned", "static_today", "general", "rule", "hpa", *names[-2:]]
    assert {"do not publish", "tuning the contender hpa"} < {
        part for text in [*said, report(tmp_path)] for part in parts(text)
    }


def report(folder):
    return (folder / "out" / "report.txt").read_text().splitlines()[0]


def parts(text):
    return [text, text.removeprefix("demo/chat: "), text.removesuffix(" on the tune part")]


def invoke(*arguments):
    return CliRunner().invoke(train, [str(one) for one in arguments])


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--history", "day.csv"], "--history: only with --for"),
        (["--for", POLICY], "--history FILE.csv or --prometheus"),
        (["--for", POLICY, "--history", "a.csv", "--prometheus", "http://127.0.0.1:1"], "--history FILE.csv or"),
        (["--for", POLICY, "--prometheus", "http://127.0.0.1:1"], "--query"),
        (["--for", POLICY, "--history", "a.csv", "--from", "now-1h", "--step", "15s"], "--from, --step: only with"),
        (["--for", POLICY, "--history", "nowhere.csv"], "nowhere.csv"),
        (["--for", "nowhere.yaml", "--history", "a.csv"], "nowhere.yaml"),
        (["--for", POLICY, "--history", "a.csv", "--replicas", "3"], "--replicas 3"),
        (["--for", POLICY, "--history", "a.csv", "--install"], "--install: not with --for"),
        (["--for", POLICY, "--history", "a.csv", "--env", "cluster"], "--env: not with --for"),
    ],
)
def test_what_does_not_go_together_is_said(arguments, named):
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert named in result.output


def test_a_history_that_is_too_short_ends_before_anything_is_trained(tmp_path):
    path = tmp_path / "hour.csv"
    write_trace(path, Trace(waves(3600), 1.0))
    result = invoke("--for", POLICY, "--history", path, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "1 h 7 min" in result.output
    assert not (tmp_path / "out").exists()


def test_a_prometheus_that_is_not_there_is_said():
    result = invoke("--for", POLICY, "--prometheus", "http://127.0.0.1:1", "--query", "up", "--from", "now-3h")
    assert result.exit_code == 2
    assert "http://127.0.0.1:1" in result.output


def test_help_tells_the_exit_codes():
    assert "exit code 0 = publish, 3" in " ".join(invoke("--help").output.split())


@pytest.mark.parametrize(("days", "seconds"), [(2, 3600), (1, 600)])
def test_a_history_of_days_is_judged_on_hours(tmp_path, monkeypatch, days, seconds):
    history = tmp_path / "load.csv"
    write_trace(history, Trace(waves(days * 86_400)[::60], 60.0))
    played = []

    def tune(service, *rest):
        played.append(service.episode_seconds)
        raise DivergedError("here the training would begin")

    monkeypatch.setattr(run, "tune_for_service", tune)
    told = invoke("--for", POLICY, "--history", history, "--scrape-seconds", 15, "--out", tmp_path / "out")
    assert "here the training would begin" in told.output, told.output
    assert played == [seconds]
