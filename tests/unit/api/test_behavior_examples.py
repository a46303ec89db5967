"""`spec.behavior` as users write it, from YAML to replicas.

The examples are those of https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#configurable-scaling-behavior
with the replicas that the page says they lead to.
"""

import numpy as np
import pytest
import yaml

from rlscaler_core.api import parse, to_params
from rlscaler_core.decision.decide import Proposal, decide
from rlscaler_core.decision.observation import ObservationContract, observe, sense
from rlscaler_core.decision.tables import initial_state, make_samples

DEFAULT = """
scaleDown:
  stabilizationWindowSeconds: 300
  policies:
  - {type: Percent, value: 100, periodSeconds: 15}
scaleUp:
  stabilizationWindowSeconds: 0
  policies:
  - {type: Percent, value: 100, periodSeconds: 15}
  - {type: Pods, value: 4, periodSeconds: 15}
  selectPolicy: Max
"""
SCALING_POLICIES = """
scaleDown:
  policies:
  - {type: Pods, value: 4, periodSeconds: 60}
  - {type: Percent, value: 10, periodSeconds: 60}
"""
SHORTER_WINDOW = "scaleDown: {stabilizationWindowSeconds: 60}"
LIMITED_RATE = """
scaleDown:
  policies:
  - {type: Percent, value: 10, periodSeconds: 60}
"""
FIVE_PODS = """
scaleDown:
  policies:
  - {type: Percent, value: 10, periodSeconds: 60}
  - {type: Pods, value: 5, periodSeconds: 60}
  selectPolicy: Min
"""
NEVER_DOWN = "scaleDown: {selectPolicy: Disabled}"


class Service:
    """One pool under a policy whose actor asks for two steps up or down at every interval."""

    def __init__(self, behavior, replicas, step=100, interval=60):
        target = {"deployment": "chat", "maxReplicas": 100, "stepSize": step, "requestsPerSecond": 20}
        spec = {"targets": {"gpu": target}, "slo": {"latencyMilliseconds": 500}, "intervalSeconds": interval}
        # A capacity that is learned would keep the replicas for its first five minutes.
        spec["capacity"] = {"trust": "declared"}
        if behavior:
            spec["behavior"] = yaml.safe_load(behavior)
        body = {"apiVersion": "rlscaler.io/v1alpha1", "kind": "RLScalingPolicy", "metadata": {"name": "chat"}}
        self.params = to_params(parse(body | {"spec": spec}).spec)
        self.state, self.replicas, self.time, self.interval = initial_state(1, 1), replicas, 0.0, interval
        self.act(0)

    def act(self, steps):
        """The replicas after one more interval, written at once."""
        now = (self.replicas, 0)
        samples = make_samples(1, time=self.time, arrival_rate=1.0, p95_ms=100.0, spec_replicas=now, ready_replicas=now)
        state = sense(self.params, self.state, samples)
        observation, state = observe(self.params, state, samples, ObservationContract(stack_size=1))
        action = np.array([(steps, 0, 1)], np.int32)
        decision, _, self.state = decide(self.params, state, samples, Proposal(observation, action))
        self.replicas, self.time = int(decision.desired[0, 0]), self.time + self.interval
        return self.replicas


@pytest.mark.parametrize(
    ("behavior", "expected"),
    [
        pytest.param("", [1], id="none: all at once"),
        pytest.param(SCALING_POLICIES, [72, 64, 57, 51, 45, 40, 36, 32, 28], id="4 pods or 10 %: 8, 8, 7, ... then 4"),
        pytest.param(LIMITED_RATE, [72, 64, 57, 51, 45, 40, 36], id="10 % a minute"),
        pytest.param(FIVE_PODS, [75, 70, 65, 60, 55, 50, 45, 40, 36], id="no more than 5 pods a minute"),
        pytest.param(NEVER_DOWN, [80, 80], id="never"),
        pytest.param(SHORTER_WINDOW, [1], id="a window of a minute is over after one interval of a minute"),
        pytest.param(DEFAULT, [80, 80, 80, 80, 1], id="the HPA's default: all at once after five minutes"),
    ],
)
def test_down_from_eighty(behavior, expected):
    service = Service(behavior, 80)
    assert [service.act(-2) for _ in expected] == expected


@pytest.mark.parametrize(
    ("behavior", "start", "expected"),
    [
        pytest.param("", 1, [100], id="none: all at once"),
        pytest.param(DEFAULT, 1, [5, 10, 20, 40, 80, 100], id="four pods or double"),
        pytest.param("scaleUp: {policies: [{type: Pods, value: 1, periodSeconds: 60}]}", 1, [2, 3, 4], id="one"),
        pytest.param("scaleUp: {selectPolicy: Disabled}", 3, [3, 3], id="never"),
    ],
)
def test_up(behavior, start, expected):
    service = Service(behavior, start)
    assert [service.act(2) for _ in expected] == expected


@pytest.mark.parametrize(
    ("behavior", "minutes"),
    [
        pytest.param("", 10, id="off"),
        pytest.param("scaleDown: {stabilizationWindowSeconds: 60}", 11.5, id="60 s"),
        pytest.param(DEFAULT, 19.5, id="300 s"),
        pytest.param(LIMITED_RATE, 19.5, id="10 % a minute"),
    ],
)
def test_the_descent_that_results(behavior, minutes):
    """From 41 replicas to 1 by an actor that asks for two fewer every 30 s: the table in docs/behavior.md.

    A window is over proposals, and a proposal is the present replicas less two: so it lets two go per window, until the
    ceiling proposes what the load of the last ten minutes needs.
    """
    service = Service(behavior, 41, step=1, interval=30)
    while service.replicas > 1:
        service.act(-2)
    taken = (service.time - service.interval) / 60
    assert taken == minutes
