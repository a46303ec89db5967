"""The example manifests fit the command and the locked Ray. Against KubeRay's own schema they are checked by hand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlscaler_live.train_cli import general

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "kuberay"
LOCKED = re.search(r"^ray==([\d.]+)", (ROOT / "requirements" / "lock.txt").read_text(), re.MULTILINE)


def cluster(name: str) -> dict[str, Any]:
    (found,) = (body for body in yaml.safe_load_all((EXAMPLES / name).read_text()) if body["kind"].startswith("Ray"))
    return found["spec"].get("rayClusterSpec", found["spec"])


@pytest.mark.parametrize("name", ["rayjob.yaml", "raycluster.yaml"])
def test_versions_and_sizes_fit_together(name):
    assert LOCKED
    spec = cluster(name)
    assert spec["rayVersion"] == LOCKED[1]
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    images = {container["image"] for group in groups for container in group["template"]["spec"]["containers"]}
    assert len(images) == 1
    dockerfile = (EXAMPLES / "Dockerfile").read_text()
    assert f"docker build -t {images.pop()} " in dockerfile
    assert f"rayproject/ray:{LOCKED[1]}-py311" in dockerfile
    assert spec["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"


def test_the_job_runs_a_command_that_exists():
    jobs = [body for body in yaml.safe_load_all((EXAMPLES / "rayjob.yaml").read_text()) if body["kind"] == "RayJob"]
    program, name, *options = shlex.split(jobs[0]["spec"]["entrypoint"])
    assert (program, name) == ("rlscaler", "train")
    given = general.make_context(name, options).params
    assert given["address"] == "auto"
    (mount,) = cluster("rayjob.yaml")["workerGroupSpecs"][0]["template"]["spec"]["containers"][0]["volumeMounts"]
    assert Path(mount["mountPath"]) in given["out"].parents
