from rlscaler_operator.actuation.routes import current_weights, format_weights, route_patch
from rlscaler_operator.actuation.scale import scale_patch

BACKENDS = ("chat-gpu", "chat-cpu")


def route(*rules):
    return {
        "metadata": {"resourceVersion": "1"},
        "spec": {"rules": [{"backendRefs": list(refs)} for refs in rules]},
    }


GPU, CPU = {"name": "chat-gpu", "weight": 500}, {"name": "chat-cpu", "weight": 500}


def test_weights_are_changed_only_where_they_are_what_was_read():
    assert route_patch(route([CPU, GPU]), BACKENDS, (800, 200)) == [
        {"op": "test", "path": "/spec/rules/0/backendRefs/1/name", "value": "chat-gpu"},
        {"op": "test", "path": "/spec/rules/0/backendRefs/1/weight", "value": 500},
        {"op": "add", "path": "/spec/rules/0/backendRefs/1/weight", "value": 800},
        {"op": "test", "path": "/spec/rules/0/backendRefs/0/name", "value": "chat-cpu"},
        {"op": "test", "path": "/spec/rules/0/backendRefs/0/weight", "value": 500},
        {"op": "add", "path": "/spec/rules/0/backendRefs/0/weight", "value": 200},
    ]


def test_right_weights_need_no_write():
    assert route_patch(route([GPU, CPU]), BACKENDS, (500, 500)) == []


def test_only_rules_that_split_between_the_two_are_touched():
    other = {"name": "docs", "weight": 1}
    patch = route_patch(route([other], [GPU], [GPU, other, CPU]), BACKENDS, (1000, 0))
    assert {step["path"].split("/")[3] for step in patch} == {"2"}
    assert "/spec/rules/2/backendRefs/1/weight" not in {step["path"] for step in patch}


def test_an_absent_weight_is_one():
    bare = route([{"name": "chat-gpu"}, CPU])
    assert current_weights(bare, BACKENDS) == (1, 500)
    assert route_patch(bare, BACKENDS, (1, 500)) == []
    assert current_weights(route([GPU]), BACKENDS) is None


def test_another_kind_of_backend_of_the_same_name_is_none_of_ours():
    assert current_weights(route([GPU | {"kind": "InferencePool"}, CPU]), BACKENDS) is None


def test_scale_writes_compare_and_swap():
    assert scale_patch(2, 5)[0] == {"op": "test", "path": "/spec/replicas", "value": 2}
    assert scale_patch(0, 1)[0]["value"] is None


def test_published_weights():
    assert format_weights((800, 200)) == "gpu=800,cpu=200"
