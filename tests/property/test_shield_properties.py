"""What the shield promises for any input: bounds, no fall on unknown data, purity, rows that do not touch."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import reduce
from operator import or_

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlscaler_core.decision.belief import believed
from rlscaler_core.decision.decide import Kind, Proposal, decide
from rlscaler_core.decision.guards import STAGES, without
from rlscaler_core.decision.observation import ObservationContract, observe, sense
from rlscaler_core.decision.rule import DEFAULT_SETTINGS, Rule
from rlscaler_core.decision.tables import initial_state, make_params, make_samples
from rlscaler_core.decision.types import SIGNALS, Decision, FallbackBehavior, Flag, Params, Rows, Samples, State

CONTRACT = ObservationContract(stack_size=2)
ROWS, STEPS = 8192, 124
SENSED = ("arrival_rate", "cpu_utilization", "memory_utilization", "gpu_utilization", "p95_ms")


def random_params(rng: np.random.Generator, n: int) -> Params:
    """Anything the custom resource lets through, a quarter of it with a `behavior`."""
    present = rng.random((n, 2)) > 0.1
    present[~present.any(axis=1)] = True
    lowest = rng.integers(0, 4, (n, 2))
    with_behavior = rng.random(n) < 0.25
    rules = np.stack(
        [rng.integers(0, 3, (n, 2, 4)), rng.integers(0, 120, (n, 2, 4)), rng.integers(1, 300, (n, 2, 4))], axis=-1
    )
    return make_params(
        n,
        present=present,
        min_replicas=lowest,
        max_replicas=lowest + rng.integers(0, 30, (n, 2)),
        step_size=rng.integers(1, 4, (n, 2)),
        requests_per_second=np.where(rng.random((n, 2)) < 0.1, np.nan, rng.uniform(0.1, 40, (n, 2))),
        cold_start_seconds=rng.choice([5.0, 8.0, 45.0], (n, 2)),
        start_seconds=rng.choice([0.0, 120.0, np.nan], (n, 2)),
        reactive_floor=rng.random(n) > 0.2,
        ceiling=rng.random(n) > 0.2,
        ceiling_seconds=rng.choice([60.0, 150.0, 600.0], n),
        pending_seconds=rng.choice([16.0, 90.0, np.inf], (n, 2)),
        budget_per_hour=np.where(rng.random(n) < 0.3, rng.uniform(1, 100, n), np.inf),
        fallback=rng.integers(0, len(FallbackBehavior), n),
        fallback_replicas=rng.integers(0, 40, (n, 2)),
        failure_threshold=rng.integers(1, 4, n),
        has_behavior=with_behavior,
        rules=rules * with_behavior[:, None, None, None],
        stabilization_seconds=rng.integers(0, 200, (n, 2)) * with_behavior[:, None],
        select_policy=rng.integers(0, 3, (n, 2)),
    )


def random_samples(rng: np.random.Generator, params: Params, time: float, spec: np.ndarray) -> Samples:
    """Half of the rows are fully known, in the others anything may be missing, stale or absurd."""
    n = len(params)
    broken = rng.random(n) < 0.5
    ages = np.where(
        broken[:, None] & (rng.random((n, len(SIGNALS))) < 0.2), rng.choice([61.0, 900.0, np.inf, np.nan]), 3
    )
    columns = {name: rng.uniform(0, 120, n) for name in SENSED}
    for values in columns.values():
        absurd = broken & (rng.random(n) < 0.15)
        values[absurd] = rng.choice([np.nan, np.inf, -np.inf, -1.0, 1e12], absurd.sum())
    columns["arrival_rate"][rng.random(n) < 0.1] = 0.0
    return make_samples(
        n,
        time=time,
        age_seconds=ages,
        spec_replicas=spec,
        ready_replicas=np.minimum(rng.integers(0, 40, (n, 2)), spec),
        pending_seconds=np.where(rng.random((n, 2)) < 0.2, rng.uniform(0, 200, (n, 2)), 0.0),
        stuck_replicas=rng.integers(-1, 8, (n, 2)),
        paused=rng.random(n) < 0.1,
        paused_replicas=rng.integers(-1, 35, (n, 2)),
        paused_scale_down=rng.random(n) < 0.1,
        **columns,
    )


def step(
    rng: np.random.Generator, params: Params, state: State, samples: Samples, residual: bool
) -> tuple[Decision, State, np.ndarray, np.ndarray]:
    """One action interval with a random actor: the decision, the state, the required unknown, `static` in force."""
    n = len(params)
    state = sense(params, state, samples)
    observation, state = observe(params, state, samples, CONTRACT)
    action = np.stack([rng.integers(-2, 3, n), rng.integers(-2, 3, n), rng.integers(0, 3, n)], axis=1).astype(np.int32)
    outside = rng.random(n) < 0.05
    usable, rule = rng.random(n) > 0.1, replace(DEFAULT_SETTINGS, lasting=rng.random() < 0.8) if residual else None
    proposal = Proposal(observation, action, rule, usable=usable, outside=outside)
    decision, _, state = decide(params, state, samples, proposal)
    static = (params.fallback == FallbackBehavior.STATIC) & ((decision.flags & Flag.FALLBACK) > 0)
    return decision, state, observation.required_unknown, static


def check(
    params: Params, before: State, samples: Samples, decision: Decision, unknown: np.ndarray, static: np.ndarray
) -> None:
    """Within the limits always; never below the base on unknown data, but by the user's own edit; no increase over
    the budget.
    """
    assert (decision.desired >= params.min_replicas).all()
    assert (decision.desired <= params.max_replicas).all()
    assert (decision.weights.sum(axis=1) == 1000).all()
    fell = decision.desired < np.minimum(decision.base, params.max_replicas)
    by_pause = samples.paused[:, None] & (samples.paused_replicas >= 0)
    by_budget = (params.budget_per_hour < before.budget_kept)[:, None]
    assert not (fell & unknown[:, None] & ~static[:, None] & ~by_pause & ~by_budget).any()
    assert (decision.trail[:, -1] == decision.desired).all()
    later = reduce(or_, (guard.changes | guard.holds for guard in without("unknown")))
    untouched = (decision.flags & later) == 0
    assert (decision.desired[untouched] == decision.trail[untouched, STAGES.index("unknown")]).all()
    bounded = np.clip(decision.base, params.min_replicas, params.max_replicas) * params.present
    running = (bounded * params.cost_per_hour).sum(axis=1)
    spent = (decision.desired * params.cost_per_hour).sum(axis=1)
    held = samples.paused | samples.paused_scale_down
    assert (held | (spent <= np.maximum(params.budget_per_hour, running) * (1 + 1e-6))).all()


class Witness:
    """Remembers every arrival rate that was known, to say what the ceiling may take; its own bookkeeping is plain."""

    def __init__(self) -> None:
        self.taken, self.rate = np.full((ROWS, STEPS), np.nan), np.full((ROWS, STEPS), np.nan)
        self.lowered = 0

    def see(self, index: int, params: Params, samples: Samples) -> None:
        age = samples.age_seconds[:, 0]
        known = np.isfinite(samples.arrival_rate) & (samples.arrival_rate >= 0) & (age <= params.max_age_seconds)
        self.taken[known, index] = (samples.time - age)[known]
        self.rate[known, index] = samples.arrival_rate[known]

    def check(self, params: Params, samples: Samples, decision: Decision, unknown: np.ndarray, acted: bool) -> None:
        """What the ceiling took, the highest rate of a gapless stretch did not need, and what is left is ready."""
        left, before = (decision.trail[:, STAGES.index(name)] for name in ("ceiling", "pending"))
        assert (left <= before).all()
        rows = np.flatnonzero((left < before).any(axis=1))
        self.lowered += len(rows)
        assert acted or not rows.size
        open_capacity = (np.isnan(params.requests_per_second) & params.present).any(axis=1)
        assert not (unknown | ~params.ceiling | open_capacity)[rows].any()
        assert (left[rows] >= np.minimum(params.min_replicas, before)[rows]).all()
        unit = np.nan_to_num(params.requests_per_second) * params.target_utilization * params.present
        for row in rows.tolist():
            begin = samples.time[row] - params.ceiling_seconds[row]
            times = self.taken[row][np.isfinite(self.taken[row])]
            inside = np.concatenate([times[times <= begin][-1:], times[times > begin]])
            assert inside[0] <= begin
            assert (np.diff(inside) <= params.max_age_seconds[row]).all()
            needed = self.rate[row][self.taken[row] > begin].max()
            serving = np.minimum(left[row], samples.ready_replicas[row])
            assert (serving * unit[row]).sum() >= needed * (1 - 1e-6)


@pytest.mark.slow
def test_a_million_steps_stay_in_bounds_and_never_fall_on_unknown_data() -> None:
    rng = np.random.default_rng(20)
    params = random_params(rng, ROWS)
    state = initial_state(ROWS, CONTRACT.stack_size)
    spec = rng.integers(0, 35, (ROWS, 2)) * params.present
    witness = Witness()
    for index in range(STEPS):
        samples = random_samples(rng, params, 1e9 + 15.0 * index, spec)
        before = state
        witness.see(index, params, samples)
        if index % 4 == 3:
            decision, _, state = decide(params, sense(params, state, samples), samples, kind="floor")
            unknown, static = np.ones(ROWS, bool), np.zeros(ROWS, bool)
        else:
            decision, state, unknown, static = step(rng, params, state, samples, residual=index % 8 == 0)
        check(params, before, samples, decision, unknown, static)
        witness.check(believed(params, state), samples, decision, unknown, acted=index % 4 != 3)
        written = rng.random((ROWS, 1))
        by_hand = rng.integers(0, 35, (ROWS, 2)) * params.present
        spec = np.where(written < 0.8, decision.desired, np.where(written < 0.95, spec, by_hand))
        edited = rng.random(ROWS) < 0.01
        params.put(edited, random_params(rng, int(edited.sum())))
        spec *= params.present
    assert ROWS * STEPS >= 1_000_000
    assert witness.lowered > 10_000


def snapshot(*tables: Rows) -> list[np.ndarray]:
    return [getattr(table, field.name).copy() for table in tables for field in fields(table)]


def assert_equal(left: Rows, right: Rows) -> None:
    for field in fields(left):
        np.testing.assert_array_equal(getattr(left, field.name), getattr(right, field.name), err_msg=field.name)


@pytest.mark.parametrize("kind", ["action", "floor"])
def test_without_an_account_of_the_guards_the_same_is_decided(kind: Kind) -> None:
    rng = np.random.default_rng(5)
    params, state = random_params(rng, 200), initial_state(200, Rule.manifest.stack_size)
    samples = random_samples(rng, params, 1e9, rng.integers(0, 35, (200, 2)) * params.present)
    state = sense(params, state, samples)
    explained, _, after = decide(params, state, samples, Rule(), kind=kind)
    bare, _, same = decide(params, state, samples, Rule(), kind=kind, explain=False)
    assert bare.trail.shape == (200, 0, 2)
    assert not bare.flags.any()
    assert_equal(same, after)
    for name in ("action", "base", "desired", "placement", "weights"):
        np.testing.assert_array_equal(getattr(bare, name), getattr(explained, name), err_msg=name)


@pytest.mark.slow
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), residual=st.booleans())
def test_nothing_that_is_passed_in_changes(seed: int, residual: bool) -> None:
    rng = np.random.default_rng(seed)
    params, state = random_params(rng, 64), initial_state(64, CONTRACT.stack_size)
    spec = rng.integers(0, 35, (64, 2)) * params.present
    for index in range(12):
        samples = random_samples(rng, params, 1e9 + 10.0 * index, spec)
        before = snapshot(params, state, samples)
        _, _, ticked = decide(params, sense(params, state, samples), samples, kind="floor")
        decision, following, _, _ = step(rng, params, state, samples, residual)
        for old, now in zip(before, snapshot(params, state, samples), strict=True):
            np.testing.assert_array_equal(old, now)
        state = replace(following, weights=ticked.weights)
        spec = decision.desired


@pytest.mark.slow
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), residual=st.booleans())
def test_a_row_does_not_depend_on_the_rows_beside_it(seed: int, residual: bool) -> None:
    n = 12
    rng, rule = np.random.default_rng(seed), replace(DEFAULT_SETTINGS, lasting=seed % 2 == 0) if residual else None
    params = random_params(rng, n)
    together = initial_state(n, CONTRACT.stack_size)
    alone = [together.take(slice(row, row + 1)) for row in range(n)]
    spec = rng.integers(0, 35, (n, 2)) * params.present
    for index in range(10):
        samples = random_samples(rng, params, 1e9 + 10.0 * index, spec)
        action = np.stack([rng.integers(-2, 3, n), rng.integers(-2, 3, n), rng.integers(0, 3, n)], axis=1)
        usable = rng.random(n) > 0.2

        def one_interval(state: State, rows: slice) -> tuple[Decision, State]:
            own, seen = params.take(rows), samples.take(rows)  # noqa: B023
            state = sense(own, state, seen)
            observation, state = observe(own, state, seen, CONTRACT)
            proposal = Proposal(observation, action[rows], rule, usable=usable[rows])  # noqa: B023
            decision, _, state = decide(own, state, seen, proposal)
            return decision, state

        decision, together = one_interval(together, slice(None))
        singles = [one_interval(alone[row], slice(row, row + 1)) for row in range(n)]
        assert_equal(decision, Decision.concat([single for single, _ in singles]))
        alone = [state for _, state in singles]
        assert_equal(together, State.concat(alone))
        spec = np.where(rng.random((n, 1)) < 0.8, decision.desired, spec)


@pytest.mark.parametrize("fallback", list(FallbackBehavior))
def test_only_static_may_lower_on_unknown_data(fallback: FallbackBehavior) -> None:
    params = make_params(1, requests_per_second=(20, 4), fallback=fallback, fallback_replicas=1, failure_threshold=1)
    samples = make_samples(1, spec_replicas=5, ready_replicas=5, cpu_utilization=1.0, gpu_utilization=1.0)
    observation, state = observe(params, initial_state(1, CONTRACT.stack_size), samples, CONTRACT)
    action = np.array([[-2, -2, 0]], np.int32)
    decision, _, _ = decide(params, state, samples, Proposal(observation, action))
    lowered = fallback == FallbackBehavior.STATIC
    assert decision.desired.tolist() == [[1, 1] if lowered else [5, 5]]
    assert decision.flags[0] & Flag.FALLBACK
