import pytest

from rlscaler_operator.decisions import Entry, fresh_state
from rlscaler_rl.decision.params import make_params
from rlscaler_rl.decision.rule import Rule
from rlscaler_rl.decision.samples import make_samples


@pytest.fixture(scope="session")
def rule():
    return Rule()


@pytest.fixture(scope="session")
def entry(rule):
    """A policy's row of a batch, under a load that two pools of two carry easily."""

    def make(kind="action", actor=rule, replicas=(2, 2), rate=20.0, **params):
        table = make_params(1, requests_per_second=(20.0, 4.0), **params)
        samples = make_samples(
            1,
            time=100.0,
            arrival_rate=rate,
            cpu_utilization=50.0,
            gpu_utilization=50.0,
            p95_ms=100.0,
            spec_replicas=replicas,
            ready_replicas=replicas,
        )
        return Entry(table, fresh_state(actor, replicas, 100.0), samples, kind, actor)

    return make
