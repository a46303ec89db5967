"""Rewards and ends of episodes of the thesis, as its published code has them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rlscaler_core.placement.actor import PlacementActor
from rlscaler_core.placement.policies import Policy
from rlscaler_core.placement.types import Nodes, Pods, empty_nodes, pod
from rlscaler_rl.placement.dqn import Memory, Options, thesis, train
from rlscaler_rl.placement.drawn import Setting
from rlscaler_rl.placement.environment import Placement
from rlscaler_rl.placement.thesis import judged

SOFT, HARD = 20.0, 30.0


def cluster(pods: list[int], latency: list[float] | None = None) -> Nodes:
    """One cluster of nodes with so many pods."""
    nodes = empty_nodes(np.full((1, len(pods), 2), 16_000.0))
    return nodes._replace(pods=np.array([pods], float), latency_ms=np.array([latency or [10.0] * len(pods)], float))


def limits(soft: float = SOFT, hard: float = HARD) -> Pods:
    return Pods._make(np.asarray(column)[None] for column in pod(250, 64, soft_ms=soft, hard_ms=hard))


def rewards(policy: Policy, nodes: Nodes, pods: Pods | None = None) -> list[tuple[float, bool]]:
    """Reward and end of the episode for each node."""
    judgements = [judged(policy, nodes, pods or limits(), np.array([node])) for node in range(nodes.pods.shape[-1])]
    return [(float(reward[0]), bool(ended[0])) for reward, ended in judgements]


def test_load_balance_has_ten_zero_and_minus_one() -> None:
    assert rewards(Policy.LB, cluster([7, 2, 5])) == [(-1, True), (10, False), (0, False)]
    assert rewards(Policy.LB, cluster([4, 4, 4])) == [(10, False)] * 3, "level nodes all have the fewest pods"
    assert rewards(Policy.LB, cluster([4, 1, 4])) == [(-1, True), (10, False), (-1, True)]


def test_energy_has_ten_times_the_unused_share_for_the_fullest_node_and_else_the_end() -> None:
    assert rewards(Policy.EE, cluster([7, 0, 5])) == [(3, False), (0, True), (0, True)]
    assert rewards(Policy.EE, cluster([0, 0, 0])) == [(10, False)] * 3
    assert rewards(Policy.EE, cluster([1] * 7 + [0] * 3))[0] == (3, False), "three tenths are three points"


def test_energy_and_latency_add_three_parts_and_end_above_the_hard_limit() -> None:
    nodes = cluster([25, 5, 0], [20.0, 25.0, 31.0])
    base = 1 / 3 + 15 / 50
    assert rewards(Policy.EL, nodes) == [
        (pytest.approx(base + 1), False),
        (pytest.approx(base + 0.5), False),
        (pytest.approx(base), True),
    ]
    assert rewards(Policy.EL, nodes, limits(np.nan, np.nan)) == [(pytest.approx(base), True)] * 3
    assert rewards(Policy.EL, cluster([0, 0], [5.0, 5.0])) == [(2, False)] * 2


@pytest.mark.parametrize("policy", [Policy.EE, Policy.LB, Policy.EL])
def test_a_refused_pod_has_no_reward_and_ends_nothing(policy: Policy) -> None:
    reward, ended = judged(policy, cluster([3, 1], [90.0, 90.0]), limits(), np.array([-1]))
    assert (reward[0], ended[0]) == (0, False)


def test_nodes_above_the_hard_limit_take_pods_where_episodes_end_by_it() -> None:
    lax, strict = (Placement(Setting(Policy.EL, 6, 4, hard_refuses=refuses), 0) for refuses in (False, True))
    above = lax.nodes.latency_ms > lax.pods.hard_ms[:, None]
    assert (lax.mask() & above).any()
    assert not (strict.mask() & above).any()


def test_nothing_follows_the_end_of_an_episode() -> None:
    memory = Memory(8, 1, 3, 2)
    for step in range(4):
        seen = np.full((1, 3, 2), step, np.float32)
        memory.add(seen, np.ones((1, 3), bool), np.array([1]), np.array([float(step)]), np.array([step == 1]))
    _, _, reward, _, mask = memory.draw(64, np.random.default_rng(0))
    assert (mask.any(1) == (reward != 1)).all()
    assert {0.0, 1.0, 2.0} == set(reward.tolist())


def test_the_settings_are_those_of_the_published_code() -> None:
    options = thesis(Options(Policy.LB, seed=3))
    assert (options.steps, options.learning_rate, options.explore_share, options.learning_starts) == (
        2000,
        2.5e-3,
        0.3,
        300,
    )
    assert (options.nodes, options.clusters, options.seed) == ((3,), 1, 3)


AFTER = ("after-0", "after-200", "after-400")


@pytest.mark.slow
def test_a_training_records_its_course_and_updates_only_after_its_first_placements(tmp_path) -> None:
    numbers: dict[str, list[int]] = {}

    def record(name: str, number: float, placements: int) -> None:
        assert np.isfinite(number)
        numbers.setdefault(name, []).append(placements)

    options = replace(thesis(Options(Policy.LB)), steps=400, looks=2, keep_looks=True)
    trained = train(options, record=record)
    assert numbers["losses/td_loss_3"] == list(range(300, 401, 10))
    assert numbers["charts/epsilon"] == list(range(401))
    assert numbers["validation/score"] == [placements for placements, _ in trained.run.curve]
    for mine in ("after-party/LB.onnx", "after-thoughts.md", "after-7/LB.onnx", "after-7/EE.onnx", "after-8/LB.onnx"):
        (tmp_path / mine).parent.mkdir(exist_ok=True)
        (tmp_path / mine).touch()
    trained.save(tmp_path)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("after-[78tp]*/*")}
    assert left == {"after-party/LB.onnx", "after-7/EE.onnx"}, "only looks of an earlier training of the policy go"
    assert (tmp_path / "after-thoughts.md").exists()
    assert not (tmp_path / "after-8").exists()
    assert [len((tmp_path / name / "LB.csv").read_text().splitlines()) for name in AFTER] == [2, 3, 4]
    steps = [PlacementActor.load(tmp_path / name, Policy.LB).manifest.steps for name in AFTER]
    assert (steps, PlacementActor.load(tmp_path, Policy.LB).manifest.steps) == ([0, 200, 400], 400)
