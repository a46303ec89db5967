"""A thousand random RLScalingPolicies: refused with a reason, or acted upon; and the operator works on."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import yaml

from rlscaler_dev.exceptions import ApiError
from tests.chaos.conftest import Line
from tests.chaos.trial import BUSY, CALM, Trial
from tests.harness.fuzz import Fuzz
from tests.harness.setup import REPOSITORY
from tests.harness.waiting import until

OBJECTS, SEED = 1000, 7
ODDITIES = (0.0, 0.005, 0.03)
"""Shares of values that break a rule: with more of them nearly every object is refused for one."""

Answer = tuple[str, int, str]
"""Name, status (201 = taken), the API server's message."""


def spec_schema() -> dict[str, Any]:
    crd = yaml.safe_load((REPOSITORY / "crds" / "rlscalingpolicies.yaml").read_text())
    schema: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


def create(world: Any, number: int, spec: Any) -> Answer:
    name = f"fuzz-{number}"
    body = {"apiVersion": "rlscaler.io/v1alpha1", "kind": "RLScalingPolicy", "metadata": {"name": name}, "spec": spec}
    try:
        world.kube.request("POST", world.path("rlscalingpolicies"), body)
    except ApiError as error:
        return name, error.status or 0, str(error)
    return name, 201, ""


def unseen(world: Any, names: set[str]) -> list[str]:
    """Accepted policies whose present generation has not been reported on, with the condition Ready and a reason."""
    missing = []
    for body in world.kube.request("GET", world.path("rlscalingpolicies"))["items"]:
        status = body.get("status", {})
        ready = next((c for c in status.get("conditions", ()) if c["type"] == "Ready"), {})
        reported = status.get("observedGeneration") == body["metadata"]["generation"]
        if body["metadata"]["name"] in names and not (reported and ready.get("reason") and ready.get("message")):
            missing.append(body["metadata"]["name"])
    return missing


@pytest.mark.chaos
def test_random_objects_are_refused_or_acted_upon(start, world, replicas, line: Line):
    line.fault = f"fuzz: {OBJECTS} random RLScalingPolicies"
    load = world.service("sane", rate=CALM)
    world.deployments("sane", gpu=3, cpu=4)
    world.policy("sane", senseSeconds=2)
    for number in range(10):
        world.deployment(f"fuzz-{number}", "cpu", 1)
    operator = start()
    trial = Trial.settled(world, replicas, load, line)
    schema = spec_schema()
    specs = [Fuzz(SEED + i, ODDITIES[i % len(ODDITIES)]).value(schema) for i in range(OBJECTS)]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda item: create(world, *item), enumerate(specs)))
    taken = {name for name, status, _ in answers if status == 201}
    refused = [(status, message) for _, status, message in answers if status != 201]
    assert all(status in (400, 422) and message for status, message in refused), Counter(s for s, _ in refused)
    assert min(len(taken), len(refused)) >= OBJECTS // 10, (len(taken), len(refused))
    until(lambda: not unseen(world, taken), 240)
    assert operator.process.poll() is None
    reasons = Counter(
        world_reason(body) for body in world.kube.request("GET", world.path("rlscalingpolicies"))["items"]
    )
    line.note = f"{len(refused)} refused by the API server, {reasons['InvalidSpec']} by the operator"
    assert not reasons["InternalError"] + reasons["ShareFailed"], reasons
    # A replica that the calm load does not need may go meanwhile, as it would without the others.
    trial.check(trial.followed(BUSY), CALM)
    assert "Traceback" not in operator.log.read_text()


def world_reason(body: dict[str, Any]) -> str:
    conditions = body.get("status", {}).get("conditions", ())
    return next((str(c["reason"]) for c in conditions if c["type"] == "Ready"), "")
