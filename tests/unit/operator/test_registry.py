import pytest

from rlscaler_core.decision.types import Flag
from rlscaler_operator.records.audit import uuid7
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.registry import Registry
from rlscaler_operator.state.status import flag_names


def body(name="chat", uid="u", generation=1, mode="Auto", gpu="chat-gpu", status=None, **metadata):
    return {
        "apiVersion": "rlscaler.io/v1alpha1",
        "kind": "RLScalingPolicy",
        "metadata": {
            "namespace": "ns",
            "name": name,
            "uid": uid,
            "generation": generation,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": [{"manager": "kubectl"}],
            **metadata,
        },
        "spec": {
            "mode": mode,
            "targets": {"gpu": {"deployment": gpu, "maxReplicas": 4}},
            "slo": {"latencyMilliseconds": 500},
        },
        "status": status or {},
    }


ORIGINALS = {"originals": {"time": "2026-01-01T00:00:00Z", "replicas": {"gpu": 3}}}


def test_an_edit_keeps_what_is_remembered_a_new_object_does_not():
    registry = Registry()
    policy = registry.put(body())
    policy.decision.desired = {"gpu": 3}
    assert registry.put(body(generation=2, mode="Shadow")) is policy
    assert policy.spec.mode == "Shadow"
    assert registry.put(body(uid="other")).decision.desired == {}


def test_an_invalid_edit_is_kept_as_invalid_and_healed_by_the_next():
    registry = Registry()
    policy = registry.put(body())
    registry.put(body(generation=2, mode="Sometimes"))
    assert "spec.mode" in policy.observed.invalid
    assert not policy.running
    registry.put(body(generation=3))
    assert policy.running


def test_who_takes_over_goes_by_what_the_former_leader_wrote():
    registry = Registry()
    registry.put(body())
    registry.put(body(status=ORIGINALS))
    assert registry.get(("ns", "chat")).ownership.originals is None
    registry.adopt(registry.get(("ns", "chat")))
    assert registry.get(("ns", "chat")).ownership.originals.replicas.gpu == 3


def test_originals_belong_to_the_deployment_they_were_taken_from():
    registry = Registry()
    policy = registry.put(body(status=ORIGINALS))
    registry.put(body(generation=2, status=ORIGINALS, gpu="else"))
    assert policy.ownership.originals is None


def test_only_policies_that_act_hold_their_targets():
    registry = Registry()
    registry.put(body())
    registry.put(body(name="shadow", uid="s", mode="Shadow"))
    registry.put(body(name="going", uid="g", deletionTimestamp="2026-01-02T00:00:00Z"))
    assert [claim.name for claim in registry.claims([("ns", "chat-gpu")])["ns", "chat-gpu"]] == ["chat"]
    assert {policy.key[1] for policy in registry.of_deployment(("ns", "chat-gpu"))} == {"chat", "shadow", "going"}


def test_a_deleted_policy_is_dropped_unless_it_was_made_again():
    registry = Registry()
    registry.put(body())
    assert registry.drop(("ns", "chat"), "former") is None
    assert registry.drop(("ns", "chat"), "u") is not None
    assert len(registry) == 0


def test_decision_ids_sort_by_time():
    ids = [uuid7(second) for second in (1.0, 2.0, 1e9)]
    assert ids == sorted(ids)
    assert {(one[14], one[19] in "89ab") for one in ids} == {("7", True)}


def test_flags_are_words():
    assert flag_names(Flag.FLOOR | Flag.OUT_OF_ENVELOPE) == ["Floor", "OutOfEnvelope"]


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("http://prometheus:9090", True),
        ("http://prometheus:9090/", True),
        ("http://prometheus:9090.evil.example", False),
        ("http://team:9090/a", True),
        ("http://else:9090", False),
    ],
)
def test_only_allowed_prometheuses_are_asked(url, allowed):
    settings = Settings(prometheus_url="http://prometheus:9090", allowed_prometheus_urls=("http://team:9090/",))
    assert settings.may_query(url) is allowed


def test_settings_come_from_the_environment_and_windows_span_four_scrapes(monkeypatch):
    monkeypatch.setenv("RLSCALER_NAMESPACES", "a, b")
    monkeypatch.setenv("RLSCALER_SCRAPE_INTERVAL_SECONDS", "30")
    settings = Settings()
    assert settings.namespaces == ("a", "b")
    assert settings.window_seconds == settings.resource_window_seconds == 120
    assert Settings(scrape_interval_seconds=2).window_seconds == 10


@pytest.mark.parametrize(("scrape", "window"), [(2, 10), (5, 10), (5.125, 10.25), (5.14361, 10.288), (15, 30)])
def test_the_window_of_arrivals_is_never_shorter_than_two_scrapes(scrape, window):
    assert Settings(scrape_interval_seconds=scrape).arrival_window_seconds == window
