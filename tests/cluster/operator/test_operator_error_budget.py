"""The error budget is counted from the service's own histogram, steers the price, and outlives the operator."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any


def newest(operator: Any, name: str) -> dict[str, Any]:
    """The last record of an action with the state that it was decided on; zeros before there is one."""
    records = [record for record in operator.decisions(name) if record["kind"] == "action"]
    return records[-1] if records else {"state": {"counted_requests": 0.0, "counted_late": 0.0, "price_factor": 0.0}}


def test_late_requests_are_counted_and_a_successor_goes_on_from_the_status(start, world, wait):
    load = world.service("thrifty", rate=40)
    world.deployments("thrifty")
    world.policy("thrifty")
    before = {
        "objective": 99.0,
        "priceFactor": 4.0,
        "requests": 100_000.0,
        "late": 500.0,
        "latencyMilliseconds": 1000.0,
        "time": datetime.fromtimestamp(int(time.time()), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    world.patch("rlscalingpolicies", "thrifty", {"status": {"slo": before}}, "status")

    def shown() -> dict[str, Any]:
        return world.get("rlscalingpolicies", "thrifty").get("status", {}).get("slo", {})

    first = start()
    wait(lambda: newest(first, "thrifty")["state"]["counted_requests"] > 100_200, seconds=90)
    state = newest(first, "thrifty")["state"]
    assert state["counted_late"] < 501
    assert 3.9 < state["price_factor"] < 4.0
    assert 1.98 < shown()["latePrice"] <= 2.0
    assert 49 < shown()["budgetLeft"] < 51
    load.latency = 7.0
    wait(lambda: newest(first, "thrifty")["state"]["counted_late"] > 700, seconds=90)
    budget = newest(first, "thrifty")["error_budget"]
    assert budget["left"] < 0.4
    assert 1.9 < budget["late_price"] < 2.1
    first.kill()

    second = start()
    wait(lambda: newest(second, "thrifty")["state"]["counted_requests"] > 99_900, seconds=60)
    assert 3.9 < newest(second, "thrifty")["state"]["price_factor"] < 4.1
    world.patch("rlscalingpolicies", "thrifty", {"spec": {"slo": {"objective": 99.9}}})
    wait(lambda: shown().get("objective") == 99.9, seconds=30)
    assert shown()["budgetLeft"] < -300
    assert 3.9 < shown()["priceFactor"] < 4.1
    world.patch("rlscalingpolicies", "thrifty", {"spec": {"slo": {"errorBudget": "Observe"}}})
    wait(lambda: newest(second, "thrifty")["error_budget"]["late_price"] == 0.5, seconds=30)
    assert second.stop() == 0
