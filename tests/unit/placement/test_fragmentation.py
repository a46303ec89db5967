"""Fragmentation of GPUs by hand, and the compiled replay beside the functions that score on a cluster."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import pytest

from rlscaler_core.placement.fragmentation import (
    TypicalPods,
    descent,
    fragmentation,
    published_score,
    typical,
    without_cores,
)
from rlscaler_core.placement.mask import fits
from rlscaler_core.placement.policies import choose
from rlscaler_core.placement.rules import Rule, fragmentation_and_cores_rule, fragmentation_rule
from rlscaler_core.placement.types import Nodes, Pods, empty_nodes
from rlscaler_rl.placement.openb import ALL_NODES, DIGESTS, POD_LIST, OpenbError, inflated, load, make
from rlscaler_rl.placement.published import Scheduler, Ties, fall_of, fragmentation_of, replay

HALVES = TypicalPods(np.array([1000.0]), np.array([1.0]), np.array([500.0]), np.array([0]), np.array([1.0]))
HALF = np.array([0.5, 0.5])


def drawn_pods(rng: np.random.Generator, count: int) -> Pods:
    gpus = rng.choice([0.0, 1.0, 1.0, 1.0, 2.0], count)
    milli = np.where(gpus == 0, 0.0, np.where(gpus > 1, 1000.0, rng.choice([200.0, 500.0, 1000.0], count)))
    nothing = np.full(count, np.nan)
    requests = np.stack([rng.integers(1, 9, count) * 1000.0, rng.integers(1, 9, count) * 1024.0], -1)
    models = np.where(rng.random(count) < 0.2, 1, 0)
    return Pods(requests, gpus, milli, models, nothing, nothing, nothing)


def small(rng: np.random.Generator, count: int = 12) -> Nodes:
    gpus = rng.choice([1.0, 2.0, 4.0], count)
    nodes = empty_nodes(np.full((count, 2), 64_000.0), gpus=gpus, pod_limit=np.inf)
    return nodes._replace(gpu_model=1 << rng.integers(0, 2, count))


def row(pods: Pods, index: int) -> Pods:
    return Pods._make(column[index] for column in pods)


def test_fragmentation_by_hand() -> None:
    cpu = np.array([4000.0, 4000.0, 4000.0, 500.0])
    free = np.array([[1000.0, 0], [400, 400], [400, 600], [1000, 0]])
    # All usable; both halves too small; 400 of 1000 too small; not enough CPU for any.
    assert fragmentation(cpu, free, np.ones(4, np.int64), HALVES).tolist() == [0.0, 800.0, 400.0, 1000.0]


def test_free_gpus_beyond_what_the_free_cores_are_enough_for() -> None:
    """A pod asks for one core and half a GPU, another for three cores and none: eight cores a GPU."""
    kinds = TypicalPods(np.array([1000.0, 3000]), np.array([1.0, 0]), np.array([500.0, 0]), np.zeros(2, int), HALF)
    found = without_cores(np.array([16_000.0, 4000, 0]), np.array([2000.0, 2000, 1000]), kinds)
    assert found.tolist() == [0.0, 1500.0, 1000.0]
    without_gpus = kinds._replace(gpus=np.zeros(2))
    assert without_cores(np.zeros(1), np.ones(1), without_gpus).tolist() == [0.0], "no pod asks for a GPU"


def test_cores_are_kept_for_free_gpus() -> None:
    nodes = empty_nodes(np.full((2, 2), 16_000.0), gpus=np.array([2.0, 2]))
    nodes.gpu_free[0] = 0.0
    pods = drawn_pods(np.random.default_rng(0), 1)._replace(gpus=np.zeros(1), gpu_milli=np.zeros(1))
    alone = row(pods._replace(requests=np.full((1, 2), 8000.0)), 0)
    kinds = HALVES._replace(cpu_milli=np.array([4000.0]))
    assert fragmentation_and_cores_rule(kinds)(nodes, alone).argmax() == 0, "the GPUs of the other need its cores"


def test_descent_takes_the_gpu_that_leaves_no_rest() -> None:
    nodes = empty_nodes(np.full((1, 2), 64_000.0), gpus=np.array([2.0]))
    nodes.gpu_free[0, 0] = 700.0
    pods = drawn_pods(np.random.default_rng(0), 1)._replace(gpus=np.array([1.0]), gpu_milli=np.array([200.0]))
    fall, gpu = descent(nodes, row(pods, 0), HALVES)
    assert gpu[0] == 0, "700 - 200 is a half that can be used"
    assert fall[0] == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_descent_is_what_trying_every_gpu_of_every_node_gives(seed: int) -> None:
    """Several clusters at once, each with a pod of its own, beside the compiled function that looks at one node."""
    rng = np.random.default_rng(seed)
    clusters, count = 5, 12
    pods = drawn_pods(rng, clusters)
    gpus = rng.choice([0.0, 1, 2, 4, 8], (clusters, count))
    nodes = empty_nodes(np.full((clusters, count, 2), 64_000.0), gpus=gpus)
    nodes = nodes._replace(gpu_model=np.where(gpus > 0, 1 << rng.integers(0, 2, gpus.shape), 0))
    nodes.gpu_free[:] *= rng.choice([0.0, 0.2, 0.5, 0.7, 1, 1, 1], nodes.gpu_free.shape)
    nodes.requested[..., 0] = rng.integers(0, 60, gpus.shape) * 1000.0
    kinds = typical(drawn_pods(rng, 40))
    table = np.column_stack(kinds)
    among = fits(nodes, pods)
    found, chosen = descent(nodes, pods, kinds)
    cpu = (nodes.allocatable - nodes.requested)[..., 0]
    for at in zip(*np.nonzero(among), strict=True):
        node = (nodes.gpu_free[at], int(gpus[at]), int(nodes.gpu_model[at]), table)
        of = at[0]
        now = fragmentation_of(cpu[at], *node)
        fall, gpu = fall_of(cpu[at] - pods.requests[of, 0], *node, pods.gpus[of], pods.gpu_milli[of], now, np.zeros(8))
        assert found[at] == pytest.approx(fall, abs=1e-9)
        assert chosen[at] == gpu
    assert among.sum() > 10
    alone = [descent(Nodes._make(c[i] for c in nodes), row(pods, i), kinds)[0] for i in range(clusters)]
    assert (np.stack(alone) == found).all(), "the same numbers for one cluster and for many"


def test_typical_pods_are_the_most_frequent_ones() -> None:
    pods = drawn_pods(np.random.default_rng(1), 400)
    kinds = typical(pods, share=0.5)
    assert kinds.weight.sum() == pytest.approx(1.0)
    assert (np.diff(kinds.weight) <= 0).all()
    assert len(typical(pods, share=1.0).weight) > len(kinds.weight)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("scheduler", "rule_of"),
    [(Scheduler.FGD_BEST_FIT, fragmentation_rule), (Scheduler.FGD_CORES, fragmentation_and_cores_rule)],
)
def test_the_replay_places_every_pod_where_the_rule_would(
    scheduler: Scheduler, rule_of: Callable[[TypicalPods], Rule], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    nodes, pods = small(rng), drawn_pods(rng, 60)
    kinds = typical(pods)
    order = np.arange(60)
    found = replay(nodes, pods, order, kinds, scheduler, Ties.BY_NAME, seed)
    rule = rule_of(kinds)
    checked = 0
    for index in range(60):
        one = row(pods, index)
        among, scores = fits(nodes, one), rule(nodes, one)
        at = int(found.placed[index])
        if not among.any():
            assert at == -1
            continue
        checked += 1
        assert among[at]
        assert scores[at] == pytest.approx(scores[among].max(), rel=1e-12, abs=1e-9)
        _place(nodes, one, at, kinds)
    assert checked > 20
    assert -1 in found.placed, "the cluster has to be full at the end"
    asked = (pods.gpus * pods.gpu_milli)[found.placed >= 0].sum()
    assert found.allocated == pytest.approx(100 * asked / (1000 * nodes.gpus.sum()))


def _place(nodes: Nodes, one: Pods, at: int, kinds: TypicalPods) -> None:
    _, gpu = descent(nodes, one, kinds)
    if one.gpus == 1 and one.gpu_milli < 1000:
        nodes.gpu_free[at, gpu[at]] -= one.gpu_milli
    else:
        whole = np.flatnonzero(nodes.gpu_free[at] == 1000)[: int(one.gpus)]
        nodes.gpu_free[at, whole] = 0.0
    nodes.requested[at] += one.requests


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", Scheduler)
def test_no_scheduler_gives_more_than_there_is(scheduler: Scheduler) -> None:
    rng = np.random.default_rng(9)
    nodes, pods = small(rng), drawn_pods(rng, 200)
    order = inflated(pods, nodes.gpus.sum(), 3.0, rng)
    for ties in Ties:
        found = replay(nodes, pods, order, typical(pods), scheduler, ties, 0)
        used = np.zeros(len(nodes.gpus))
        cpu = np.zeros(len(nodes.gpus))
        placed = found.placed >= 0
        np.add.at(used, found.placed[placed], (pods.gpus * pods.gpu_milli)[order][placed])
        np.add.at(cpu, found.placed[placed], pods.requests[order, 0][placed])
        assert (used <= 1000 * nodes.gpus).all()
        assert (cpu <= nodes.allocatable[:, 0]).all()
        assert 50 < found.allocated <= 100
        again = replay(nodes, pods, order, typical(pods), scheduler, ties, 0)
        assert (again.placed == found.placed).all(), "the same seed, the same placements"


def test_equal_scores_are_equal_choices() -> None:
    nodes = small(np.random.default_rng(2))
    pods = drawn_pods(np.random.default_rng(2), 1)
    among = fits(nodes, row(pods, 0))
    scores = published_score(descent(nodes, row(pods, 0), HALVES)[0])
    assert among[choose(scores, nodes, row(pods, 0), among)]


def test_inflation_asks_for_all_pods_once_and_stops_at_the_ratio() -> None:
    pods = drawn_pods(np.random.default_rng(3), 50)
    order = inflated(pods, 100.0, 1.3, np.random.default_rng(3))
    asked = (pods.gpus * pods.gpu_milli)[order].sum()
    assert set(order) == set(range(50))
    assert 1.2 * 100_000 < asked <= 1.3 * 100_000


def test_pods_without_a_wish_may_go_to_any_node_where_some_nodes_have_no_gpu(tmp_path, monkeypatch) -> None:
    (tmp_path / ALL_NODES).write_text("sn,cpu_milli,memory_mib,gpu,model\na,1000,100,0,\nb,1000,100,2,V100\n")
    (tmp_path / POD_LIST).write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np,1,1,0,0,\nq,1,1,1,500,\nr,1,1,1,500,V100|T4\n"
    )
    for name in (ALL_NODES, POD_LIST):
        monkeypatch.setitem(DIGESTS, name, hashlib.sha256((tmp_path / name).read_bytes()).hexdigest())
    nodes, pods = load(folder=tmp_path, node_list=ALL_NODES)
    assert (nodes.gpu_model > 0).tolist() == [False, True]
    fitting = [fits(nodes, row(pods, index)).tolist() for index in range(3)]
    assert fitting == [[True, True], [False, True], [False, True]]


def test_files_are_checked(tmp_path) -> None:
    with pytest.raises(OpenbError, match=r"openb_node_list_gpu_node\.csv: is not there; download it from https"):
        load(folder=tmp_path)
    other = tmp_path / "openb_pod_list_default.csv"
    other.write_text("name\n")
    with pytest.raises(OpenbError, match=f"not {DIGESTS[other.name]}; download it again"):
        make([other], tmp_path / "to")
    with pytest.raises(OpenbError, match="none of openb_node_list_gpu_node"):
        make([tmp_path / "pods.csv"], tmp_path / "to")
    assert not (tmp_path / "to").exists()
