"""The meters agree under any load, any scaling and any service; meters broken on purpose are caught."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlscaler_core.decision.manifest import Manifest
from rlscaler_rl.evaluation.invariants import Audit
from rlscaler_rl.simulation import ledger as ledgers
from rlscaler_rl.simulation.batch import Batch
from rlscaler_rl.simulation.cluster import ROUTERS
from rlscaler_rl.simulation.episode import run
from rlscaler_rl.simulation.ledger import LedgerError
from rlscaler_rl.simulation.levels import LEVELS, LevelName
from rlscaler_rl.simulation.randomisation import randomised
from rlscaler_rl.simulation.scenario import nominal

ROWS = 8
SETTINGS = settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])


class Erratic:
    """A contender that asks for anything at all."""

    def reset(self, params: Any) -> None:
        self.n = len(params)

    def __call__(self, params: Any, state: Any, samples: Any, rng: np.random.Generator) -> tuple[Any, Any]:
        return rng.integers(-3, 30, (self.n, 2)), rng.integers(0, 3, self.n)


class ErraticActor:
    """An actor whose answers are noise."""

    def __init__(self, seed: int, residual: bool) -> None:
        self.manifest = Manifest(name="erratic", stack_size=2, residual=residual)
        self.rng = np.random.default_rng(seed)

    def probabilities(self, stacked: Any) -> Any:
        return self.rng.random((len(stacked), 13)).astype(np.float32)


@SETTINGS
@given(
    seed=st.integers(0, 2**31),
    interval=st.sampled_from([15, 20, 30]),
    router=st.integers(0, len(ROUTERS) - 1),
    level=st.sampled_from(LEVELS),
)
def test_invariants_hold_for_any_contender_in_any_service(seed: int, interval: int, router: int, level: LevelName):
    scenarios = randomised(ROWS, np.random.default_rng(seed), interval, 120)
    scenarios.router[:] = router
    finished = run(scenarios, Erratic(), seed, level=level)
    audit = Audit()
    audit.add("any", finished.ledger, scenarios)
    assert not audit.reasons()
    assert (finished.result.cost > 0).all()
    assert (finished.result.late_percent >= -1e-9).all()
    assert (finished.result.late_percent <= 100 + 1e-6).all()


@SETTINGS
@given(
    seed=st.integers(0, 2**31),
    interval=st.sampled_from([15, 30]),
    residual=st.booleans(),
    level=st.sampled_from(LEVELS),
)
def test_invariants_hold_behind_the_shield(seed: int, interval: int, residual: bool, level: LevelName):
    scenarios = randomised(ROWS, np.random.default_rng(seed), interval, 120)
    run(scenarios, ErraticActor(seed, residual), level=level)


@SETTINGS
@given(seed=st.integers(0, 2**31), more=st.floats(1.0, 3.0))
def test_more_load_on_the_same_replicas_is_never_answered_better(seed: int, more: float):
    """Within what the late share of the fluid level may be off between two buckets of waiting time.

    That is 5 % of it or, where hardly anything is late, one request in a thousand.
    """
    light = randomised(ROWS, np.random.default_rng(seed), 30, 60)
    heavy = light.copy()
    heavy.arrivals = (heavy.arrivals * more).astype(np.float32)
    missed = []
    for scenarios in (light, heavy):
        batch = Batch(scenarios)
        batch.advance(60)
        ledger = ledgers.check(ledgers.read(batch.cluster), scenarios)
        missed.append(ledger.late + ledger.dropped + ledger.queued)
    assert (missed[1] >= 0.95 * missed[0] - 1e-3 * (1 + light.arrivals.sum(1))).all()


@pytest.mark.parametrize("level", LEVELS)
def test_a_run_repeats_exactly(level: LevelName):
    scenarios = nominal(["spike", "random"], [1, 2], 300)
    first, second = (run(scenarios, Erratic(), seed=7, level=level).result for _ in range(2))
    assert np.array_equal(first.j, second.j)


BROKEN = {
    "billing counts ready replicas only": ("billed", lambda ledger: ledger.billed.__isub__(ledger.pending_seconds)),
    "billing runs at half speed": ("billed", lambda ledger: ledger.billed.__imul__(0.5)),
    "lateness is not counted": ("requests in", lambda ledger: ledger.late.fill(0)),
    "drops are forgotten": ("requests in", lambda ledger: ledger.dropped.fill(0)),
    "arrivals are under-counted": ("requests in", lambda ledger: ledger.requests.__imul__(0.9)),
    "a pod vanishes": ("ready", lambda ledger: ledger.ready.__isub__(1)),
    "more replicas than allowed": ("target", lambda ledger: (ledger.target.__iadd__(50), ledger.ready.__iadd__(50))),
    "work for free": (
        "cost",
        lambda ledger: (
            ledger.billed.__imul__(0.05),
            ledger.ready_seconds.__imul__(0.05),
            ledger.pending_seconds.__imul__(0.05),
        ),
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_meter_is_caught(name: str):
    named, tamper = BROKEN[name]
    scenarios = nominal(["spike", "random"], [1, 2], 300)
    batch = Batch(scenarios)
    for second in range(0, 300, 5):
        if second == 100:
            batch.scale_unshielded(np.full((2, 2), 4), np.array([1, 1]))
        batch.advance()
    ledger = ledgers.check(ledgers.read(batch.cluster), scenarios)
    tamper(ledger)
    with pytest.raises(LedgerError, match=named):
        ledgers.check(ledger, scenarios)
