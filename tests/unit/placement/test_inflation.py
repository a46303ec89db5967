"""What a network is shown in the replay of openb beside what it is shown on a cluster, and the search for one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rlscaler_core.placement.actor import PlacementActor
from rlscaler_core.placement.features import columns, features
from rlscaler_core.placement.fragmentation import typical
from rlscaler_core.placement.mask import fits
from rlscaler_core.placement.policies import Policy
from rlscaler_core.placement.types import Nodes, Pods, empty_nodes
from rlscaler_rl.placement import published
from rlscaler_rl.placement.evolution import Evolution
from rlscaler_rl.placement.inflation import CORES_WEIGHT_OF, WIDTH, begin, forward, look, put, replay, terminal
from rlscaler_rl.placement.network import DeepSets
from rlscaler_rl.placement.openb import Cluster
from rlscaler_rl.placement.openb_search import Options, draw, halves, search, weights
from rlscaler_rl.placement.published import Scheduler, Ties

RULE = "fragmentation-and-cores"


def drawn(seed: int, nodes: int = 14, pods: int = 90) -> Cluster:
    rng = np.random.default_rng(seed)
    count = rng.choice([1.0, 2.0, 4.0], nodes)
    made = empty_nodes(np.stack([rng.choice([16e3, 64e3], nodes), np.full(nodes, 64e3)], -1), gpus=count, pod_limit=1e9)
    asked = rng.choice([0.0, 1.0, 1.0, 1.0, 2.0], pods)
    milli = np.where(asked == 0, 0.0, np.where(asked > 1, 1000.0, rng.choice([200.0, 500.0, 1000.0], pods)))
    nothing = np.full(pods, np.nan)
    requests = np.stack([rng.integers(1, 9, pods) * 1000.0, rng.integers(1, 9, pods) * 1024.0], -1)
    models = np.where(rng.random(pods) < 0.2, 1, 0)
    return Cluster(
        made._replace(gpu_model=1 << rng.integers(0, 2, nodes)),
        Pods(requests, asked, milli, models, nothing, nothing, nothing),
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rule", CORES_WEIGHT_OF)
def test_a_network_sees_what_it_would_see_on_a_cluster(rule: str, seed: int) -> None:
    nodes, pods = drawn(seed)
    kinds, order = typical(pods), np.arange(len(pods.gpus))
    state, arrivals = begin(nodes, pods, order, kinds, rule)
    seen, among = np.zeros((len(nodes.gpus), WIDTH), np.float32), np.zeros(len(nodes.gpus), bool)
    rng, refused = np.random.default_rng(seed), 0
    for index in order:
        one = Pods._make(column[index] for column in pods)
        now = Nodes._make(column.copy() for column in nodes)._replace(
            requested=state.allocatable - state.free,
            gpu_free=state.gpu.copy(),
            pods=state.pods.copy(),
            empty_in_s=np.where(state.pods > 0, np.nan, 0.0),
        )
        look(state, arrivals, index, seen, among)
        assert (among == fits(now, one)).all()
        there = features(Policy.GPU, now, one, among, kinds, rule)
        for at, name in enumerate(columns(Policy.GPU)):
            assert seen[:, at] == pytest.approx(there[:, at], abs=1e-5), (name, index)
        refused += not among.any()
        if among.any():
            put(state, arrivals, index, rng.choice(np.flatnonzero(among)))
    assert refused > 0, "the cluster has to be full at the end"


@pytest.mark.slow
@pytest.mark.parametrize("ties", Ties)
def test_a_network_that_has_learned_nothing_places_as_the_rule(ties: Ties) -> None:
    nodes, pods = drawn(7)
    kinds, order = typical(pods), np.arange(len(pods.gpus))
    ruled = published.replay(nodes, pods, order, kinds, Scheduler.FGD_CORES, ties, 3)
    played = replay(nodes, pods, order, kinds, RULE, lambda seen: seen[:, 0].astype(float), ties, 3)
    if ties is Ties.BY_NAME:
        assert (played.placed == ruled.placed).all()
        assert played.allocated == pytest.approx(ruled.allocated)
        assert played.curve == pytest.approx(ruled.curve, nan_ok=True)
    again = replay(nodes, pods, order, kinds, RULE, lambda seen: seen[:, 0].astype(float), ties, 3)
    assert (again.placed == played.placed).all()


def test_equal_nodes_are_drawn_from_where_ties_are_at_random() -> None:
    nodes, pods = drawn(7)
    kinds, order = typical(pods), np.arange(20)
    equal = [
        replay(nodes, pods, order, kinds, RULE, lambda seen: np.zeros(len(seen)), ties, 3).placed.tolist()
        for ties in Ties
    ]
    assert equal[0] != equal[1]


@pytest.mark.slow
def test_the_compiled_network_gives_what_the_network_gives() -> None:
    torch.manual_seed(0)
    net = DeepSets(WIDTH, 8, dueling=False, by_rule=0.7)
    torch.nn.init.normal_(net.advantage.weight)
    seen = np.random.default_rng(0).random((9, WIDTH)).astype(np.float32)
    expected = net(torch.from_numpy(seen)[None])[0].detach().numpy()
    expected = expected - net.advantage.bias.detach().numpy()
    assert forward(seen, weights(net)) == pytest.approx(expected, abs=1e-4)


def test_halves_have_nothing_in_common() -> None:
    cluster = drawn(1, 15, 91)
    marked = cluster._replace(
        nodes=cluster.nodes._replace(latency_ms=np.arange(15.0)), pods=cluster.pods._replace(lifetime_s=np.arange(91.0))
    )
    ours, others = halves(marked)
    assert sorted([*ours.nodes.latency_ms, *others.nodes.latency_ms]) == list(range(15))
    assert sorted([*ours.pods.lifetime_s, *others.pods.lifetime_s]) == list(range(91))
    assert (len(ours.nodes.gpus), len(ours.pods.gpus)) == (7, 45)


def test_an_episode_asks_for_the_ratio() -> None:
    cluster = drawn(2, 40, 300)
    nodes, order = draw(cluster, (10, 12), 1.3, np.random.default_rng(0))
    assert 10 <= len(nodes.gpus) <= 12
    asked = (cluster.pods.gpus * cluster.pods.gpu_milli)[order].sum() / (1000 * nodes.gpus.sum())
    assert 1.15 < asked <= 1.3


def in_order(nodes: Nodes, seed: int) -> Nodes:
    """The nodes in such an order that a replay of this seed has them in the order they are in now."""
    back = np.argsort(np.random.default_rng(seed).permutation(len(nodes.gpus)))
    return Nodes._make(column[back] for column in nodes)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_an_untrained_network_makes_the_same_placements_as_the_rule(seed: int) -> None:
    nodes, pods = drawn(seed)
    kinds, order = typical(pods), np.arange(len(pods.gpus))
    net = weights(DeepSets(WIDTH, 4, dueling=False))
    ruled = published.replay(in_order(nodes, seed), pods, order, kinds, Scheduler.FGD_CORES, Ties.BY_NAME, seed)
    played = replay(
        in_order(nodes, seed), pods, order, kinds, RULE, lambda seen: forward(seen, net), Ties.BY_NAME, seed
    )
    assert played.placed.tolist() == ruled.placed.tolist()
    assert 0 < (ruled.placed < 0).sum() < len(order), "the cluster has to be full at the end"
    state, arrivals = begin(nodes, pods, order, kinds, RULE)
    assert 100 * terminal(state, arrivals, net) == pytest.approx(ruled.allocated, abs=1e-9)


@pytest.mark.slow
def test_a_search_begins_as_the_rule_and_keeps_the_best(tmp_path) -> None:
    cluster = drawn(3, 40, 400)
    wide = Evolution(0, 6, pairs=4, hidden=4, width=1.0, learning_rate=1.0, look_every=2)
    options = Options(wide, rule="fragmentation", nodes=(8, 10), looked_at=4)
    found = search(cluster, options)
    found.save(tmp_path)
    actor = PlacementActor.load(tmp_path, Policy.GPU)
    assert (actor.manifest.rule, actor.manifest.trained_nodes) == ("fragmentation", (8, 10))
    scores = [score for _, score in found.run.curve]
    assert len(scores) == 4
    assert max(scores) > max(scores[0], scores[-1]) > min(scores), "the best is not the first, the last or the worst"
    ours = halves(cluster)[0]
    kinds, drawing = typical(ours.pods), np.random.default_rng(10**9)
    validation = [draw(ours, (10, 10), 1.3, drawing) for _ in range(4)]

    def mean(play) -> float:
        return float(np.mean([play(in_order(nodes, 0), order).allocated for nodes, order in validation])) / 100

    def ruled(nodes: Nodes, order: np.ndarray):
        return published.replay(nodes, ours.pods, order, kinds, Scheduler.FGD_BEST_FIT, Ties.BY_NAME, 0)

    def kept(nodes: Nodes, order: np.ndarray):
        return replay(nodes, ours.pods, order, kinds, actor.manifest.rule, actor.values, Ties.BY_NAME, 0)

    assert mean(ruled) == pytest.approx(scores[0], abs=1e-9)
    assert mean(kept) == pytest.approx(max(scores), abs=1e-9)
    assert search(cluster, options).run.curve == found.run.curve, "the same seed, the same search"
