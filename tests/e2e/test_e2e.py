"""The shortest end-to-end run: installed from images and charts, loaded, upgraded, its leader killed, taken away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e
NAME = f"pytest-e2e-{os.getpid()}"


def test_the_product_scales_real_pods_and_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rlscaler_live.cli", "e2e", "--out", str(tmp_path), "--cluster-name", NAME]
    options = ["--patterns", "spike", "--duration", "60", "--lifecycle", "90", "--gpu-cold-start", "8-12"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["left_in_cluster"] == summary["left_on_host"] == []
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
    for picture in ("comparison.png", "traffic.png", "rl-spike/timeline.png"):
        assert (tmp_path / picture).stat().st_size > 20_000
