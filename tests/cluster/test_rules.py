"""promtool on the rules that ship: they are valid, and each alert fires and stays quiet when it should."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rlscaler_dev.cluster import binaries
from rlscaler_dev.cluster.progress import ConsoleReporter
from tests.harness.monitoring import RULES

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def promtool() -> str:
    with ConsoleReporter() as progress:
        return binaries.provide(["promtool"], progress)["promtool"]["path"]


def test_the_rules_are_valid(promtool: str) -> None:
    done = subprocess.run(
        [promtool, "check", "rules", "--lint=all", RULES], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_fires_and_stays_quiet_when_it_should(promtool: str) -> None:
    path = REPOSITORY / "tests" / "rules" / "rlscaler.yaml"
    done = subprocess.run([promtool, "test", "rules", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
