"""The joint budget and the pending guard on real Deployments."""

import pytest

COST = {"gpu": 2.5, "cpu": 0.625}


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


def message(world, policy, type_):
    conditions = world.get("rlscalingpolicies", policy)["status"]["conditions"]
    return next(condition["message"] for condition in conditions if condition["type"] == type_)


def quick(name):
    """Targets of which a replica may be pending for two seconds."""
    most = {"gpu": (10, 20), "cpu": (60, 4)}
    return {
        pool: {"deployment": f"{name}-{pool}", "maxReplicas": n, "requestsPerSecond": each, "coldStartSeconds": 8}
        for pool, (n, each) in most.items()
    }


def test_a_pool_whose_pods_a_quota_refuses_spills_to_the_other_and_says_why(operator, world, wait, stays):
    """The refused replicas have no pods at all, so that nothing of them is pending."""
    load = world.service("refused", rate=20)
    hard = {"requests.nvidia.com/gpu": "2"}
    world.kube.request("POST", world.path("resourcequotas"), {"metadata": {"name": "gpus"}, "spec": {"hard": hard}})
    world.deployment("refused-gpu", "gpu", gpus=1)
    world.deployment("refused-cpu", "cpu")
    world.policy("refused", targets=quick("refused"), guards={"pendingSeconds": 4})
    wait(lambda: world.condition("refused", "Ready")[0] == "True")
    load.rate = 150
    wait(lambda: world.condition("refused", "Active") == ("True", "PodsRefused"))
    assert "exceeded quota: gpus" in message(world, "refused", "Active")
    wait(lambda: "PodsRefused" in world.events("refused"))
    wait(lambda: 2 * 20 + world.replicas("refused")[1] * 4 >= 150)
    stays(lambda: 2 * 20 + world.replicas("refused")[1] * 4 >= 150, True, 20)
    world.delete("resourcequotas", "gpus")
    # The ReplicaSet tries again after a time that doubles with every refusal.
    wait(lambda: world.condition("refused", "Active") == ("True", "Acting"), 400)


ADMISSION = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"


@pytest.fixture
def at_most_five(world):
    """The company's rule: no more than 5 replicas for a Deployment of this namespace."""
    name = f"ceiling-{world.namespace}"
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}},
            "resourceRules": [
                {
                    "apiGroups": ["apps"],
                    "apiVersions": ["v1"],
                    "operations": ["UPDATE"],
                    "resources": ["deployments/scale"],
                }
            ],
        },
        "validations": [{"expression": "object.spec.replicas <= 5", "message": "no more than 5 replicas here"}],
    }

    def begin():
        world.kube.request("POST", f"{ADMISSION}ies", {"metadata": {"name": name}, "spec": spec})
        binding = {"policyName": name, "validationActions": ["Deny"]}
        world.kube.request("POST", f"{ADMISSION}ybindings", {"metadata": {"name": name}, "spec": binding})

    yield begin
    world.kube.delete(f"{ADMISSION}ybindings/{name}")
    world.kube.delete(f"{ADMISSION}ies/{name}")


def test_replicas_that_admission_refuses_are_said_and_replaced_and_keep_no_policy_from_its_end(
    operator, world, wait, at_most_five
):
    load = world.service("limited", rate=20)
    world.deployments("limited", gpu=7)
    world.policy("limited", targets=quick("limited"), restoreOnDelete=True)
    wait(lambda: world.replicas("limited")[0] < 6)
    at_most_five()
    load.rate = 200
    wait(lambda: world.condition("limited", "Active") == ("True", "ScaleRefused"))
    assert "no more than 5 replicas here" in message(world, "limited", "Active")
    assert world.condition("limited", "Conflicted") == ("False", "NoConflict")
    wait(lambda: "ScaleRefused" in world.events("limited"))
    wait(lambda: world.replicas("limited")[0] >= 3, 30)
    load.rate = 110
    wait(lambda: sum(n * each for n, each in zip(world.replicas("limited"), (20, 4), strict=True)) >= 110)
    world.delete("rlscalingpolicies", "limited")
    path = world.path("rlscalingpolicies")
    wait(lambda: "limited" not in {item["metadata"]["name"] for item in world.kube.request("GET", path)["items"]})
    assert "NotRestored" in world.events("limited")


def test_capacity_is_learned_where_the_spec_leaves_it_open(operator, world, wait):
    """In Shadow, so that the replicas stay: 15 requests/s for each pool's one replica."""
    world.service("pupil", rate=30)
    world.deployments("pupil")
    targets = {
        pool: {"deployment": f"pupil-{pool}", "maxReplicas": 10, "coldStartSeconds": 8} for pool in ("gpu", "cpu")
    }
    world.policy("pupil", mode="Shadow", targets=targets, capacity={"trust": "learned"})
    wait(lambda: world.condition("pupil", "CapacityUnknown") == ("True", "NotMeasured"))
    wait(lambda: world.condition("pupil", "CapacityUnknown") == ("", ""), 240)
    believed = world.get("rlscalingpolicies", "pupil")["status"]["capacity"]
    assert believed["gpu"] == pytest.approx(20, rel=0.1), believed
