"""Networks for consumers of a stream: their environment, a tiny training, and who refuses which kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from rlscaler_core import models
from rlscaler_core.decision.actor import Actor
from rlscaler_core.decision.decide import decide
from rlscaler_core.decision.manifest import Manifest
from rlscaler_core.decision.rule import rule_of
from rlscaler_core.decision.tables import initial_state, make_params, make_samples
from rlscaler_core.decision.types import Flag
from rlscaler_core.models import STREAMS, load_bundled
from rlscaler_live.cli import main
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.models import load, load_for_streams
from rlscaler_rl.simulation.courses import CourseVecEnv
from rlscaler_rl.simulation.episode import LATE_WEIGHT
from rlscaler_rl.simulation.objectives import REWARD_SCALE
from rlscaler_rl.simulation.streams.episode import run
from rlscaler_rl.simulation.streams.groups import Groups, groups
from rlscaler_rl.simulation.streams.ledger import consumer_price
from rlscaler_rl.simulation.streams.training import SENSE_SECONDS, StreamEpisodes
from rlscaler_rl.training.export import bare_manifest
from rlscaler_rl.training.stream_loads import RANGES, SHAPES, StreamRanges, draw
from rlscaler_rl.training.streams import Options, config_of, course_of, envelope, install, train
from rlscaler_rl.workloads.stretches import StretchLoads, trained_recordings

pytestmark = pytest.mark.slow

TINY = Options(seed=3, steps=80, groups=2, courses=1, looked_at=2, look_every=1)
BARE = bare_manifest(config_of(TINY), STREAMS)
RULE = rule_of(BARE)
STILL = np.array([[2, 2, 0], [2, 2, 0]])
MORE = np.array([[2, 4, 0], [2, 4, 0]])


def two(protocol: str = "range", seconds: int = 240) -> Groups:
    rates = np.full((2, seconds), 40.0)
    rates[:, seconds // 3 : 2 * seconds // 3] = 360.0
    return groups(rates, [1, 2], partitions=6, max_replicas=6, protocol=protocol, slo_seconds=7.0)


def played(made: Groups, actions: np.ndarray, interval: float = 15.0) -> tuple[StreamEpisodes, np.ndarray]:
    episode = StreamEpisodes(made, interval, BARE.contract, RULE)
    rewards = []
    for _ in range(episode.intervals):
        episode.observe()
        rewards.append(episode.play(actions))
    return episode, np.stack(rewards)


@pytest.mark.parametrize("protocol", ["range", "consumer"])
def test_without_a_change_the_environment_does_what_the_operator_does(protocol: str) -> None:
    made = two(protocol)
    episode, _ = played(made, STILL)
    operator = run(made, load_bundled("rule"), interval_seconds=15.0, sense_seconds=SENSE_SECONDS).result
    assert episode.level.state.billed.tolist() == operator.consumer_seconds.tolist()


def test_rewards_add_up_to_j_of_what_was_due() -> None:
    made = two()
    _episode, rewards = played(made, STILL)
    found = run(made, load_bundled("rule"), interval_seconds=15.0, sense_seconds=SENSE_SECONDS).result
    assert (found.late_percent > 1).all()
    j = consumer_price(made) * found.consumer_seconds / made.seconds + LATE_WEIGHT * found.late_percent
    assert -rewards.mean(axis=0) / REWARD_SCALE == pytest.approx(j, rel=0.03)


def test_of_the_rule_alone_nothing_is_better_or_worse_and_more_consumers_cost() -> None:
    made = two()
    env = CourseVecEnv([course_of(made, BARE)], BARE.contract)
    first = env.reset()
    assert first.shape == (2, env.observation_space.shape[0])
    _, rewards, over, _ = env.step(STILL)
    assert rewards.tolist() == [0, 0]
    assert not over.any()
    env.step(MORE)
    _, rewards, _, _ = env.step(MORE)
    assert (rewards < 0).all(), "nothing waits yet, so what is held beyond the rule is lost"


def test_episodes_end_together_by_time_and_the_next_course_follows() -> None:
    courses = [course_of(two(protocol, 60), BARE) for protocol in ("range", "consumer")]
    env = CourseVecEnv(courses, BARE.contract)
    env.reset()
    seen = [env._course]
    for number in range(8):
        _, _, over, infos = env.step(STILL)
        assert over.tolist() == [number % 4 == 3] * 2
        if over.any():
            seen.append(env._course)
            assert all(info["TimeLimit.truncated"] and len(info["terminal_observation"]) for info in infos)
    assert len({id(course) for course in seen[:2]}) == 2
    with pytest.raises(AttributeError, match="make another"):
        env.set_attr("rule", None)


def test_groups_are_drawn_within_the_ranges_and_reach_their_peak() -> None:
    recorded = StretchLoads(trained_recordings(), 1.0)
    made = draw(40, 24, np.random.default_rng(1), recorded, StreamRanges(seconds=120))
    assert made.partitions.min() >= 4
    assert made.partitions.max() <= 24
    assert (made.max_replicas == made.partitions).all()
    assert set(made.protocol.tolist()) == {0, 1, 2}
    for name, values, (low, high) in (
        ("rate", made.rate, RANGES.messages_per_second),
        ("objective", made.slo_seconds, RANGES.objective),
        ("cold start", (made.cold_start_low + made.cold_start_high) / 2, RANGES.cold_start),
    ):
        assert low <= values.min(), name
        assert values.max() <= high, name
        assert values.max() > 2 * values.min(), name
    mean = made.messages() / made.seconds
    assert (mean < 1.1 * made.partitions * made.rate).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_keep_to_their_levels_and_have_moments_of_their_own(shape: object) -> None:
    one, other = (shape(np.random.default_rng(seed), 600, 60.0, 600.0) for seed in (1, 2))  # type: ignore[operator]
    assert len(one) == 600
    assert one.min() >= 60 - 1e-9
    assert one.max() <= 600 + 1e-9
    assert not np.array_equal(one, other)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(TINY, tmp_path_factory.mktemp("streams") / "one", lambda text: None)


def test_a_training_leaves_a_network_that_the_operator_loads_and_its_envelope_says_for_what(folder: Path) -> None:
    manifest = Manifest.load(folder / "manifest.json")
    assert Actor.load(folder / "policy.onnx", manifest).manifest.residual
    assert manifest.envelope == envelope()
    assert manifest.envelope is not None
    assert manifest.envelope.consumers is not None
    assert manifest.envelope.consumers.protocols == ("range", "cooperative-sticky", "consumer")
    assert manifest.training.seed == 3


def test_a_training_does_not_overwrite_another(folder: Path) -> None:
    done = CliRunner().invoke(main, ["streams", "train", "--seed", "1", "--out", str(folder)])
    assert done.exit_code == 2
    assert "--force" in done.output


def test_equal_seeds_train_equal_networks(folder: Path, tmp_path: Path) -> None:
    again = train(TINY, tmp_path / "again", lambda text: None)
    assert (again / "policy.onnx").read_bytes() == (folder / "policy.onnx").read_bytes()


def test_the_simulators_refuse_a_network_of_the_other_kind(folder: Path) -> None:
    assert load_for_streams(str(folder)).actor.manifest.name == STREAMS
    with pytest.raises(EvaluationError, match=r"envelope\.consumers: it was trained for consumers .* `rlscaler train`"):
        load(str(folder), Path())
    services = Path(models.__file__).with_name("ppo.onnx")
    with pytest.raises(EvaluationError, match=r"envelope\.consumers is missing: .* `rlscaler streams train`"):
        load_for_streams(str(services))
    done = CliRunner().invoke(main, ["streams", "simulate", "--model", str(services)])
    assert done.exit_code == 2
    assert "rlscaler streams train" in done.output


def test_what_is_installed_is_the_bundled_network(folder: Path, tmp_path: Path) -> None:
    install(folder, tmp_path)
    assert (tmp_path / "streams.onnx").read_bytes() == (folder / "policy.onnx").read_bytes()
    assert Manifest.load(tmp_path / "streams.json") == Manifest.load(folder / "manifest.json")


def test_a_network_is_played_beside_the_rule_and_it_is_said_where_it_may_not_act(folder: Path) -> None:
    tiny = ["--duration", "60", "--partitions", "4", "--low", "20", "--peak", "300", "--seeds", "1"]

    def simulated(*words: str) -> dict[str, Any]:
        done = CliRunner().invoke(main, ["streams", "simulate", *tiny, *words, "--model", str(folder), "-o", "json"])
        assert done.exit_code == 0, done.output
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    found = simulated()
    assert [row["contender"] for row in found["rows"]][:2] == ["rule", "network"]
    assert not any("envelope" in note for note in found["notes"])
    (said,) = [note for note in simulated("--objective", "120")["notes"] if "envelope" in note]
    assert "slo.latencyMilliseconds 120000 is outside 5000..60000" in said


@pytest.mark.parametrize("stream", [False, True])
def test_a_network_of_the_other_kind_does_not_decide(folder: Path, stream: bool) -> None:
    trained = load_for_streams(str(folder)).actor
    for actor, fits in ((trained, stream), (load_bundled("ppo"), not stream)):
        params = make_params(
            1,
            present=(False, True),
            stream=stream,
            max_replicas=(0, 12),
            requests_per_second=(np.nan, 100.0),
            cold_start_seconds=(np.nan, 8.0),
            slo_ms=9000.0,
        )
        samples = make_samples(
            1, time=100.0, arrival_rate=100.0, p95_ms=100.0, cpu_utilization=50.0, memory_utilization=50.0,
            spec_replicas=(0, 2), ready_replicas=(0, 2), partitions=12, lag_messages=10.0,
        )  # fmt: skip
        outside, (reason,) = actor.manifest.outside(params)
        assert outside.tolist() == [not fits], reason
        decision, _, _ = decide(params, initial_state(1, actor.manifest.stack_size), samples, actor)
        assert bool(decision.flags[0] & Flag.OUT_OF_ENVELOPE) == (not fits)
        # The rule beneath a lasting action has no envelope.
        assert bool(decision.flags[0] & Flag.FALLBACK) == (not fits and not actor.manifest.lasting)
        if not fits:
            kind = "`rlscaler streams train`" if stream else "`rlscaler train`"
            assert reason.startswith("policy: the ")
            assert kind in reason
