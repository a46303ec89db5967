"""Is what Shadow says would have happened what happens? The simulator's request level plays both."""

import numpy as np
import pytest

from rlscaler_core.decision.decide import decide
from rlscaler_core.decision.observation import sense
from rlscaler_core.decision.rule import Rule
from rlscaler_core.decision.tables import initial_state
from rlscaler_operator.shadow.evidence import LATE_TOLERANCE_POINTS, LATE_TOLERANCE_SHARE
from rlscaler_operator.shadow.simulation import (
    ShadowSimulation,
    advance_meters,
    hpa_params,
    new_simulation,
    scale_virtual,
)
from rlscaler_rl.simulation.batch import SENSE_SECONDS, Batch
from rlscaler_rl.simulation.ledger import read
from rlscaler_rl.simulation.scenario import nominal

SECONDS, N = 1800, 6


def play(scenarios, actor, watch=None):
    """Late share (%) and cost of a service that `actor` scales, without one the HPA formula."""
    batch = Batch(scenarios, level="request")
    params = batch.params if actor else hpa_params(batch.params)
    state = initial_state(N, actor.manifest.stack_size if actor else 1)
    for second in range(0, SECONDS, SENSE_SECONDS):
        samples = batch.sense()
        kind = "floor" if second % batch.interval else "action"
        state = sense(params, state, samples)
        decision, _, state = decide(params, state, samples, actor, kind=kind)
        if watch:
            watch(batch, samples, kind)
        batch.scale(decision.desired, decision.weights)
        batch.advance()
    ledger = read(batch.cluster)
    return ledger.late_percent(), (ledger.billed * params.cost_per_hour).sum(axis=1) / 3600


class Shadow:
    """Simulations beside services that another autoscaler scales."""

    def __init__(self, actor):
        self.actor, self.simulation = actor, None

    def __call__(self, batch, samples, kind):
        if self.simulation is None:
            rows = [slice(i, i + 1) for i in range(N)]
            stack = self.actor.manifest.stack_size if self.actor else 1
            self.simulation = ShadowSimulation.concat(
                [new_simulation(batch.params.take(row), samples.take(row), stack) for row in rows]
            )
        everyone = np.ones(N, np.bool_)
        self.simulation, _ = advance_meters(
            self.simulation, samples, batch.cluster.pool["weight"].copy(), 10.0, everyone
        )
        params = self.simulation.params if self.actor else hpa_params(self.simulation.params)
        self.simulation = scale_virtual(self.simulation, samples, params, self.actor, kind, everyone)

    def score(self, side):
        counted = getattr(self.simulation, side)
        return 100 * counted.late / counted.requests, counted.cost


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["spike", "periodic", "random"])
@pytest.mark.parametrize("shadowed", [Rule(), None], ids=["policy beside the formula", "formula beside the policy"])
def test_shadow_tells_what_happens_when_it_acts(pattern, shadowed):
    scenarios = nominal([pattern] * N, range(N), SECONDS)
    shadow = Shadow(shadowed)
    real_late, real_cost = play(scenarios, None if shadowed else Rule(), shadow)
    true_late, true_cost = play(scenarios, shadowed)
    said_late, said_cost = shadow.score("virtual")
    late, cost = shadow.score("real")
    np.testing.assert_allclose(cost, real_cost, rtol=0.03)
    np.testing.assert_allclose(said_cost, true_cost, rtol=0.15)
    assert abs(late - real_late).mean() <= LATE_TOLERANCE_POINTS + LATE_TOLERANCE_SHARE * real_late.mean()
    told, truth = (said_late - late).mean(), (true_late - real_late).mean()
    assert abs(told - truth) <= LATE_TOLERANCE_POINTS + LATE_TOLERANCE_SHARE * abs(truth)
    told, truth = (said_cost - cost).mean(), (true_cost - real_cost).mean()
    assert abs(told - truth) <= 0.1 * real_cost.mean()
