import pytest

from rlscaler_core.api.spec import Spec
from rlscaler_operator.cluster.bodies import Deployment
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.state.ownership import (
    NOT_ACTING,
    TOOLS,
    Claim,
    ForeignWrites,
    declared,
    find_conflict,
    tool_of,
    turned_off,
)

OLD = Claim("2026-01-01T00:00:00Z", "ns", "old", ("chat-gpu", "chat-cpu"))
NEW = Claim("2026-01-02T00:00:00Z", "ns", "new", ("chat-cpu",))


def claims(*all_claims):
    found = {}
    for claim in all_claims:
        for name in claim.deployments:
            found.setdefault((claim.namespace, name), []).append(claim)
    return found


def hpa(target="chat-cpu", namespace="ns", kind="Deployment"):
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": target}
    return {"metadata": {"namespace": namespace, "name": "h"}, "spec": {"scaleTargetRef": reference}}


def test_an_hpa_on_a_target_is_a_conflict():
    cache = WatchCache()
    cache.autoscalers.put("HorizontalPodAutoscaler", hpa())
    conflict = find_conflict(NEW, claims(NEW), cache)
    assert conflict.reason == "HorizontalPodAutoscalerExists"
    assert "chat-cpu" in conflict.message


def test_an_hpa_elsewhere_is_none():
    cache = WatchCache()
    cache.autoscalers.put("HorizontalPodAutoscaler", hpa(namespace="other"))
    cache.autoscalers.put("HorizontalPodAutoscaler", hpa(kind="StatefulSet"))
    assert find_conflict(NEW, claims(NEW), cache) is None


def test_an_hpa_that_is_pointed_elsewhere_or_deleted_frees_the_target():
    cache = WatchCache()
    cache.autoscalers.put("HorizontalPodAutoscaler", hpa())
    cache.autoscalers.put("HorizontalPodAutoscaler", hpa(target="else"))
    assert find_conflict(NEW, claims(NEW), cache) is None
    cache.autoscalers.put("HorizontalPodAutoscaler", hpa())
    cache.autoscalers.drop("HorizontalPodAutoscaler", ("ns", "h"))
    assert find_conflict(NEW, claims(NEW), cache) is None


def test_the_older_policy_holds_the_target():
    others = claims(OLD, NEW)
    assert find_conflict(NEW, others, WatchCache()).holder == ("RLScalingPolicy", "old")
    assert find_conflict(OLD, others, WatchCache()) is None


def test_whoever_acts_goes_before_a_policy_in_shadow():
    shadow = OLD._replace(created=NOT_ACTING)
    assert find_conflict(shadow, claims(NEW), WatchCache()).holder == ("RLScalingPolicy", "new")
    assert find_conflict(NEW, claims(NEW), WatchCache()) is None


def deployment(replicas, manager):
    return Deployment("u", "1", replicas, replicas, manager)


def test_one_foreign_write_is_adopted_and_reported_once():
    writes = ForeignWrites(3)
    assert writes.look(deployment(5, "kubectl"), "rlscaler", 30, 111.0) == "kubectl"
    assert writes.look(deployment(5, "kubectl"), "rlscaler", 30, 112.0) is None
    assert writes.conflict("chat-cpu", 112.0) is None


def test_the_same_manager_twice_is_a_conflict_for_a_while():
    writes = ForeignWrites(3)
    writes.look(deployment(5, "kubectl"), "rlscaler", 30, 111.0)
    writes.written = 4
    writes.look(deployment(5, "kubectl"), "rlscaler", 30, 141.0)
    assert writes.conflict("chat-cpu", 142.0).reason == "ForeignWriter"
    assert writes.conflict("chat-cpu", 141.0 + 151.0) is None


def put_back(writes, tries, now=1000.0):
    """A tool that answers each write of the policy within a second; the pauses that follow, in seconds."""
    pauses = []
    for _ in range(tries):
        writes.written = 8  # the policy writes, and the tool puts its manifest's replicas back
        writes.look(deployment(5, "argocd-controller"), "rlscaler", 30, now + 1)
        end = now + 2
        while writes.conflict("chat-cpu", end):
            end += 1
        pauses.append(end - now - 2)
        now = end
    return pauses, now


def test_a_writer_that_does_not_give_in_is_tried_ever_less_often():
    writes = ForeignWrites(5)
    pauses, _ = put_back(writes, 10)
    assert pauses[0] == 0, "once is a person at work"
    assert pauses[1:] == pytest.approx([150, 300, 600, 1200, 2400, 3600, 3600, 3600, 3600], abs=2)


def test_the_pause_is_said_with_its_number_and_length_and_only_changes_with_it():
    writes = ForeignWrites(5)
    _, now = put_back(writes, 3)
    writes.written = 8
    writes.look(deployment(5, "argocd-controller"), "rlscaler", 30, now)
    said = {writes.conflict("chat-cpu", now + later).message for later in (1, 200, 599)}
    assert len(said) == 1
    assert "pause number 3" in said.pop()
    assert "600 s" in writes.conflict("chat-cpu", now + 1).message


def test_after_a_quiet_time_everything_begins_anew():
    writes = ForeignWrites(5)
    _, now = put_back(writes, 5)
    pauses, _ = put_back(writes, 3, now + 1200 + 1)
    assert pauses == pytest.approx([0, 150, 300], abs=2)


def test_a_writer_that_goes_on_during_the_pause_prolongs_it_and_does_not_double_it():
    writes = ForeignWrites(5)
    _, now = put_back(writes, 2)
    writes.written = 8
    for replicas in (5, 6, 7):
        writes.look(deployment(replicas, "theirs"), "rlscaler", 30, now)
        now += 100
    assert writes.hold_seconds == 300
    assert writes.conflict("chat-cpu", now - 100 + 299)
    assert writes.conflict("chat-cpu", now - 100 + 301) is None


def test_what_others_set_while_the_policy_writes_nothing_is_no_foreign_write():
    writes = ForeignWrites(3)
    for replicas in (5, 6, 7):
        writes.adopt(deployment(replicas, "kube-controller-manager"))
    assert writes.look(deployment(7, "kube-controller-manager"), "rlscaler", 30, 111.0) is None


def test_a_scaled_object_goes_before_the_hpa_that_keda_makes_for_it():
    cache = WatchCache()
    cache.autoscalers.put("HorizontalPodAutoscaler", hpa())
    cache.autoscalers.put("ScaledObject", hpa())
    conflict = find_conflict(NEW, claims(NEW), cache)
    assert conflict.reason == "ScaledObjectExists"
    assert "kubectl -n ns delete scaledobject h" in conflict.message


def test_twice_with_a_long_time_between_is_no_conflict():
    writes = ForeignWrites(3)
    writes.look(deployment(5, "kubectl"), "rlscaler", 30, 111.0)
    writes.look(deployment(6, "kubectl"), "rlscaler", 30, 311.0)
    assert writes.conflict("chat-cpu", 312.0) is None


def day(period, managers, seconds=86400.0, interval=15.0, replicas=(1,)):
    """Return how often the policy is overwritten in a day by writers that take turns and write where replicas differ.

    The policy writes at once wherever it is not held.
    """
    writes, now, back = ForeignWrites(8), 0.0, 0
    for turn in range(int(seconds / period)):
        now += period
        if writes.conflict("chat", now) is None:
            writes.written = 8
        if writes.written == 8:
            seen = deployment(replicas[turn % len(replicas)], managers[turn % len(managers)])
            back += writes.look(seen, "rlscaler", interval, now) is not None
    return back, writes


@pytest.mark.parametrize("period", [55, 180, 600, 1800, 3600])
@pytest.mark.parametrize("managers", [("kustomize-controller",), ("theirs",)])
def test_a_tool_that_puts_replicas_back_at_its_own_interval_is_tried_ever_less_often(period, managers):
    back, writes = day(period, managers)
    assert back <= 24 + 8
    assert writes.manager == managers[0]


def test_a_controller_whose_intervals_are_seen_irregularly_is_told_all_the_same():
    writes = ForeignWrites(8)
    for at in (0.0, 600.0, 3000.0):
        writes.written = 8
        writes.look(deployment(1, "argocd-controller"), "rlscaler", 15, at)
    conflict = writes.conflict("chat", 3001.0)
    assert "Argo CD (argocd-controller) keeps setting spec.replicas" in conflict.fact
    assert "ignoreDifferences" in conflict.remedy


@pytest.mark.parametrize("period", [10, 30, 60])
def test_two_writers_that_take_turns_are_tried_ever_less_often_too(period):
    back, _ = day(period, ("kubectl", "argocd-controller"))
    assert back <= 24 + 12


@pytest.mark.parametrize(
    ("times", "manager", "replicas"),
    [
        ((0, 3600, 30000, 40000), "kubectl", (1,)),
        ((0, 30000, 60000, 90000), "argocd-controller", (1,)),
        ((0, 3600, 7200, 10800), "kubectl", (1, 2, 3, 4)),
    ],
    ids=["now and then", "far apart", "another number each time"],
)
def test_deployments_now_and_then_are_no_conflict(times, manager, replicas):
    writes = ForeignWrites(8)
    for turn, at in enumerate(times):
        writes.written = 8
        writes.look(deployment(replicas[turn % len(replicas)], manager), "rlscaler", 15, float(at))
        assert writes.conflict("chat", at + 1.0) is None


def test_our_own_writes_and_manifests_with_the_same_value_are_no_foreign_writes():
    writes = ForeignWrites(5)
    assert writes.look(deployment(5, "kubectl"), "rlscaler", 30, 111.0) is None
    assert writes.look(deployment(6, "rlscaler"), "rlscaler", 30, 131.0) is None
    assert writes.look(deployment(6, ""), "rlscaler", 30, 131.0) is None


@pytest.mark.parametrize(
    ("manager", "name"),
    [
        ("argocd-controller", "Argo CD"),
        ("argocd-application-controller", "Argo CD"),
        ("kustomize-controller", "Flux (Kustomization)"),
        ("helm-controller", "Flux (HelmRelease)"),
        ("helm", "Helm"),
        ("kubectl-client-side-apply", "kubectl apply"),
        ("HashiCorp", "Terraform"),
        ("Terraform", "Terraform"),
        ("pulumi-kubernetes-1a2b", "Pulumi"),
        ("kubectl", None),
        ("kubectl-edit", None),
    ],
)
def test_a_tool_is_known_by_its_field_manager(manager, name):
    tool = tool_of(manager)
    assert (tool.name if tool else None) == name


def test_a_conflict_names_the_tool_and_the_remedy():
    writes = ForeignWrites(5)
    for replicas, now in ((1, 0.0), (2, 30.0)):
        writes.look(deployment(replicas, "argocd-controller"), "rlscaler", 30, now)
    message = writes.conflict("chat-cpu", 31.0).message
    assert "Argo CD (argocd-controller)" in message
    assert "ignoreDifferences" in message
    assert all(tool.remedy for tool in TOOLS)


def test_a_tool_that_owns_the_replicas_is_named_before_it_sets_them_back():
    cache = WatchCache()
    cache.deployments["ns", "chat-cpu"] = deployment(3, "helm")
    assert find_conflict(NEW, claims(NEW), cache) is None
    assert "Helm (helm) owns spec.replicas of Deployment chat-cpu" in declared(NEW, cache)
    cache.deployments["ns", "chat-cpu"] = deployment(3, "kubectl")
    assert declared(NEW, cache) == ""


@pytest.mark.parametrize(
    ("manager", "replicas", "least", "off"),
    [
        ("kubectl", 0, 1, True),
        ("kubectl", 0, 0, True),
        ("argocd-controller", 0, 1, True),
        ("kubectl", 1, 1, False),
        ("rlscaler", 0, 1, False),
        ("rlscaler", 0, 0, False),
        ("keda", 0, 1, False),
        ("kube-controller-manager", 0, 1, False),
        ("", 0, 1, True),
        ("", 0, 0, False),
    ],
)
def test_zero_replicas_of_another_writer_mean_off(manager, replicas, least, off):
    targets = {
        "gpu": {"deployment": "g", "maxReplicas": 4, "minReplicas": least},
        "cpu": {"deployment": "c", "maxReplicas": 4},
    }
    spec = Spec.model_validate({"targets": targets, "slo": {"latencyMilliseconds": 500}})
    found = {"gpu": Deployment("u", "1", replicas, 0, manager), "cpu": Deployment("u", "1", 3, 3, "kubectl")}
    assert turned_off(spec, found) == (("gpu",) if off else ())
    assert turned_off(spec, {"gpu": None, "cpu": None}) == ()
