"""Masks, rules and levels: by hand on small clusters, and as properties of any."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlscaler_core.placement.features import COMMON, columns, features
from rlscaler_core.placement.mask import above_hard, fits, near_enough
from rlscaler_core.placement.policies import EXTENDER_LEVELS, PLUGIN_LEVELS, Policy, allowed, choose, levels, ranked
from rlscaler_core.placement.rules import RULES
from rlscaler_core.placement.types import Nodes, empty_nodes, pod


def cluster(seed: int, count: int) -> Nodes:
    """Nodes in any state: partly used GPUs, latencies and ends of which some are unknown."""
    rng = np.random.default_rng(seed)
    size = rng.choice([16_000.0, 32_000.0, 64_000.0], count)
    nodes = empty_nodes(np.stack([size, 4 * size], -1), gpus=rng.choice([0.0, 2.0, 8.0], count))
    share = rng.random((count, 1)).round(2)
    pods = np.where(share[:, 0] > 0.2, np.ceil(share[:, 0] * 20), 0.0)
    used = np.where(pods[:, None] > 0, np.floor(nodes.allocatable * share), 0.0)
    free = nodes.gpu_free - 100.0 * rng.integers(0, 11, nodes.gpu_free.shape) * (nodes.gpu_free > 0)
    return nodes._replace(
        requested=used,
        pods=pods,
        gpu_free=free,
        gpu_model=np.where(nodes.gpus > 0, 1 << rng.integers(0, 3, count), 0),
        latency_ms=np.where(rng.random(count) < 0.3, np.nan, rng.uniform(1, 100, count)),
        empty_in_s=np.where(pods > 0, np.where(rng.random(count) < 0.3, np.nan, rng.uniform(0, 9000, count)), 0.0),
    )


ANY_POD = st.builds(
    pod,
    st.integers(1, 20_000).map(float),
    st.integers(1, 80_000).map(float),
    gpus=st.sampled_from([0, 1]),
    gpu_milli=st.sampled_from([100, 500, 1000]),
    gpu_models=st.sampled_from([0, 1, 6]),
    soft_ms=st.sampled_from([np.nan, 20.0]),
    hard_ms=st.sampled_from([np.nan, 50.0]),
    lifetime_s=st.sampled_from([np.nan, 600.0]),
)


def shuffled(nodes: Nodes, order: np.ndarray) -> Nodes:
    return Nodes._make(column[order] for column in nodes)


def test_a_pod_fits_by_requests_pods_gpus_and_model() -> None:
    nodes = empty_nodes(np.full((5, 2), 4000.0), gpus=np.array([0.0, 1, 1, 2, 2]))
    nodes = nodes._replace(gpu_model=np.array([0, 1, 2, 1, 1]))
    nodes.gpu_free[3, :2] = 400.0
    nodes.pods[4] = 110
    assert fits(nodes, pod(4000, 4000)).tolist() == [True, True, True, True, False]
    assert fits(nodes, pod(4001, 1)).tolist() == [False] * 5
    assert fits(nodes, pod(1, 1, gpus=1, gpu_milli=400)).tolist() == [False, True, True, True, False]
    assert fits(nodes, pod(1, 1, gpus=1, gpu_milli=500)).tolist() == [False, True, True, False, False]
    assert fits(nodes, pod(1, 1, gpus=1, gpu_models=2)).tolist() == [False, False, True, False, False]
    assert not fits(nodes, pod(1, 1, gpus=2)).any()


def test_latency_that_was_not_measured_is_neither_refused_nor_preferred() -> None:
    nodes = empty_nodes(np.full((3, 2), 4000.0))._replace(latency_ms=np.array([10.0, np.nan, 60.0]))
    limited = pod(1, 1, soft_ms=20, hard_ms=50)
    assert near_enough(nodes, limited).tolist() == [True, True, False]
    assert above_hard(nodes, limited).tolist() == [False, True, True]
    assert RULES["latency-then-pack"](nodes, limited).argmax() == 0
    assert near_enough(nodes, pod(1, 1)).all()


def test_pack_fills_used_nodes_first_and_opens_the_biggest() -> None:
    nodes = empty_nodes(np.array([[16_000.0, 64_000], [64_000, 256_000], [32_000, 128_000]]))
    assert RULES["pack"](nodes, pod(1, 1)).argmax() == 1
    nodes.pods[0], nodes.requested[0] = 1, 1000.0
    assert RULES["pack"](nodes, pod(1, 1)).argmax() == 0


@pytest.mark.parametrize("seed", range(20))
def test_spread_is_the_best_of_all_single_steps(seed: int) -> None:
    nodes, one = cluster(seed, 7), pod(1500, 1)
    after = []
    for index in range(7):
        used = nodes.requested[:, 0].copy()
        used[index] += 1500
        after.append((used / nodes.allocatable[:, 0]).std())
    scores = RULES["spread"](nodes, one)
    np.testing.assert_allclose(-scores, np.square(after), rtol=1e-9, atol=1e-12)


def test_least_extension_prefers_a_node_that_outlives_the_pod_and_of_these_the_one_that_ends_first() -> None:
    ends = np.array([100.0, 86_400.0, 900.0, 590.0, 0.0])
    nodes = empty_nodes(np.full((5, 2), 64_000.0))._replace(pods=np.array([1.0, 1, 1, 1, 0]), empty_in_s=ends)
    scores = RULES["least-extension"](nodes, pod(1, 1, lifetime_s=600))
    assert (-scores).argsort().tolist() == [2, 1, 3, 0, 4]


@pytest.mark.parametrize("rule", ["least-extension", "pack-and-extension"])
@given(st.integers(0, 10_000), st.integers(1, 30))
def test_without_lifetimes_rules_that_go_by_them_are_pack(rule: str, seed: int, count: int) -> None:
    nodes = cluster(seed, count)
    nodes = nodes._replace(empty_in_s=np.where(nodes.pods > 0, np.nan, 0.0))
    order = [(-RULES[name](nodes, pod(1, 1))).argsort(kind="stable") for name in ("pack", rule)]
    np.testing.assert_array_equal(*order)


def test_pack_and_extension_prefers_a_node_that_outlives_the_pod_and_opens_none() -> None:
    nodes = empty_nodes(np.full((4, 2), 64_000.0))._replace(pods=np.array([1.0, 1, 1, 0]))
    nodes = nodes._replace(empty_in_s=np.array([60.0, 700.0, 86_400.0, 0.0]))
    scores = RULES["pack-and-extension"](nodes, pod(1, 1, lifetime_s=600))
    assert scores[1] == scores[2] > scores[0] > scores[3]
    nodes.requested[0] = 32_000.0  # half full is worth a quarter of a point, nine minutes a little less
    assert RULES["pack-and-extension"](nodes, pod(1, 1, lifetime_s=600)).argmax() == 0


@given(st.integers(0, 10_000), st.integers(1, 30), st.floats(1, 1e6))
def test_pack_and_extension_opens_a_node_only_where_pack_does(seed: int, count: int, lifetime_s: float) -> None:
    nodes, one = cluster(seed, count), pod(1, 1, lifetime_s=lifetime_s)
    chosen = [RULES[name](nodes, one).argmax() for name in ("pack", "pack-and-extension")]
    assert (nodes.pods[chosen] > 0).tolist() == [bool((nodes.pods > 0).any())] * 2


def test_latency_fit_leaves_near_nodes_to_pods_that_need_them() -> None:
    nodes = empty_nodes(np.full((4, 2), 64_000.0))._replace(latency_ms=np.array([5.0, 18.0, 30.0, np.nan]))
    assert RULES["latency-fit"](nodes, pod(1, 1, soft_ms=20, hard_ms=40)).argmax() == 1
    assert RULES["latency-fit"](nodes, pod(1, 1, soft_ms=10, hard_ms=40)).argmax() == 0
    assert RULES["latency-then-pack"](nodes, pod(1, 1, soft_ms=20, hard_ms=40)).argmax() == 0


@given(st.integers(0, 10_000), st.integers(2, 30), ANY_POD)
def test_latency_fit_never_takes_a_worse_class(seed: int, count: int, one) -> None:
    nodes = cluster(seed, count)
    chosen = [RULES[name](nodes, one).argmax() for name in ("latency-then-pack", "latency-fit")]
    in_soft, in_hard = nodes.latency_ms <= one.soft_ms, nodes.latency_ms <= one.hard_ms
    assert in_soft[chosen[0]] == in_soft[chosen[1]] or np.isnan(one.soft_ms)
    assert in_hard[chosen[0]] == in_hard[chosen[1]] or np.isnan(one.hard_ms)


@given(st.integers(0, 10_000), st.integers(1, 30), ANY_POD, st.sampled_from(sorted(RULES)))
def test_scores_follow_the_order_of_the_nodes(seed: int, count: int, one, rule: str) -> None:
    nodes = cluster(seed, count)
    order = np.random.default_rng(seed + 1).permutation(count)
    scores = RULES[rule](nodes, one)
    assert np.isfinite(scores).all()
    np.testing.assert_allclose(RULES[rule](shuffled(nodes, order), one), scores[order], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("most", [EXTENDER_LEVELS, PLUGIN_LEVELS])
@given(seed=st.integers(0, 10_000), count=st.integers(1, 150), one=ANY_POD, rule=st.sampled_from(sorted(RULES)))
def test_only_an_allowed_node_is_chosen_and_it_alone_has_the_highest_level(most, seed, count, one, rule) -> None:
    nodes = cluster(seed, count)
    among = allowed(nodes, one, fits(nodes, one))
    scores = RULES[rule](nodes, one)
    chosen = int(choose(scores, nodes, one, among))
    assert chosen == -1 if not among.any() else among[chosen] and scores[chosen] == scores[among].max()
    given_levels = levels(ranked(scores, nodes, one), most)
    assert (given_levels == most).sum() == 1
    assert given_levels.argmax() == choose(scores, nodes, one, np.ones(count, bool))
    assert given_levels.min() >= 0
    order = np.argsort(-scores, kind="stable")
    apart = np.diff(scores[order]) < 0
    assert (np.diff(given_levels[order])[apart] <= 0).all(), "a better node never has a lower level"


def test_equals_are_told_apart_by_best_fit_and_then_by_index() -> None:
    nodes = empty_nodes(np.array([[64_000.0, 1e6], [16_000, 1e6], [16_000, 1e6]]))
    among = np.ones(3, bool)
    assert choose(np.zeros(3), nodes, pod(1, 1), among) == 1
    assert ranked(np.zeros(3), nodes, pod(1, 1)).tolist() == [1, 2, 0]
    none = ranked(np.zeros(0), shuffled(nodes, np.zeros(0, int)), pod(1, 1))
    assert len(levels(none, EXTENDER_LEVELS)) == 0


@pytest.mark.parametrize("policy", Policy)
@given(seed=st.integers(0, 10_000), count=st.integers(1, 20), one=ANY_POD)
def test_features_are_finite_and_follow_the_order_of_the_nodes(policy, seed: int, count: int, one) -> None:
    nodes = cluster(seed, count)
    among = fits(nodes, one)
    seen = features(policy, nodes, one, among)
    assert seen.shape == (count, len(columns(policy)))
    assert seen.dtype == np.float32
    assert np.isfinite(seen).all()
    assert (np.abs(seen) <= 110).all()
    order = np.random.default_rng(seed).permutation(count)
    np.testing.assert_allclose(features(policy, shuffled(nodes, order), one, among[order]), seen[order], atol=1e-5)


def test_the_first_column_is_the_rule() -> None:
    assert COMMON[0] == "rule"
    nodes, one = cluster(3, 9), pod(100, 100)
    among = fits(nodes, one)
    seen = features(Policy.EE, nodes, one, among)[:, 0]
    assert seen.argmax() == choose(RULES["pack"](nodes, one), nodes, one, among)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_many_clusters_at_once_are_each_as_alone(rule: str) -> None:
    nodes, pods = [cluster(seed, 6) for seed in range(4)], [pod(300 * (i + 1), 100, gpus=i % 2) for i in range(4)]
    together = RULES[rule](
        Nodes._make(map(np.stack, zip(*nodes, strict=True))),
        type(pods[0])._make(map(np.stack, zip(*pods, strict=True))),
    )
    for row, one, its in zip(together, nodes, pods, strict=True):
        np.testing.assert_allclose(row, RULES[rule](one, its), rtol=1e-9, atol=1e-9)
