"""The charts of a release, as the workflow and `make release-dry` package them."""

from __future__ import annotations

import os
import subprocess

import pytest
import yaml

from tests.harness.setup import REPOSITORY

DIGEST = "sha256:" + "0123456789abcdef" * 4


def package(helm, folder, digest=DIGEST):
    path = f"{helm.binary.parent}:{os.environ['PATH']}"
    words = [
        "dev/release/charts.sh",
        str(folder),
        "1.2.3",
        "registry.example.invalid/team",
        digest,
        "https://a.invalid/b",
    ]
    return subprocess.run(
        words, cwd=REPOSITORY, env=helm.environment | {"PATH": path}, capture_output=True, text=True, check=False
    )


def test_the_charts_run_the_images_of_the_release(helm, tmp_path):
    assert package(helm, tmp_path).returncode == 0
    text = helm.run("template", "here", str(tmp_path / "rlscaler-1.2.3.tgz"))
    assert f"registry.example.invalid/team/rlscaler@{DIGEST}" in text
    assert "localhost/" not in text
    shown = yaml.safe_load(helm.run("show", "chart", str(tmp_path / "rlscaler-1.2.3.tgz")))
    assert shown["version"] == shown["appVersion"] == "1.2.3"
    assert 'runbookBaseUrl: "https://a.invalid/b"' in helm.run("show", "values", str(tmp_path / "rlscaler-1.2.3.tgz"))
    demo = helm.run("template", "here", str(tmp_path / "rlscaler-demo-1.2.3.tgz"))
    assert "registry.example.invalid/team/rlscaler-service:1.2.3" in demo


@pytest.mark.parametrize("digest", ["", "v1.2.3", "sha256:12"])
def test_what_is_no_digest_is_refused(helm, tmp_path, digest):
    assert package(helm, tmp_path, digest).returncode != 0
    assert not list(tmp_path.iterdir())
