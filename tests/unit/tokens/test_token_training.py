"""Networks for token services: their environment counts what the judge counts, and a tiny training is of use."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from rlscaler_core.decision.action import to_indices
from rlscaler_core.decision.manifest import Manifest
from rlscaler_core.decision.rule import rule_of
from rlscaler_core.decision.units import LatencySignal, LoadUnit
from rlscaler_core.models import load_bundled
from rlscaler_live.cli import main
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.models import load_for_tokens
from rlscaler_rl.simulation.objectives import REWARD_SCALE
from rlscaler_rl.simulation.tokens.drawn import World, drawn
from rlscaler_rl.simulation.tokens.episode import params_of, run
from rlscaler_rl.simulation.tokens.ledger import billed
from rlscaler_rl.simulation.tokens.level import TokenLevel
from rlscaler_rl.simulation.tokens.servers import SERVERS
from rlscaler_rl.simulation.tokens.services import Requests, Services
from rlscaler_rl.simulation.tokens.training import TokenEpisodes
from rlscaler_rl.simulation.vec_env import NO_CHANGE
from rlscaler_rl.training import tokens as training
from rlscaler_rl.training.export import bare_manifest
from rlscaler_rl.training.tokens import OBJECTIVES, Options, config_of, envelope, train
from tests.unit.tokens.policy_fixture import write_policy

pytestmark = pytest.mark.slow

TINY = Options(seed=3, steps=40, services=2, courses=1, seconds=600, looked_at=2, look_every=1)
BARE = bare_manifest(config_of(TINY), "tokens")


@pytest.fixture(scope="module")
def world() -> World:
    return drawn(4, 900, 7, OBJECTIVES)


def played(world: World) -> tuple[TokenEpisodes, np.ndarray]:
    episodes = TokenEpisodes(world, BARE.contract, rule_of(BARE))
    rewards = []
    for _ in range(episodes.intervals):
        still = np.tile(to_indices(NO_CHANGE), (len(episodes.observe()), 1))
        rewards.append(episodes.play(still.astype(np.int64)))
    return episodes, np.stack(rewards)


def test_without_a_change_the_environment_does_what_the_judge_does_and_rewards_are_its_j(world: World) -> None:
    episodes, rewards = played(world)
    judged = run(world.services, world.requests, load_bundled("rule"), world.declared, world.seconds)
    assert billed(episodes.level).tolist() == billed(judged.level).tolist()
    assert (judged.result.late_percent > 1).any()
    # The judge also counts requests without a first token whose objective has passed.
    assert -rewards.mean(axis=0) / REWARD_SCALE == pytest.approx(judged.result.j, rel=0.05)


def test_every_request_that_is_known_to_be_late_was_counted_once(world: World) -> None:
    level = played(world)[0].level
    fleet, services, first = level.fleet, level.services, world.requests.first
    row = np.repeat(np.arange(len(services)), np.diff(first))
    late = fleet.first > services.first_seconds[row]
    slow = (fleet.token > services.token_seconds[row]) & ~late
    lost = (fleet.attempts < 0) & ~late & ~slow
    counted = np.add.reduceat((late | slow | lost).astype(float), first[:-1])
    assert fleet.service["missed"].tolist() == counted.tolist()


def test_a_request_that_begins_again_is_late_once() -> None:
    services = Services.of([SERVERS["8b-l40s"]], initial=2, first_seconds=0.1, max_replicas=2, drain_seconds=60)
    size = np.ones(30, np.int32)
    columns = np.linspace(0.0, 3.0, 30), 1500 * size, 6000 * size, np.zeros(30), np.zeros(30)
    level = TokenLevel(services, Requests(np.array([0, 30], np.int64), *columns))
    level.advance(30.0)
    level.scale(np.array([1]))
    for _ in range(40):
        level.advance(15.0)
    assert level.fleet.attempts.max() > 1, "requests of the replica that was cut have begun again"
    assert level.fleet.service["missed"].tolist() == [30]


def test_a_network_is_for_tokens_and_the_first_token_within_its_ranges(world: World) -> None:
    params = params_of(world.services, world.declared, "tokens", learns=True)
    assert not envelope().mask(params).any()
    for name, value in (
        ("unit", LoadUnit.REQUESTS),
        ("slo_signal", LatencySignal.END_TO_END),
        ("slo_ms", 100.0),
        ("max_replicas", (6, 0)),
        ("cold_start_seconds", (380.0, 1.0)),
    ):
        other = params_of(world.services, world.declared, "tokens", learns=True)
        getattr(other, name)[:] = value
        assert envelope().mask(other).all(), name


def test_a_tiny_training_ends_in_a_network_that_other_commands_take(tmp_path: Path) -> None:
    folder = train(TINY, tmp_path / "tiny", lambda text: None)
    manifest = Manifest.load(folder / "manifest.json")
    assert manifest.lasting
    assert manifest.residual
    assert manifest.training is not None
    assert manifest.training.hyperparameters["options"]["services"] == 2
    assert load_for_tokens(str(folder)).digest == manifest.digest
    history = tmp_path / "load.csv"
    history.write_text("time_s,requests_per_s\n" + "".join(f"{second},2\n" for second in range(0, 600, 5)))
    policy = write_policy(tmp_path / "chat.yaml", 15)
    command = ["tokens", "simulate", str(policy), "--history", str(history), "--server", "8b-l40s"]
    found = CliRunner().invoke(main, [*command, "--model", str(folder), "-o", "json"])
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["rows"][0]["label"] == "policy chat, network tiny"
    write_policy(policy, 30)
    found = CliRunner().invoke(main, [*command, "--model", str(folder)])
    assert found.exit_code == 2
    assert "intervalSeconds 30 is outside 15..15" in found.output
    assert "chat.yaml" in found.output


def test_a_network_is_replaced_by_force_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        training, "Options", partial(Options, services=2, courses=1, seconds=600, looked_at=2, look_every=1)
    )
    command = ["tokens", "train", "--steps", "40", "--out", str(tmp_path)]
    assert CliRunner().invoke(main, command).exit_code == 0
    again = CliRunner().invoke(main, command)
    assert again.exit_code == 2
    assert "--force" in again.output
    assert CliRunner().invoke(main, [*command, "--force"]).exit_code == 0


def test_a_network_for_requests_is_refused_by_name(tmp_path: Path) -> None:
    models = Path(__file__).parents[3] / "core/rlscaler_core/models"
    (tmp_path / "policy.onnx").write_bytes((models / "ppo.onnx").read_bytes())
    (tmp_path / "manifest.json").write_bytes((models / "ppo.json").read_bytes())
    with pytest.raises(
        EvaluationError, match=r"envelope.units and envelope.signals need tokens and ttft.*rlscaler tokens train"
    ):
        load_for_tokens(str(tmp_path))
