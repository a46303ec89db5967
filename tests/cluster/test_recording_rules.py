"""The recording rules that the chart can install, evaluated by promtool on each preset's exposition.

Counters rise by a sixtieth of what the file says each second, as in tests/cluster/presets, whose expected values hold.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from rlscaler_dev.cluster import binaries
from rlscaler_dev.cluster.progress import ConsoleReporter
from rlscaler_dev.generate.recording import recorded
from tests.harness.presets import DATA, HELD, P95_MS, RATES, TOKENS, pod
from tests.harness.setup import REPOSITORY

RULES = REPOSITORY / "helm" / "rlscaler" / "recording"
STEP_SECONDS = 15
STEPS = 40
FOUND_BY = {"istio": "shop", "nginx": "shop"}
"""Namespaces that the series say of themselves; those of pods are found in that of the scrape."""


@pytest.fixture(scope="module")
def promtool() -> str:
    with ConsoleReporter() as progress:
        return binaries.provide(["promtool"], progress)["promtool"]["path"]


def series(name: str) -> list[dict[str, str]]:
    """What promtool is to play: the exposition's series, scraped every 15 s with the labels of a target."""
    types: dict[str, str] = {}
    played = []
    deployment = {"knative": "chat-00001-deployment", "epp": "chat-epp"}.get(name, "chat-gpu")
    target = {"namespace": "gateways" if name in FOUND_BY else "shop", "pod": pod(deployment), "job": "targets"}
    for line in (DATA / f"{name}.txt").read_text().splitlines():
        if line.startswith("# TYPE "):
            _, _, metric, kind = line.split()
            types[metric] = kind
        elif line and not line.startswith("#"):
            whole, value = line.rsplit(" ", 1)
            metric, _, inside = whole.partition("{")
            own = dict(re.findall(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"', inside))
            labels = {**target, **{f"exported_{key}" if key in target else key: said for key, said in own.items()}}
            rises = types.get(metric, "histogram") in ("counter", "histogram")
            each = float(value) * STEP_SECONDS / 60
            steps = f"0+{each:.9f}x{STEPS}" if rises else f"{float(value):.9f}+0x{STEPS}"
            told = ",".join(f'{key}="{said}"' for key, said in labels.items())
            played.append({"series": f"{metric}{{{told}}}", "values": steps})
    return played


def expected(name: str) -> dict[str, tuple[float, float]]:
    """The least and the largest value of each series that is recorded."""
    found = {}
    if rate := RATES[name]:
        found["rlscaler:arrivals:rate2m"] = (0.99 * rate, 1.01 * rate)
    if name in TOKENS:
        found["rlscaler:tokens:rate2m"] = (0.99 * TOKENS[name], 1.01 * TOKENS[name])
    if name in HELD:
        both, runs = HELD[name]
        found["rlscaler:requests_running:sum"] = (runs, runs)
        found["rlscaler:requests_waiting:sum"] = (both - runs, both - runs)
    if name in P95_MS:
        low, high = P95_MS[name]
        found["rlscaler:latency_seconds:p95_2m"] = (low / 1000, high / 1000)
    return found


def played(promtool: str, name: str, tests: list[dict[str, object]], folder: Path) -> subprocess.CompletedProcess[str]:
    group = {"interval": f"{STEP_SECONDS}s", "input_series": series(name), "promql_expr_test": tests}
    body = {"rule_files": [str(RULES / f"{name}.yaml")], "evaluation_interval": "15s", "tests": [group]}
    path = folder / "test.yaml"
    path.write_text(yaml.safe_dump(body, width=10_000))
    return subprocess.run([promtool, "test", "rules", path], capture_output=True, text=True, check=False)


def between(record: str, low: float, high: float) -> dict[str, object]:
    """One element there is, and it lies between the two."""
    text = f"count({record}) == 1 and on () ({record} >= {low:.9g}) and on () ({record} <= {high:.9g})"
    return {"expr": text, "eval_time": "9m", "exp_samples": [{"labels": "{}", "value": 1}]}


@pytest.mark.parametrize("name", recorded())
def test_a_preset_is_recorded_as_the_operator_reads_it(promtool: str, name: str, tmp_path: Path) -> None:
    wanted = expected(name)
    told = [one["record"] for one in yaml.safe_load((RULES / f"{name}.yaml").read_text())["groups"][0]["rules"]]
    assert set(wanted) <= set(told)
    done = played(promtool, name, [between(record, *bounds) for record, bounds in wanted.items()], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_value_is_seen(promtool: str, tmp_path: Path) -> None:
    done = played(promtool, "vllm", [between("rlscaler:arrivals:rate2m", 0.5, 0.6)], tmp_path)
    assert done.returncode != 0
    assert "rlscaler:arrivals:rate2m" in done.stdout + done.stderr


@pytest.mark.parametrize("name", recorded())
def test_the_rules_are_valid(promtool: str, name: str) -> None:
    done = subprocess.run(
        [promtool, "check", "rules", "--lint=all", RULES / f"{name}.yaml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_they_say_whose_they_are(promtool: str, tmp_path: Path) -> None:
    """By Deployment where series are the pods', by service where they name one, and always by preset."""
    labels = '{deployment="chat-gpu", namespace="shop", preset="vllm"}'
    one = {"expr": "count by (namespace, deployment, preset) (rlscaler:arrivals:rate2m)", "eval_time": "9m"}
    done = played(promtool, "vllm", [one | {"exp_samples": [{"labels": labels, "value": 1}]}], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    labels = '{service="chat", namespace="shop", preset="istio"}'
    one = {"expr": "count by (namespace, service, preset) (rlscaler:arrivals:rate2m)", "eval_time": "9m"}
    done = played(promtool, "istio", [one | {"exp_samples": [{"labels": labels, "value": 1}]}], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
