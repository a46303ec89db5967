"""What virtual services cost the operator: CPU time of one sensing batch, and its longest block of the event loop.

python benchmarks/shadow_speed.py [POLICIES]
"""

from __future__ import annotations

import sys
import time

import numpy as np

from rlscaler_core.decision.batch import Entry, fresh_state
from rlscaler_core.decision.tables import make_samples
from rlscaler_core.models import load_bundled
from rlscaler_operator.loop.tick import AT_ONCE
from rlscaler_operator.sensing.results import Reading
from rlscaler_operator.shadow.shadows import ComparedPolicy, Shadows
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.registry import Registry

SENSE_SECONDS, INTERVAL_SECONDS, BATCHES = 5, 30, 36


def policy(registry: Registry, number: int, mode: str) -> Policy:
    pools = {"gpu": (20, 45), "cpu": (4, 8)}
    targets = {
        pool: {"deployment": f"p{number}-{pool}", "maxReplicas": 10, "requestsPerSecond": rps, "coldStartSeconds": cold}
        for pool, (rps, cold) in pools.items()
    }
    metadata = {"namespace": "default", "name": f"p{number}", "uid": str(number), "generation": 1}
    spec = {"mode": mode, "targets": targets, "slo": {"latencyMilliseconds": 1000}}
    header = {"apiVersion": "rlscaler.io/v1alpha1", "kind": "RLScalingPolicy"}
    return registry.put({**header, "metadata": {**metadata, "creationTimestamp": ""}, "spec": spec})


def item(one: Policy, now: float, kind: str, rate: float) -> ComparedPolicy:
    one.decision.readings["arrival_rate"] = Reading(rate, 0.0)
    known = {"arrival_rate": rate, "gpu_utilization": 50.0, "cpu_utilization": 50.0, "p95_ms": 100.0}
    samples = make_samples(1, time=now, spec_replicas=(3, 3), ready_replicas=(3, 3), **known)
    state = fresh_state(one.decision.actor, (3, 3), now)
    return ComparedPolicy(one, Entry(one.params(), state, samples, kind, one.decision.actor))  # type: ignore[arg-type]


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    actor = load_bundled("ppo")
    for mode in ("Shadow", "Auto"):
        registry, shadows, now = Registry(), Shadows(60.0), 1_800_000_000.0
        policies = [policy(registry, number, mode) for number in range(count)]
        for one in policies:
            one.decision.actor = actor
        spent: dict[str, list[float]] = {"floor": [], "action": []}
        blocks: list[float] = []
        for batch in range(BATCHES):
            kind = "floor" if batch * SENSE_SECONDS % INTERVAL_SECONDS else "action"
            items = [item(one, now, kind, 30.0 + batch) for one in policies]
            times = []
            for begin in range(0, count, AT_ONCE):
                began = time.process_time()
                shadows.tick(items[begin : begin + AT_ONCE])
                times.append(time.process_time() - began)
            if batch:
                spent[kind].append(sum(times))
                blocks += times
            now += SENSE_SECONDS
        means = {kind: 1000 * float(np.mean(values)) for kind, values in spent.items()}
        share = sum(map(sum, spent.values())) / ((BATCHES - 1) * SENSE_SECONDS)
        mean = f"{means['floor']:.0f} ms a sensing batch, {means['action']:.0f} ms an action batch"
        print(f"{mode:6s} {count} policies: {mean}, {share:.2%} of a core, longest block {1000 * max(blocks):.0f} ms")


if __name__ == "__main__":
    main()
