"""The joint budget and the pending guard on real Deployments."""

import pytest

COST = {"gpu": 2.5, "cpu": 0.625}


@pytest.fixture(scope="module")
def operator(start):
    return start()


def cost(world, service):
    gpu, cpu = world.replicas(service)
    return gpu * COST["gpu"] + cpu * COST["cpu"]


def test_a_budget_refuses_increases_and_a_lower_one_lowers_what_runs(operator, world, wait, stays):
    world.service("thrifty", rate=400)
    world.deployments("thrifty")
    world.policy("thrifty", guards={"budgetPerHour": 10})
    wait(lambda: 8.75 <= cost(world, "thrifty") <= 10)
    wait(lambda: world.condition("thrifty", "Active") == ("True", "BudgetLimited"))
    stays(lambda: cost(world, "thrifty") <= 10, True, 12)
    wait(
        lambda: (
            world.get("rlscalingpolicies", "thrifty").get("status", {}).get("stabilization", {}).get("budgetPerHour")
            == 10
        )
    )
    world.patch("rlscalingpolicies", "thrifty", {"spec": {"guards": {"budgetPerHour": 5}}})
    wait(lambda: cost(world, "thrifty") <= 5)
    world.patch("rlscalingpolicies", "thrifty", {"spec": {"guards": {"budgetPerHour": None}}})
    wait(lambda: cost(world, "thrifty") > 20)


def test_a_manual_scale_above_the_budget_survives_a_restart(operator, start, world, wait, stays):
    load = world.service("by-hand", rate=10)
    world.deployments("by-hand")
    world.policy("by-hand", guards={"budgetPerHour": 10}, behavior={"scaleDown": {"selectPolicy": "Disabled"}})
    wait(
        lambda: (
            world.get("rlscalingpolicies", "by-hand").get("status", {}).get("stabilization", {}).get("budgetPerHour")
            == 10
        )
    )
    world.patch("deployments", "by-hand-gpu", {"spec": {"replicas": 6}}, "scale", manager="kubectl")
    load.rate = 400
    stays(lambda: world.replicas("by-hand")[0], 6, 12)
    assert cost(world, "by-hand") >= 15
    operator.kill()
    start()
    stays(lambda: world.replicas("by-hand")[0], 6, 15)


def test_a_pool_whose_pods_do_not_come_up_spills_to_the_other(operator, world, wait, stays):
    world.service("stuck", rate=100)
    world.deployment("stuck-gpu", "nowhere", replicas=2)
    world.deployment("stuck-cpu", "cpu")
    targets = {
        "gpu": {"deployment": "stuck-gpu", "maxReplicas": 10, "requestsPerSecond": 20, "coldStartSeconds": 8},
        "cpu": {"deployment": "stuck-cpu", "maxReplicas": 40, "requestsPerSecond": 4, "coldStartSeconds": 8},
    }
    world.policy("stuck", targets=targets, guards={"pendingSeconds": 2})
    wait(lambda: world.condition("stuck", "Active") == ("True", "PodsPending"))
    wait(lambda: world.replicas("stuck")[1] * 4 >= 100)
    stays(lambda: world.replicas("stuck")[0] <= 7, True, 12)


def test_capacity_is_learned_where_the_spec_leaves_it_open(operator, world, wait):
    """In Shadow, so that the replicas stay: 15 requests/s for each pool's one replica."""
    world.service("pupil", rate=30)
    world.deployments("pupil")
    targets = {
        pool: {"deployment": f"pupil-{pool}", "maxReplicas": 10, "coldStartSeconds": 8} for pool in ("gpu", "cpu")
    }
    world.policy("pupil", mode="Shadow", targets=targets)
    wait(lambda: world.condition("pupil", "CapacityUnknown") == ("True", "NotMeasured"))
    wait(lambda: world.condition("pupil", "CapacityUnknown") == ("", ""), 240)
    learned = world.get("rlscalingpolicies", "pupil")["status"]["learned"]
    assert learned["gpu"]["requestsPerSecond"] == pytest.approx(20, rel=0.1)
    assert learned["cpu"]["requestsPerSecond"] == pytest.approx(4, rel=0.1)
