"""Coming from an HPA and from KEDA as docs/guides say it: evidence beside the other autoscaler, then taking over.

The API server, the HPA controller, the operator, its measurements, decisions and writes are real. Only the comparison
lives faster: each sensing tick is taken for hours in which the same was measured, with an action every 110 seconds.
"""

import re

import pytest

from tests.cluster.operator.test_operator_ownership import SCALED_OBJECTS, keda  # noqa: F401

FEW = 0.005
"""Requests per second: a day of fewer than 500 requests counts without a latency histogram of that day."""

ACCELERATED = """
import dataclasses, os, time
from collections import defaultdict
from rlscaler_live import cli
from rlscaler_operator.loop import wiring
from rlscaler_operator.shadow.shadows import ComparedPolicy, Shadows

os.environ["RLSCALER_STATUS_INTERVAL_SECONDS"] = "2"
STEP_SECONDS, BUSY_SECONDS = 110.0, 0.6
ahead = defaultdict(float)

def later(item):
    ahead[item.policy.key] += STEP_SECONDS
    samples = dataclasses.replace(item.entry.samples, time=item.entry.samples.time + ahead[item.policy.key])
    return ComparedPolicy(item.policy, dataclasses.replace(item.entry, samples=samples, kind="action"))

class Accelerated(Shadows):
    def tick(self, items, joins=None):
        began = time.monotonic()
        while items and time.monotonic() - began < BUSY_SECONDS:
            super().tick([later(item) for item in items])

    def due_for_calibration(self, policies, now):
        return []

    def ensure_promotion(self, policy, now):
        super().ensure_promotion(policy, now + ahead[policy.key])

wiring.Shadows = Accelerated
cli.main()
"""

DAYS = 4
"""A virtual day takes half a minute, or a minute on a busy machine."""


pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def services(keda, world, wait):  # noqa: F811
    """One with HPAs and one with ScaledObjects, which hold more replicas than so few requests need."""
    for name in ("moving", "queued"):
        world.service(name, rate=FEW)
        world.deployments(name, gpu=1, cpu=1)
        for pool in ("gpu", "cpu"):
            # KEDA makes an HPA of its own for each ScaledObject.
            world.kube.request("POST", world.path("horizontalpodautoscalers"), hpa(f"{name}-{pool}"))
    for pool in ("gpu", "cpu"):
        body = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": f"theirs-{pool}"}}
        spec = {
            "scaleTargetRef": {"name": f"queued-{pool}"},
            "triggers": [{"type": "cpu", "metadata": {"value": "50"}}],
        }
        world.kube.request("POST", SCALED_OBJECTS.format(world.namespace), body | {"spec": spec})
    wait(lambda: world.replicas("moving") == world.replicas("queued") == (4, 4), 60)


@pytest.fixture(scope="module")
def operator(services, start):
    return start(program=("-c", ACCELERATED))


@pytest.fixture(scope="module", autouse=True)
def policies(operator, world):
    world.policy("moving", mode="Shadow", promotion={"minDays": DAYS})
    world.policy("queued", promotion={"require": "Evidence", "minDays": DAYS})


def promotion(world, policy):
    return world.get("rlscalingpolicies", policy).get("status", {}).get("promotion", {})


def message(world, policy, type_):
    conditions = world.get("rlscalingpolicies", policy)["status"]["conditions"]
    return next(c["message"] for c in conditions if c["type"] == type_)


def hpa(target):
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}
    return {"metadata": {"name": target}, "spec": {"scaleTargetRef": reference, "minReplicas": 4, "maxReplicas": 6}}


def obey(world, text, kind, api):
    """Do what a message says: `kubectl -n NAMESPACE delete KIND NAME`."""
    namespace, found, name = re.search(r"kubectl -n (\S+) delete (\S+) ([^\s)]+)", text).groups()
    assert (namespace, found) == (world.namespace, kind)
    world.kube.request("DELETE", f"{api}/{name}")


def whole_days(world, policy):
    days = [day for day in promotion(world, policy).get("evidence", ()) if day["hours"] >= 18]
    assert all(day["otherCost"] > day["cost"] > 0 for day in days), days
    return len(days)


def test_auto_that_waits_for_evidence_collects_it_and_says_to_keep_the_scaled_object(world, wait):
    wait(lambda: world.condition("queued", "Active") == ("False", "CollectingEvidence"), 60)
    kept = "ScaledObject theirs-gpu scales Deployment queued-gpu and is compared with: keep it until then"
    assert kept in message(world, "queued", "Active")
    assert world.condition("queued", "Conflicted") == ("False", "NotActing")
    wait(lambda: whole_days(world, "queued") >= 2, 180)


@pytest.mark.long
def test_from_an_hpa_with_evidence_that_was_collected_beside_it(world, wait, stays):
    wait(lambda: world.condition("moving", "Conflicted") == ("False", "NotActing"), 60)
    assert "HPA moving-gpu scales Deployment moving-gpu" in message(world, "moving", "Conflicted")
    wait(lambda: whole_days(world, "moving") >= 2, 180)
    wait(lambda: promotion(world, "moving")["state"] == "Ready", 600)
    assert promotion(world, "moving")["days"] >= DAYS
    assert promotion(world, "moving")["reason"] == "Cheaper"
    assert world.replicas("moving") == (4, 4)

    body = {"spec": {"mode": "Auto", "promotion": {"require": "Evidence", "minDays": DAYS}}}
    world.patch("rlscalingpolicies", "moving", body)
    wait(lambda: world.condition("moving", "Conflicted") == ("True", "HorizontalPodAutoscalerExists"))
    assert promotion(world, "moving")["state"] == "Promoted"
    stays(lambda: world.replicas("moving"), (4, 4), 5)
    for pool in ("gpu", "cpu"):
        wait(lambda pool=pool: f"HPA moving-{pool} scales" in message(world, "moving", "Conflicted"))
        told = message(world, "moving", "Conflicted")
        assert "the evidence for this policy is there: delete it" in told
        obey(world, told, "hpa", world.path("horizontalpodautoscalers"))
    wait(lambda: world.condition("moving", "Active") == ("True", "Acting"), 60)
    wait(lambda: sum(world.replicas("moving")) < 8, 60)
    assert not {"ReplicasAdopted", "ForeignWriter"} & world.events("moving")


def test_auto_with_the_evidence_writes_nothing_before_the_scaled_object_is_gone(world, wait, stays):
    wait(lambda: promotion(world, "queued")["state"] == "Promoted", 600)
    wait(lambda: world.condition("queued", "Conflicted") == ("True", "ScaledObjectExists"))
    stays(lambda: world.replicas("queued"), (4, 4), 5)
    for pool in ("gpu", "cpu"):
        wait(lambda pool=pool: f"theirs-{pool} scales" in message(world, "queued", "Conflicted"))
        told = message(world, "queued", "Conflicted")
        obey(world, told, "scaledobject", SCALED_OBJECTS.format(world.namespace))
        world.delete("horizontalpodautoscalers", f"queued-{pool}")
    wait(lambda: sum(world.replicas("queued")) < 8, 60)
