"""A network for one token service: trained on the earlier load, judged on the last quarter, and published by that."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import yaml
from click.testing import CliRunner

from rlscaler_core.decision.manifest import Manifest
from rlscaler_live.cli import main
from rlscaler_rl.evaluation.service_tuning.publish import publish
from rlscaler_rl.evaluation.tokens import own_network
from rlscaler_rl.evaluation.tokens.load import of_rates, server_of
from rlscaler_rl.evaluation.tokens.own import OwnService
from rlscaler_rl.training import tokens as training
from rlscaler_rl.training.tokens import Options

SPEC = {
    "targets": {"gpu": {"deployment": "chat", "maxReplicas": 8, "coldStartSeconds": 120}},
    "capacity": {"unit": "tokens", "perReplica": {"gpu": 1500}},
    "slo": {"latencyMilliseconds": 2500, "signal": "ttft", "timePerOutputTokenMilliseconds": 150},
    "metrics": {"preset": "vllm"},
    "intervalSeconds": 30,
}


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    about = {"apiVersion": "rlscaler.io/v1alpha1", "kind": "RLScalingPolicy", "metadata": {"name": "chat"}}
    path = tmp_path / "chat.yaml"
    path.write_text(yaml.safe_dump({**about, "spec": SPEC}))
    return path


def history(folder: Path, seconds: int) -> Path:
    path = folder / "load.csv"
    rows = (f"{second},{2 + (second // 900) % 2}\n" for second in range(0, seconds, 5))
    path.write_text("time_s,requests_per_s\n" + "".join(rows))
    return path


def service(policy: Path, seconds: int) -> OwnService:
    load = partial(of_rates, history(policy.parent, seconds), "chat")
    return OwnService.read(policy, load, server_of("8b-l40s"))


def test_stretches_are_of_their_part_with_declarations_that_are_off(policy: Path) -> None:
    own = service(policy, 7200)
    stretches = own_network._stretches(own, own.load.between(0, 3600), 40, 600, np.random.default_rng(1))
    assert stretches.params is not None
    off = stretches.params.requests_per_second[:, 0] / 1500
    assert off.min() < 0.85 < 1.15 < off.max()
    assert 0.75 <= off.min() <= off.max() <= 1.25
    counts = np.diff(stretches.world.requests.first)
    assert counts.min() >= 0.4 * 600 * 2
    assert counts.max() <= 1.1 * 600 * 3
    assert stretches.world.requests.arrived.max() < 600
    assert (stretches.params.interval_seconds == 30).all()
    later = own.load.between(3600, 7200)
    assert own.world([later, later]).requests.arrived.tolist() == [*later.requests.arrived] * 2


@pytest.mark.slow
def test_the_last_quarter_judges_and_its_verdict_is_what_publish_goes_by(
    policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = partial(Options, services=2, courses=1, looked_at=2, look_every=1)
    monkeypatch.setattr(training, "Options", tiny)
    out, load = policy.parent / "out", history(policy.parent, 7200)
    words = ["tokens", "train", "--for", str(policy), "--history", str(load), "--server", "8b-l40s"]
    trained = CliRunner().invoke(main, [*words, "--steps", "40", "--out", str(out)])
    assert trained.exit_code in (0, 3), trained.output
    verdict = json.loads((out / "verdict.json").read_text())
    assert (verdict["name"], verdict["namespace"], verdict["episode_seconds"]) == ("chat", "default", 600)
    assert [len(row["j"]) for row in verdict["rows"]] == [3, 3]
    assert verdict["publish"] == (trained.exit_code == 0)
    manifest = Manifest.load(out / "manifest.json")
    assert manifest.envelope is not None
    assert manifest.envelope.interval_seconds == (30.0, 30.0)
    assert manifest.digest == verdict["policy_digest"]
    (out / "verdict.json").write_text(json.dumps({**verdict, "publish": False, "reasons": ["level with the rule"]}))
    refused = CliRunner().invoke(publish, [str(out)])
    assert (refused.exit_code, "level with the rule" in refused.output) == (3, True)
    (out / "verdict.json").write_text(json.dumps({**verdict, "publish": True}))
    published = CliRunner().invoke(publish, [str(out)])
    assert published.exit_code == 0, published.output
    assert yaml.safe_load(published.stdout)["metadata"]["name"] == "chat-policy"
    # The network acts for the policy that it was trained for, at its own interval.
    words = ["tokens", "simulate", str(policy), "--history", str(load), "--server", "8b-l40s", "--model", str(out)]
    assert CliRunner().invoke(main, words).exit_code == 0


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--server", "8b-l40s"], "--history"),
        (["--history", "LOAD"], "--server"),
        (["--history", "LOAD", "--server", "8b-l40s"], "1.0 hours of load, and 2 are needed"),
        (["--history", "LOAD", "--trace", "LOAD", "--server", "8b-l40s"], "either --history"),
    ],
)
def test_a_wrong_option_and_a_short_history_are_named(policy: Path, words: list[str], named: str) -> None:
    load = str(history(policy.parent, 3600))
    words = [load if word == "LOAD" else word for word in words]
    out = ["--out", str(policy.parent / "out")]
    failed = CliRunner().invoke(main, ["tokens", "train", "--for", str(policy), *words, *out])
    assert failed.exit_code == 2
    assert named in failed.output.replace("\n", " ")
    assert not (policy.parent / "out" / "policy.onnx").exists()


def test_a_load_belongs_to_a_policy(policy: Path) -> None:
    words = ["tokens", "train", "--history", str(history(policy.parent, 600)), "--out", str(policy.parent / "out")]
    failed = CliRunner().invoke(main, words)
    assert failed.exit_code == 2
    assert "only with --for" in failed.output
