"""A network for one token service: trained on the earlier load, judged on the last quarter, and published by that."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner

from rlscaler_core.decision.manifest import Manifest
from rlscaler_live.cli import main
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.service_tuning.publish import publish
from rlscaler_rl.evaluation.tokens import own_network
from rlscaler_rl.evaluation.tokens.load import of_rates, of_requests, server_of
from rlscaler_rl.evaluation.tokens.own import OwnService
from rlscaler_rl.simulation.tokens.drawn import drawn
from rlscaler_rl.simulation.tokens.episode import TokenResult
from rlscaler_rl.training import tokens as training
from rlscaler_rl.training.tokens import Options
from tests.unit.tokens.policy_fixture import write_policy


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return write_policy(tmp_path / "chat.yaml", 30)


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


def test_each_part_of_the_load_is_for_one_purpose(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, used = service(policy, 7200), {}

    def moments(scaled: training.Scaled) -> np.ndarray:
        return scaled.world.requests.need

    def train_on(course: Any, others: training.Scaled, *rest: Any) -> None:
        used["train"] = np.concatenate([moments(course(number)) for number in range(3)])
        used["choice"] = moments(others)

    def judged(service: OwnService, stretches: list[Any], folder: Path) -> Any:
        used["judge"] = np.concatenate([stretch.requests.need for stretch in stretches])
        raise InterruptedError

    monkeypatch.setattr(own_network, "train_on", train_on)
    monkeypatch.setattr(own_network, "_judged", judged)
    # The need of a request tells its second.
    marked = own.load._replace(requests=own.load.requests._replace(need=own.load.requests.arrived))
    with pytest.raises(InterruptedError):
        own_network.train_for(replace(own, load=marked), Options(services=24, looked_at=60), policy.parent, print)
    for name, begin, end in (("train", 0, 3600), ("choice", 3600, 5400), ("judge", 5400, 7200)):
        assert begin <= used[name].min() < begin + 120, name
        assert end - 120 < used[name].max() <= end, name


def test_load_tests_of_recorded_requests_know_the_earlier_half_alone(tmp_path: Path) -> None:
    def log(later: int) -> Path:
        path = tmp_path / f"{later}.csv"
        begin = datetime(2026, 1, 1, tzinfo=UTC)
        rows = [
            (begin + timedelta(seconds=2 * n), *((300 + n % 50, 20 + n % 9) if n < 200 else (later, 5)))
            for n in range(400)
        ]
        path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(f"{a},{b},{c}\n" for a, b, c in rows))
        return path

    def known(path: Path) -> tuple[Any, Any]:
        load = of_requests(path, server_of("8b-l40s"), 2.5, 0.15, known=0.5)
        return load.weights, load.usual

    assert known(log(300)) == known(log(3000))


def test_stretches_count_by_what_they_need() -> None:
    world = drawn(2, 600, 3)
    need = np.where(np.arange(len(world.requests.need)) < world.requests.first[1], 1e-6, 1.0)
    world = replace(world, requests=world.requests._replace(need=need))
    figures = dict.fromkeys((field.name for field in fields(TokenResult)), np.zeros(2))
    result = TokenResult(**(figures | {"over_need": np.array([1e5, 1.5]), "requests": np.array([1.0, 999.0])}))
    quiet, busy = own_network._parts_of_j(result, world, 2)
    assert quiet < 0.01 * busy


@pytest.mark.parametrize("part", [(0, 3600), (3600, 5400), (5400, 7200)])
def test_a_part_without_requests_is_named_before_anything_is_trained(
    policy: Path, part: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = service(policy, 7200)
    arrived = own.load.requests.arrived
    quiet = own.load.of((arrived < part[0]) | (arrived >= part[1]))
    monkeypatch.setattr(training, "learn", pytest.fail)
    with pytest.raises(EvaluationError, match=r"load.csv: .*name a busier history"):
        own_network.train_for(replace(own, load=quiet), Options(services=8, looked_at=8), policy.parent, print)


def test_a_request_that_no_replica_can_take_is_named_with_its_log(tmp_path: Path) -> None:
    path = tmp_path / "requests.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2026-01-01 00:00:00,500000,5\n2026-01-01 02:10:00,300,20\n"
    )
    with pytest.raises(EvaluationError, match=r"requests.csv: ContextTokens.*500,005.*remove the request"):
        of_requests(path, server_of("8b-l40s"), 2.5, 0.15)


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
