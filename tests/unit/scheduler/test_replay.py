"""Suggestions made again from their records: the same ones come out, and changed ones are found."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from rlscaler_core.placement.actor import PlacementActor, PlacementManifest
from rlscaler_core.placement.features import CONTRACT, columns
from rlscaler_core.placement.policies import DEFAULT_RULE, PLUGIN_LEVELS, Policy
from rlscaler_live.cli import main
from rlscaler_scheduler.cache import Cache
from rlscaler_scheduler.objects import GPU_MODEL, LATENCY, Resources, pod_facts
from rlscaler_scheduler.overrides import Override, Overrides
from rlscaler_scheduler.replay import inputs, repeat
from rlscaler_scheduler.settings import Settings
from rlscaler_scheduler.suggest import Suggester

RESOURCES = Resources("nvidia.com/gpu", "rlscaler.io/gpu-milli")


class Network(PlacementActor):
    """Values that depend on all that it is given."""

    def __init__(self, policy: Policy) -> None:
        self.manifest = PlacementManifest(
            contract=CONTRACT,
            policy=policy,
            columns=columns(policy),
            digest="",
            trained_nodes=(1, 2),
            rule=DEFAULT_RULE[policy],
            steps=0,
            seed=0,
        )

    def values(self, seen):
        return seen @ np.linspace(1, 2, seen.shape[1])


def cluster(seed: int) -> Cache:
    rng = np.random.default_rng(seed)
    cache = Cache(RESOURCES, 30.0)
    cache.set_nodes(
        [
            {
                "metadata": {
                    "name": f"n{index}",
                    "labels": {GPU_MODEL: f"m{index % 3}"},
                    "annotations": {LATENCY: str(rng.integers(100))} if rng.random() < 0.7 else {},
                },
                "status": {
                    "allocatable": {
                        "cpu": str(rng.integers(4, 64)),
                        "memory": "64Gi",
                        "pods": "110",
                        "nvidia.com/gpu": str(rng.integers(0, 4)),
                    }
                },
            }
            for index in range(rng.integers(1, 30))
        ]
    )
    cache.set_pods([body(f"old{index}", rng) for index in range(40)])
    return cache


def body(name: str, rng: np.random.Generator) -> dict:
    asked = {"cpu": f"{rng.integers(1, 4000)}m", "memory": f"{rng.integers(1, 4000)}Mi"}
    if rng.random() < 0.5:
        asked["rlscaler.io/gpu-milli"] = str(rng.integers(1, 2001))
    limits = {"latencySoftConstraint": "30", "latencyHardConstraint": "70"} if rng.random() < 0.5 else {}
    lifetime = {"rlscaler.io/expected-lifetime-seconds": "600"} if rng.random() < 0.5 else {}
    return {
        "metadata": {
            "name": name,
            "uid": name,
            "namespace": "shop",
            "annotations": {**limits, **lifetime, "rlscaler.io/scoring-policy": str(rng.choice(list(Policy)))},
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "nodeName": f"n{rng.integers(30)}" if name.startswith("old") else "",
            "containers": [{"resources": {"requests": asked}}],
        },
    }


def lines_of(seed: int, networks: dict) -> list[str]:
    """Records of twenty pods, some of them with overrides."""
    rng, cache, overrides = np.random.default_rng(seed + 1000), cluster(seed), Overrides()
    overrides.put(Override(node="n1", avoid=True, seconds=600))
    overrides.put(Override(namespace="shop", pod="p3", node="n0", seconds=600))
    suggester = Suggester(cache, overrides, Settings(), networks)
    lines = []
    for index in range(20):
        waiting = body(f"p{index}", rng)
        cache.change_pod(waiting, False)
        facts = pod_facts(waiting, RESOURCES)
        suggestion = suggester.suggest(facts, cache.rows_of(cache.names()))
        assert suggestion.levels(PLUGIN_LEVELS).max() == PLUGIN_LEVELS
        cache.assume(facts, suggestion.chosen)
        lines.append(json.dumps(suggestion.shown() | {"inputs": inputs(suggestion)}))
    return lines


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("network", [False, True])
def test_every_suggestion_comes_out_again(seed: int, network: bool) -> None:
    networks = {policy: Network(policy) for policy in Policy} if network else {}
    lines = lines_of(seed, networks)
    by = {json.loads(line)["by"] for line in lines}
    assert by == {"network" if network else "rule", "override"}
    found = repeat(lines, networks)
    assert (found.same, found.different, found.without_inputs) == (20, [], 0)
    if network:
        without = repeat(lines, {})
        assert without.same == 0
        assert "name its folder with --model-dir" in without.different[0]


def test_what_was_changed_is_found(tmp_path) -> None:
    lines = lines_of(3, {})
    log = tmp_path / "decisions.jsonl"
    log.write_text("\n".join(lines) + "\n")
    done = CliRunner().invoke(main, ["scheduler", "replay", str(log)])
    assert done.exit_code == 0, done.output
    assert "20 came out as recorded, 0 did not" in done.output
    other, worse, cut, bare = (json.loads(line) for line in lines[:4])
    other["node"] = "n-other"
    worse["best"][0]["score"] += 1
    cut["inputs"]["names"] = cut["inputs"]["names"][:-8]
    del bare["inputs"]
    log.write_text("\n".join([*map(json.dumps, (other, worse, cut, bare)), *lines[4:], lines[5][:100]]) + "\n")
    done = CliRunner().invoke(main, ["scheduler", "replay", str(log)])
    assert done.exit_code == 1
    for said in ("line 1: shop/p0: n-other was recorded", "line 2: ", "line 3: is no record", "line 21: is no record"):
        assert said in done.output
    assert "1 were written without --decision-log-inputs" in done.output
    assert "16 came out as recorded, 4 did not" in done.output
