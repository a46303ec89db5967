"""The shortest end-to-end runs: installed from images and charts, loaded, hurt, resized, taken away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.e2e
NAME = f"pytest-e2e-{os.getpid()}"


def run(out: Path, *options: str) -> dict[str, Any]:
    """The summary of `rlscaler e2e` with these options, after which nothing is left."""
    command = [sys.executable, "-m", "rlscaler_live.cli", "e2e", "--out", str(out), "--cluster-name", NAME, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    summary: dict[str, Any] = json.loads((out / "summary.json").read_text())
    assert summary["left_in_cluster"] == summary["left_on_host"] == []
    return summary


def test_the_product_scales_real_pods_and_leaves_nothing_behind(tmp_path: Path) -> None:
    load = ("--only", "patterns,lifecycle", "--patterns", "spike", "--duration", "60", "--lifecycle", "90")
    summary = run(tmp_path, *load, "--gpu-cold-start", "8-12")
    rl, hpa = summary["runs"]
    assert (rl["contender"], hpa["contender"]) == ("rl", "hpa")
    assert rl["requests"] == hpa["requests"] > 1000
    assert rl["scale_ups"] > 0
    assert rl["decisions"] >= 3
    assert rl["unknown_observations"] == 0
    assert summary["most_pods_at_once"] > 6
    assert summary["traffic"]["rl-spike"]["mean_error"] < 0.1
    assert summary["lifecycle"]["successor"] != summary["lifecycle"]["leader_killed"]
    assert summary["lifecycle"]["takeover_seconds"] < 30
    received = {sample["metric"]["pool"]: float(sample["value"][1]) for sample in summary["prometheus"]["received"]}
    assert min(received["gpu"], received["cpu"]) > 0
    for run_name in ("rl-spike", "hpa-spike"):
        assert (tmp_path / run_name / "timeline.png").stat().st_size > 20_000


@pytest.fixture(scope="module")
def sizes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Pods of the part `sizes` in the summary."""
    summary = run(tmp_path_factory.mktemp("e2e"), "--only", "sizes", "--gpu-cold-start", "3-5")
    return dict(summary["sizes"])


def mebibytes(pod: dict[str, Any], when: str = "cgroup") -> float:
    return float(pod[when]["memory_mib"])


def test_running_pods_are_resized_and_the_kernel_agrees(sizes: dict[str, Any]) -> None:
    pods = [*sizes["grows"], sizes["shrinks"], sizes["too_large"], sizes["waits"]]
    assert {pod["restarts"] for pod in pods} == {0}
    assert {len(pod["containers"]) for pod in pods} == {1}
    for pod in sizes["grows"]:
        before, after = pod["cgroup_at_first"], pod["cgroup"]
        assert after["cores"] >= 2 * before["cores"]
        assert after["weight"] > before["weight"]
        assert mebibytes(pod) > mebibytes(pod, "cgroup_at_first")
        assert pod["patch_to_cgroup_seconds"] is not None
    began, ran = sizes["new_pod"]["cgroup_at_first"], sizes["grows"][0]["cgroup"]
    assert all(began[name] == ran[name] for name in ("weight", "cores", "memory_mib")), (
        "a new pod begins with that size"
    )


def test_memory_is_lowered_to_what_is_needed_and_no_further(sizes: dict[str, Any]) -> None:
    assert sizes["shrinks"]["decided"] == "128Mi"
    assert 140 < mebibytes(sizes["shrinks"]) < mebibytes(sizes["shrinks"], "cgroup_at_first") == 256
    assert sizes["by_hand"]["reason"] == "Error"
    assert mebibytes(sizes["by_hand"]) == mebibytes(sizes["shrinks"])
    assert sizes["by_hand"]["restarts"] == 0


def test_a_size_that_the_node_has_no_room_for_is_said_with_the_remedy(
    sizes: dict[str, Any],
) -> None:
    assert sizes["too_large"]["reason"] == "ResizeInfeasible"
    assert sizes["too_large"]["pod"] in sizes["too_large"]["message"]
    assert "lower the largest size" in sizes["too_large"]["message"]
    assert sizes["too_large"]["cgroup"] == sizes["too_large"]["cgroup_at_first"]
    assert sizes["waits"]["said"] == "Deferred"
    assert sizes["waits"]["cores_while_it_waited"] == sizes["waits"]["cgroup_at_first"]["cores"]
    assert sizes["waits"]["cgroup"]["cores"] > sizes["waits"]["cores_while_it_waited"]
