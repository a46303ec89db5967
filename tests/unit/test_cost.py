"""The limit of CPU time of a test without a marker, in a session of its own with a low limit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

CONFTEST = """
from tests.harness import cost
cost.LIMIT, cost._calibration = 0.05, lambda: cost.REFERENCE
pytest_configure = cost.register
"""

EXPENSIVE = """
import time
import pytest

def work():
    end = time.process_time() + 0.12
    while time.process_time() < end:
        pass

def test_unmarked():
    work()

@pytest.mark.slow
def test_marked():
    work()

def test_cheap():
    pass
"""


def test_an_expensive_test_without_a_marker_fails_the_session(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for folder in ("unit", "cluster"):
        (tmp_path / "tests" / folder).mkdir(parents=True)
        (tmp_path / "tests" / folder / "test_work.py").write_text(EXPENSIVE)
    options = ["-q", "-rA", "-p", "no:cacheprovider", "--import-mode=importlib", "-W", "ignore"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--rootdir", str(tmp_path), "tests"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    outcomes = {
        line.split()[1]: line.split()[0] for line in done.stdout.splitlines() if "::" in line and line[0] in "PF"
    }
    assert outcomes.pop("tests/unit/test_work.py::test_unmarked") == "FAILED"
    assert len(outcomes) == 5
    assert set(outcomes.values()) == {"PASSED"}, "tests that are marked, cheap or on a cluster"
    assert "0.1 s are allowed without a marker" in done.stdout
