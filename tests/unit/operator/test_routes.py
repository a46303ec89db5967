import pytest

from rlscaler_operator.actuation.backends import (
    AmbiguousBackendError,
    acknowledged,
    current_weights,
    find_splits,
    route_patch,
    shares_of,
)
from rlscaler_operator.actuation.scale import scale_patch
from rlscaler_operator.actuation.weights import format_weights

BACKENDS = ("chat-gpu", "chat-cpu")


def route(*rules):
    return {
        "metadata": {"resourceVersion": "1"},
        "spec": {"rules": [{"backendRefs": list(refs)} for refs in rules]},
    }


def splits(one):
    return find_splits(one, "ns", BACKENDS)


def patched(one, weights):
    return route_patch(one, splits(one), weights)


def after(one, weights):
    """The weights of each rule once the patch is applied, and what each rule still adds up to."""
    rules = [[dict(ref) for ref in rule["backendRefs"]] for rule in one["spec"]["rules"]]
    for step in patched(one, weights):
        if step["op"] == "add":
            *_, rule, _, ref, _ = step["path"].split("/")
            rules[int(rule)][int(ref)]["weight"] = step["value"]
    return [[ref.get("weight", 1) for ref in refs] for refs in rules]


GPU, CPU = {"name": "chat-gpu", "port": 80, "weight": 500}, {"name": "chat-cpu", "port": 80, "weight": 500}


def test_weights_are_changed_only_where_the_backends_are_what_was_read():
    assert patched(route([CPU, GPU]), (800, 200)) == [
        {"op": "test", "path": "/spec/rules/0/backendRefs", "value": [CPU, GPU]},
        {"op": "add", "path": "/spec/rules/0/backendRefs/1/weight", "value": 800},
        {"op": "add", "path": "/spec/rules/0/backendRefs/0/weight", "value": 200},
    ]


def test_right_weights_need_no_write():
    assert patched(route([GPU, CPU]), (500, 500)) == []


def test_only_rules_that_split_between_the_two_are_touched():
    other = {"name": "docs", "weight": 1}
    patch = patched(route([other], [GPU], [GPU, other, CPU]), (1000, 0))
    assert {step["path"].split("/")[3] for step in patch} == {"2"}
    assert "/spec/rules/2/backendRefs/1/weight" not in {step["path"] for step in patch}


def test_a_rule_that_is_closed_on_purpose_stays_closed():
    closed = [GPU | {"weight": 0}, CPU | {"weight": 0}]
    assert after(route(closed, [GPU, CPU]), (800, 200)) == [[0, 0], [800, 200]]
    assert after(route([*closed, {"name": "canary", "weight": 9}]), (800, 200)) == [[0, 0, 9]]
    assert current_weights(splits(route(closed, [GPU, CPU]))) == (500, 500), "and is no original to restore"
    assert patched(route([GPU, CPU]), (0, 0)) == [], "and no rule is closed"


def test_an_absent_weight_is_one():
    bare = route([{"name": "chat-gpu"}, CPU])
    assert current_weights(splits(bare)) == (1, 500)
    assert patched(bare, (1, 500)) == []
    assert current_weights(splits(route([GPU]))) is None


@pytest.mark.parametrize(
    "other",
    [
        {"kind": "InferencePool"},
        {"group": "inference.networking.k8s.io"},
        {"namespace": "other"},
        {"name": "chat-gpu-2"},
    ],
)
def test_a_backend_of_another_kind_group_or_namespace_is_none_of_ours(other):
    assert current_weights(splits(route([GPU | other, CPU]))) is None
    beside = route([GPU, CPU, GPU | other | {"weight": 1000}])
    assert after(beside, (900, 100)) == [[900, 100, 1000]]


def test_the_namespace_of_the_route_and_none_are_the_same():
    assert current_weights(splits(route([GPU | {"namespace": "ns", "group": "", "kind": "Service"}, CPU]))) == (
        500,
        500,
    )


@pytest.mark.parametrize("second", [{"port": 8080}, {"port": 80}, {"port": 80, "filters": [{"type": "URLRewrite"}]}])
def test_two_backends_of_one_service_in_a_rule_are_refused(second):
    twice = route([CPU], [GPU, CPU, GPU | second])
    with pytest.raises(AmbiguousBackendError, match="rule 1 names Service chat-gpu 2 times"):
        splits(twice)
    assert splits(route([GPU | second, CPU], [GPU, CPU]))


@pytest.mark.parametrize("weights", [(833, 167), (1000, 0), (0, 1000), (500, 500), (1, 999)])
@pytest.mark.parametrize("third", [(45, 45, 10), (90, 0, 10), (1, 1, 1), (0, 0, 5), (1, 0, 9), (7, 900, 100_000)])
def test_the_share_of_a_third_backend_stays(third, weights):
    gpu, cpu, canary = third
    refs = [GPU | {"weight": gpu}, {"name": "canary", "weight": canary}, CPU | {"weight": cpu}]
    [[to_gpu, to_canary, to_cpu]] = after(route(refs), weights)
    assert to_canary == canary
    assert to_gpu + to_cpu == gpu + cpu
    assert to_gpu >= 0
    assert to_cpu >= 0
    whole = gpu + cpu
    for got, wanted in ((to_gpu, weights[0]), (to_cpu, weights[1])):
        assert abs(got - whole * wanted / 1000) <= 1
        if whole > 1:
            assert (got > 0) == (wanted > 0)


def test_small_weights_beside_others_are_coarse():
    third = {"name": "canary", "weight": 1}
    assert [split.coarse for split in splits(route([GPU | {"weight": 1}, CPU | {"weight": 1}, third], [GPU, CPU]))] == [
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("rules", "shares"),
    [
        ([[GPU, CPU]], (0.5, 0.5)),
        ([[GPU | {"weight": 0}, CPU]], (0.0, 1.0)),
        ([[GPU | {"weight": 0}, CPU], [GPU]], (1.0, 1.0)),
        ([[GPU | {"weight": 0}, CPU], [GPU | {"weight": 0}]], (0.0, 1.0)),
        ([[GPU, {"name": "cpu-v2", "weight": 200}]], (1.0, 1.0)),
        ([[GPU | {"weight": 0}, CPU | {"weight": 0}]], (0.0, 0.0)),
        ([[GPU | {"weight": 90}, CPU | {"weight": 10}, {"name": "canary", "weight": 900}]], (0.9, 0.1)),
        ([], (1.0, 1.0)),
    ],
)
def test_a_pools_share_is_the_largest_that_any_rule_gives_it(rules, shares):
    assert shares_of(splits(route(*rules))) == shares


def parent(name="gateway", generation=3, status="True", kind="Accepted", **ref):
    condition = {"type": kind, "status": status, "observedGeneration": generation}
    return {"parentRef": {"name": name, **ref}, "conditions": [condition]}


@pytest.mark.parametrize(
    ("parents", "newest"),
    [
        ([], float("inf")),
        ([parent()], 3),
        ([parent(), parent("other", 2, sectionName="https")], 2),
        ([parent(status="False")], -1),
        ([parent(kind="Programmed", status="False")], -1),
        ([parent(kind="ResolvedRefs", status="False")], float("inf")),
        ([parent("of-another-route", 1)], float("inf")),
        ([parent(namespace="ns", group="gateway.networking.k8s.io", kind="Accepted")], 3),
        ([{"parentRef": {"name": "gateway"}, "conditions": [{"type": "Accepted", "status": "True"}]}], float("inf")),
    ],
)
def test_what_every_gateway_of_the_route_has_accepted(parents, newest):
    one = route([GPU, CPU])
    one["spec"]["parentRefs"] = [{"name": "gateway"}, {"name": "other", "sectionName": "https"}]
    assert acknowledged(one | {"status": {"parents": parents}}, "ns") == newest


def test_scale_writes_compare_and_swap():
    assert scale_patch(2, 5)[0] == {"op": "test", "path": "/spec/replicas", "value": 2}
    assert scale_patch(0, 1)[0]["value"] is None


def test_published_weights():
    assert format_weights((800, 200)) == "gpu=800,cpu=200"
