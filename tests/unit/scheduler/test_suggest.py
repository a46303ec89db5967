"""Nodes, pods and suggestions of the server, without HTTP."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pydantic import ValidationError

from rlscaler_core.decision.exceptions import ModelError
from rlscaler_core.placement.actor import PlacementActor, PlacementManifest
from rlscaler_core.placement.features import CONTRACT, columns
from rlscaler_core.placement.policies import DEFAULT_RULE, Policy
from rlscaler_scheduler.annotations import wishes
from rlscaler_scheduler.objects import amount, number, pod_facts
from rlscaler_scheduler.overrides import Override, Overrides
from rlscaler_scheduler.settings import Settings
from rlscaler_scheduler.suggest import Suggester
from tests.harness.placed import RESOURCES, cache_of, look, node, pod, suggest


def test_quantities_and_numbers() -> None:
    assert [amount(text) for text in ("250m", "4Gi", "1e3")] == [0.25, 4 * 2**30, 1000.0]
    assert math.isnan(amount("much"))
    assert [number(text) for text in ("20", "1.5")] == [20.0, 1.5]
    assert all(math.isnan(number(text)) for text in (None, "near", "-1", "inf", "nan", ""))


def test_requests_are_counted_as_kube_scheduler_does() -> None:
    body = pod("p", cpu="300m")
    body["spec"]["overhead"] = {"cpu": "50m"}
    body["spec"]["initContainers"] = [
        {"restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}},
        {"resources": {"requests": {"cpu": "2"}}},
    ]
    assert pod_facts(body, RESOURCES).cpu_milli == 2150, "the init container with the sidecar before it, and overhead"
    del body["spec"]["initContainers"][1]
    assert pod_facts(body, RESOURCES).cpu_milli == 450
    body["spec"]["containers"][0]["resources"]["requests"] = {"rlscaler.io/gpu-milli": "250"}
    assert pod_facts(body, RESOURCES)[7:9] == (1, 250.0)
    body["spec"]["containers"][0]["resources"]["requests"] = {"nvidia.com/gpu": "2"}
    assert pod_facts(body, RESOURCES)[7:9] == (2, 1000.0)


def test_pods_come_move_and_go() -> None:
    cache = cache_of(node("a"), node("b", gpus=2))
    cache.change_pod(pod("early", on="later", cpu="2"), False)
    cache.change_node(node("later"), False)
    cache.change_pod(pod("p", on="a", cpu="500m"), False)
    cache.change_pod(pod("d", on="a", owner="DaemonSet", cpu="100m"), False)
    cache.change_pod(pod("w", on="b", nvidia_com__gpu="1"), False)
    names, seen = look(cache, "later", "b", "a", "gone")
    assert names == ["a", "b", "later"]
    assert seen.requested[:, 0].tolist() == [600.0, 0.0, 2000.0]
    assert seen.pods.tolist() == [1, 1, 1], "a DaemonSet's pod does not make a node used"
    assert seen.pod_limit.tolist() == [109, 110, 110]
    assert seen.gpu_free[1].sum() == 1000
    done = pod("p", on="a")
    done["status"] = {"phase": "Succeeded"}
    cache.change_pod(done, False)
    cache.change_pod(pod("w", on="b"), True)
    cache.change_node(node("later"), True)
    names, seen = look(cache, "a", "b", "later")
    assert names == ["a", "b"]
    assert seen.requested[:, 0].tolist() == [100.0, 0.0]
    assert seen.gpu_free[1].sum() == 2000
    cache.set_pods([])
    assert look(cache, "a")[1].requested.sum() == 0


@pytest.mark.parametrize("seed", range(5))
def test_whatever_happens_the_sums_are_those_of_a_fresh_list(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cache, held, there = cache_of(), {}, {}
    for _ in range(300):
        name, action = f"n{rng.integers(6)}", rng.random()
        if action < 0.15:
            there[name] = node(name, str(rng.integers(4, 64)), gpus=int(rng.integers(0, 3)))
            cache.change_node(there[name], False)
        elif action < 0.2:
            cache.change_node(node(name), True)
            there.pop(name, None)
        elif action < 0.7:
            uid = f"p{rng.integers(40)}"
            held[uid] = pod(uid, on=name, cpu=f"{rng.integers(1, 900)}m", memory=f"{rng.integers(1, 900)}Mi")
            cache.change_pod(held[uid], False)
        elif action < 0.8:
            cache.assume(pod_facts(pod(f"w{rng.integers(9)}"), RESOURCES), name)
        elif action < 0.85:
            cache.change_pod(pod(f"w{rng.integers(9)}"), False)
        elif held:
            uid = sorted(held)[rng.integers(len(held))]
            cache.change_pod(held.pop(uid), True)
    for body in held.values():
        cache.change_pod(body, False)
    for index in range(9):
        cache.release(f"w{index}")
    fresh = cache_of(*there.values())
    fresh.set_pods(list(held.values()))
    (names, seen), (_, expected) = look(cache, *there), look(fresh, *there)
    assert names == sorted(there)
    for column, wanted in zip(seen, expected, strict=True):
        np.testing.assert_allclose(column, wanted)


def test_an_assumed_pod_counts_until_it_is_seen_or_its_time_is_up() -> None:
    now = [0.0]
    cache = cache_of(node("a"), node("b"), clock=lambda: now[0])
    cache.set_pods([pod("p", cpu="4"), pod("q")])
    facts = pod_facts(pod("p", cpu="4"), RESOURCES)
    cache.assume(facts, "a")
    assert look(cache, "a")[1].requested[0, 0] == 4000
    cache.set_pods([pod("p", cpu="4"), pod("q")])
    assert look(cache, "a")[1].requested[0, 0] == 4000, "a list that is older than the binding"
    cache.change_pod(pod("p", on="b", cpu="4"), False)
    assert look(cache, "a", "b")[1].requested[:, 0].tolist() == [0, 4000]
    cache.assume(pod_facts(pod("q"), RESOURCES), "a")
    now[0] = 31.0
    cache.expire()
    assert look(cache, "a", "b")[1].requested[:, 0].tolist() == [0, 4000]


def test_only_pods_that_the_watch_shows_as_pending_are_assumed() -> None:
    now = [0.0]
    cache = cache_of(node("a"), node("b"), clock=lambda: now[0])
    cache.set_pods([pod("p", cpu="1"), pod("bound", on="b", cpu="1")])
    for index in range(2000):
        assert not cache.assume(pod_facts(pod(f"ghost-{index}", cpu="4"), RESOURCES), "a")
    for name, uid in (("p", "another"), ("bound", "bound")):
        body = pod(name, cpu="4")
        body["metadata"]["uid"] = uid
        assert not cache.assume(pod_facts(body, RESOURCES), "a")
    assert look(cache, "a", "b")[1].requested[:, 0].tolist() == [0, 1000]
    assert cache.assume(pod_facts(pod("p", cpu="9"), RESOURCES), "a")
    assert look(cache, "a")[1].requested[0, 0] == 1000, "what it takes is what the watch shows"
    cache.assume(pod_facts(pod("early"), RESOURCES), "b")
    cache.assume(pod_facts(pod("late"), RESOURCES), "b")
    cache.change_pod(pod("early", cpu="2"), False)
    assert look(cache, "b")[1].requested[0, 0] == 3000, "kube-scheduler saw it before this server did"
    now[0] = 31.0
    cache.change_pod(pod("late", cpu="2"), False)
    cache.expire()
    assert look(cache, "b")[1].requested[0, 0] == 1000


def test_a_rule_that_is_named_acts_in_place_of_the_default_one() -> None:
    for rules, rule in (({}, "pack"), ({Policy.EE: "least-extension"}, "least-extension")):
        suggester = Suggester(cache_of(node("a"), node("b")), Overrides(), Settings(rules=rules), {})
        assert suggest(suggester, pod_facts(pod("p"), RESOURCES), "a", "b").rule == rule
    with pytest.raises(
        ValidationError, match="'spread' is no rule of EE: name one of pack, least-extension, pack-and-extension"
    ):
        Settings(rules={Policy.EE: "spread"})


def test_annotations_of_pod_and_namespace() -> None:
    found = wishes({"latencySoftConstraint": "20"}, {"rlscaler.io/latency-hard-ms": "50"}, Policy.EE)
    assert found[:4] == (Policy.EE, 20.0, 50.0, ())
    found = wishes({"rlscaler.io/latency-soft-ms": "60", "rlscaler.io/scoring-policy": "LB"}, {}, Policy.EE)
    assert found.policy is Policy.LB
    above = wishes({"latencySoftConstraint": "60", "latencyHardConstraint": "50"}, {}, Policy.EE)
    assert math.isnan(above.soft_ms)
    assert above.hard_ms == 50
    assert "is above" in above.problems[0]
    assert len(wishes({"latencySoftConstraint": "x", "rlscaler.io/scoring-policy": "?"}, {}, Policy.EE).problems) == 2


def test_overrides_end_by_themselves() -> None:
    now = [0.0]
    held = Overrides(lambda: now[0])
    held.put(Override(namespace="shop", pod="p", node="a", seconds=10))
    held.put(Override(node="b", avoid=True, seconds=20))
    assert held.of("shop", "p") == ("a", {"b"})
    assert held.of("shop", "q") == (None, {"b"})
    now[0] = 15.0
    assert held.of("shop", "p") == (None, {"b"})
    held.put(Override(node="b", avoid=True, seconds=0))
    assert held.shown() == []


class Stub(PlacementActor):
    """A network of EE without a graph."""

    def __init__(self) -> None:
        self.manifest = PlacementManifest(
            contract=CONTRACT,
            policy=Policy.EE,
            columns=columns(Policy.EE),
            digest="",
            trained_nodes=(1, 2),
            rule=DEFAULT_RULE[Policy.EE],
            steps=0,
            seed=0,
        )


class Broken(Stub):
    """A network that fails, or that names no numbers."""

    def __init__(self, error: bool) -> None:
        super().__init__()
        self.error = error
        self.calls = 0

    def values(self, seen):
        self.calls += 1
        if self.error:
            raise ModelError("it failed")
        return np.full(len(seen), np.nan)


@pytest.mark.parametrize("error", [True, False])
def test_a_broken_network_gives_way_to_the_rule(error: bool) -> None:
    now = [0.0]
    cache, broken = cache_of(node("a"), node("b", "64")), Broken(error)
    suggester = Suggester(cache, Overrides(), Settings(), {Policy.EE: broken}, lambda: now[0])
    facts = pod_facts(pod("p"), RESOURCES)
    for _ in range(6):
        found = suggest(suggester, facts, "a", "b")
        assert (found.chosen, found.by) == ("b", "rule")
        assert found.problems
    assert broken.calls == 3, "after three faults it is left alone"
    now[0] = 31.0
    suggest(suggester, facts, "a", "b")
    assert broken.calls == 4


def test_a_late_network_gives_way_to_the_rule() -> None:
    now = [0.0]

    class Late(Stub):
        calls = 0

        def values(self, seen):
            self.calls += 1
            now[0] += 0.2
            return np.arange(len(seen), dtype=float)

    late = Late()
    suggester = Suggester(cache_of(node("a"), node("b")), Overrides(), Settings(), {Policy.EE: late}, lambda: now[0])
    by = [suggest(suggester, pod_facts(pod("p"), RESOURCES), "a", "b").by for _ in range(5)]
    assert by == ["network"] * 3 + ["rule"] * 2
