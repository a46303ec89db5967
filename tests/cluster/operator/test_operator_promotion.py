"""Shadow beside a real HPA, Auto that waits for evidence, and a demoted policy that the HPA formula drives."""

import asyncio

from rlscaler_operator.sensing.access import Access
from rlscaler_operator.sensing.prometheus import Prometheus
from rlscaler_operator.sensing.subject import Subject
from rlscaler_operator.shadow.calibration import Histogram, histograms, promql


def promotion(world, policy):
    return world.get("rlscalingpolicies", policy).get("status", {}).get("promotion", {})


def hpa(target):
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}
    spec = {"scaleTargetRef": reference, "minReplicas": 2, "maxReplicas": 3}
    return {"metadata": {"name": target}, "spec": spec}


def test_shadow_scores_beside_an_hpa_and_patches_nothing(operator, world, wait, stays):
    world.service("shadowed", rate=60)
    world.deployments("shadowed", gpu=2, cpu=2)
    world.kube.request("POST", world.path("horizontalpodautoscalers"), hpa("shadowed-cpu"))
    world.policy("shadowed", mode="Shadow")
    found = wait(lambda: promotion(world, "shadowed"))
    assert (found["state"], found["reason"], found["against"]) == ("Collecting", "CollectingEvidence", "Running")
    wait(lambda: world.get("rlscalingpolicies", "shadowed")["status"].get("lastDecision"))
    stays(lambda: world.replicas("shadowed"), (2, 2), 5)


async def test_one_query_gives_the_histograms_of_all_services(operator, cluster, world, wait):
    for name, latency in (("quick", 0.2), ("slow", 2.0)):
        world.service(name, rate=50).latency = latency
    client = Prometheus(Access(cluster.prometheus_url), 4)
    query = promql([Subject(world.namespace, name, (None, None)) for name in ("quick", "slow")], 60)

    async def late():
        found = histograms(await client.instant(query))
        shares = [found.get(("", world.namespace, name), Histogram()).late(1.0) for name in ("quick", "slow")]
        return None not in shares and shares

    async with asyncio.timeout(60):
        while not (shares := await late()):  # noqa: ASYNC110
            await asyncio.sleep(0.5)
    quick, slow = shares
    assert quick == (0, 0)
    assert slow[0] == slow[1] > 0
    await client.close()


def test_auto_with_evidence_waits_for_it(operator, world, wait, stays):
    world.service("waiting", rate=90)
    world.deployments("waiting", gpu=1, cpu=1)
    world.policy("waiting", promotion={"require": "Evidence"})
    wait(lambda: world.condition("waiting", "Active") == ("False", "CollectingEvidence"))
    stays(lambda: world.replicas("waiting"), (1, 1), 12)


def test_a_demoted_policy_is_driven_by_the_hpa_formula_after_a_restart(start, operator, world, wait):
    load = world.service("fallen", rate=5)
    world.deployments("fallen", gpu=1, cpu=1)
    world.policy("fallen")
    state = wait(lambda: (p := promotion(world, "fallen")).get("state") == "NotRequired" and p)
    operator.stop()
    demoted = {"state": "Demoted", "reason": "LaterThanHPA", "against": "Running"}
    world.patch("rlscalingpolicies", "fallen", {"status": {"promotion": {**state, **demoted}}}, "status")
    load.rate = 90
    start()
    wait(lambda: world.condition("fallen", "Active") == ("False", "Demoted"))
    wait(lambda: world.condition("fallen", "Fallback") == ("True", "Demoted"))
    gpu, cpu = wait(lambda: (r := world.replicas("fallen"))[0] > 1 and r)
    # The floor loads replicas to 92 % where starts have a price, and more the more there are.
    assert gpu * 20 + cpu * 4 >= 90 / 0.95
    assert promotion(world, "fallen")["state"] == "Demoted"
    assert "Demoted" in world.events("fallen")
