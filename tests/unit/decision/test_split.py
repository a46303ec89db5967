"""The forecast rule's split of the traffic: what is preferred, how much, and what leaves it as it was."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rlscaler_core.decision.action import one_hot, traffic_weights
from rlscaler_core.decision.decide import decide
from rlscaler_core.decision.manifest import LearnedPrices, Manifest
from rlscaler_core.decision.observation import sense
from rlscaler_core.decision.rule import BY_LOAD, Rule, RuleSettings
from rlscaler_core.decision.split import LEAST_UTILIZATION, ROOM, STEPS, by_load
from rlscaler_core.decision.tables import initial_state, make_params, make_samples
from rlscaler_core.decision.types import Decision, Placement, State
from rlscaler_rl.baselines.actors import FrozenActor

GPU, EVEN, CPU = Placement.PREFER_GPU, Placement.BALANCED, Placement.PREFER_CPU


class Preferring(FrozenActor):
    """Changes nothing but the split."""

    def __init__(self, manifest: Manifest, placement: Placement) -> None:
        super().__init__(manifest)
        self.placement = placement

    def probabilities(self, stacked):
        return one_hot(np.tile([0, 0, self.placement], (len(stacked), 1)).astype(np.int32))


def split(ready=(4, 5), rps=(20.0, 4.0), arrivals=70.0, load=70.0, placement=EVEN, preference=4.0):
    n = np.broadcast(arrivals, load, placement, preference).size
    params = make_params(n, requests_per_second=rps)
    columns = [np.broadcast_to(np.asarray(one, np.float64), n) for one in (preference, arrivals, load)]
    replicas = np.broadcast_to(np.array(ready, np.int32), (n, 2))
    chosen, factor = by_load(params, np.broadcast_to(np.int32(placement), n), columns[0], replicas, *columns[1:])
    weights = traffic_weights(replicas, params.requests_per_second, chosen, np.full((n, 2), 500, np.int32), factor)
    return chosen, factor, weights


def test_no_load_that_capacity_is_held_for_overflows_the_preferred_pool():
    draw = np.random.default_rng(1)
    preferred = 0
    for _ in range(300):
        ready, rps = draw.integers(1, 30, 2), draw.uniform(0.5, 40.0, 2)
        capacity = ready * rps
        load = draw.uniform(0.3, 1.0, 50) * capacity.sum()
        before = draw.choice(STEPS, 50)
        chosen, factor, weights = split(
            ready, rps, 0.9 * load, load, placement=draw.integers(0, 3, 50), preference=before
        )
        quick = int(rps[1] > rps[0])
        assert set(chosen) <= {EVEN, (GPU, CPU)[quick]}
        more = chosen != EVEN
        preferred += more.sum()
        rounding = 0.002 * load
        assert (weights[more, quick] / 1000 * load[more] <= capacity[quick] + rounding[more]).all()
        assert np.isin(factor, STEPS).all()
        assert (weights[more, quick] / 1000 >= capacity[quick] / capacity.sum() - 0.001).all()
    assert preferred > 1000


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"arrivals": 0.99 * LEAST_UTILIZATION * 100, "load": 60.0}, id="half of the capacity is idle"),
        pytest.param({"ready": (4, 0)}, id="no CPU replica is ready"),
        pytest.param({"ready": (0, 20)}, id="no GPU replica is ready"),
        pytest.param({"rps": (4.0, 4.0), "ready": (10, 10)}, id="both are equally quick"),
        pytest.param({"rps": (np.nan, 4.0)}, id="one capacity is not known"),
        pytest.param({"rps": (np.nan, np.nan)}, id="no capacity is known"),
        pytest.param({"load": np.nan}, id="the load is not known"),
        pytest.param({"arrivals": np.nan}, id="the arrivals are not known"),
        pytest.param({"load": 99.0}, id="both are needed in full"),
    ],
)
def test_balanced_where_nothing_is_won_or_something_is_not_known(changes: dict):
    assert split()[0].tolist() == [GPU]
    assert split(**changes)[0].tolist() == [EVEN]


def test_chance_around_a_step_moves_the_traffic_once():
    load = 80.0 + 20.0 / 3  # at which the GPU pool bears three times the share of the CPU pool and not four
    noise = np.random.default_rng(2).uniform(1 / np.sqrt(ROOM), 1.0, 200)
    placement, preference, seen = EVEN, 1.0, []
    for part in noise:
        chosen, factor, _ = split(arrivals=80.0, load=load * part, placement=placement, preference=preference)
        placement, preference = int(chosen[0]), float(factor[0])
        seen.append(preference)
    assert np.count_nonzero(np.diff(seen)) <= 1


def step(
    actor, state: State | None = None, *, tick: bool = False, split_by_load: bool = True, **sampled
) -> tuple[Decision, State]:
    params = make_params(1, requests_per_second=(20, 4), split_by_load=split_by_load)
    samples = make_samples(
        1,
        **{
            "time": 100.0,
            "arrival_rate": 60.0,
            "cpu_utilization": 60.0,
            "memory_utilization": 40.0,
            "gpu_utilization": 60.0,
            "p95_ms": 200.0,
            "spec_replicas": (4, 2),
            "ready_replicas": (4, 2),
        }
        | sampled,
    )
    state = sense(params, state or initial_state(1, actor.manifest.stack_size), samples)
    decision, _, state = decide(params, state, samples, actor, kind="floor" if tick else "action")
    return decision, state


def test_the_rule_prefers_the_quicker_pool_and_keeps_to_it_between_actions():
    decision, state = step(Rule())
    assert decision.placement.tolist() == [GPU]
    assert decision.weights[0, 0] > 1000 * 80 / 88
    written = dict.fromkeys(("spec_replicas", "ready_replicas"), decision.desired[0])
    between, after = step(Rule(), state, tick=True, time=105.0, **written)
    assert between.placement.tolist() == [GPU]
    assert after.preference.tolist() == state.preference.tolist()
    assert between.weights.tolist() == decision.weights.tolist()


def test_a_record_without_the_column_and_rules_of_a_fixed_placement_are_as_they_were():
    old, state = step(Rule(), split_by_load=False)
    assert old.placement.tolist() == [EVEN]
    assert state.preference.tolist() == [4.0]
    for placement in Placement:
        decision, state = step(Rule(RuleSettings(placement=int(placement))))
        assert decision.placement.tolist() == [placement]
        assert state.preference.tolist() == [4.0]


def test_a_network_on_the_rule_splits_as_it_says_itself():
    for residual in (True, False):
        network = FrozenActor(Manifest(name="x", residual=residual))
        wanted, _ = step(network, split_by_load=False)
        decision, state = step(network)
        assert decision.placement.tolist() == wanted.placement.tolist()
        assert decision.weights.tolist() == wanted.weights.tolist()
        assert state.preference.tolist() == [4.0]


def test_a_network_on_the_rule_that_learns_leaves_the_split_to_it_or_prefers_a_pool_itself():
    learned = LearnedPrices(late_price=0.5, caution=0.2, jump_caution=0.15)
    manifest = Manifest(name="x", residual=True, learned=learned)
    ruled, after_rule = step(Rule())
    left, after = step(FrozenActor(manifest))
    assert left.placement.tolist() == ruled.placement.tolist() == [GPU]
    assert left.weights.tolist() == ruled.weights.tolist()
    assert after.preference.tolist() == after_rule.preference.tolist()
    own, after = step(Preferring(manifest, CPU))
    assert own.placement.tolist() == [CPU]
    assert after.preference.tolist() == [4.0]


@pytest.mark.parametrize("sampled", [{"paused": True}, {"arrival_rate": np.nan}])
def test_what_is_paused_or_not_known_moves_no_traffic(sampled: dict):
    _, state = step(Rule())
    state = replace(state, preference=np.full(1, 2.0))
    decision, after = step(Rule(), state, **sampled)
    assert decision.placement.tolist() == [GPU]
    assert after.preference.tolist() == [2.0]


def test_settings_of_rows_of_both_kinds_do_not_touch():
    params = make_params(3, requests_per_second=(20, 4), split_by_load=True)
    samples = make_samples(
        3,
        time=100.0,
        arrival_rate=60.0,
        cpu_utilization=60.0,
        memory_utilization=40.0,
        gpu_utilization=60.0,
        p95_ms=200.0,
        spec_replicas=(4, 2),
        ready_replicas=(4, 2),
    )
    state = sense(params, initial_state(3, 1), samples)
    rule = Rule(RuleSettings(placement=np.array([BY_LOAD, int(CPU), BY_LOAD])))
    decision, _, _ = decide(params, state, samples, rule)
    alone, _ = step(Rule())
    assert decision.placement.tolist() == [GPU, CPU, GPU]
    assert decision.weights[0].tolist() == decision.weights[2].tolist() == alone.weights[0].tolist()
