"""The demo of tenants without a cluster: its loads, its objects, and its figures from records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from rlscaler_core.api.budget import parse_budget
from rlscaler_core.api.policy import parse
from rlscaler_dev.demo.cli import demo
from rlscaler_dev.demo.load import write_trace
from rlscaler_dev.demo.tenants import manifests
from rlscaler_dev.demo.tenants.plan import TENANTS
from rlscaler_loadgen.cli import service
from rlscaler_loadgen.settings import LoadSettings


def write_records(folder: Path, name: str, held: int, latency_ms: float, waiting: int = 0) -> None:
    """Twenty seconds in which every tenant holds so many GPUs and every answer takes so long."""
    data = folder / name / "data"
    data.mkdir(parents=True)
    run = {"contender": name, "title": manifests.CONTENDERS[name].title, "duration_seconds": 20, "slo_ms": 1000}
    (data / "run.json").write_text(json.dumps(run | {"begun": {tenant.name: 100.0 for tenant in TENANTS}}))
    rows = [f"90,{tenant.name},{held + waiting},{held},{held},{waiting}" for tenant in TENANTS]
    (data / "replicas.csv").write_text("\n".join(["time,tenant,spec,held,ready,pending", *rows]) + "\n")
    for tenant in TENANTS:
        (data / tenant.name).mkdir()
        requests = [f"{100 + i / 2},{latency_ms},ok,200,gpu" for i in range(40)]
        (data / tenant.name / "requests.csv").write_text(
            "\n".join(["scheduled_at,latency_ms,outcome,status,pool", *requests]) + "\n"
        )


def test_every_load_is_replayed_as_it_was_written(tmp_path: Path) -> None:
    for tenant in TENANTS:
        rate = tenant.rate(60, 12.0)
        path = tmp_path / f"{tenant.name}.csv"
        peak = write_trace(rate, path)
        played = LoadSettings(pattern="trace", duration=60, trace=path, peak=peak).rate()
        assert played == pytest.approx(rate, abs=1e-3)


def test_policies_and_budget_are_valid_and_the_budget_selects_each_tenant_once() -> None:
    budget = parse_budget(manifests.budget("MaxMinFair")).spec
    for tenant in TENANTS:
        policy = manifests.policy(tenant, 10, 1000.0)
        assert parse(policy).spec.targets.gpu is not None
        labels = policy["metadata"]["labels"]
        assert [one.name for one in budget.members if one.selects(tenant.namespace, labels)] == [tenant.name]


@pytest.mark.slow
def test_figures_table_and_picture_come_from_the_records(tmp_path: Path) -> None:
    write_records(tmp_path, "hpa", held=1, latency_ms=1500, waiting=1)
    write_records(tmp_path, "max-min", held=2, latency_ms=500)
    done = CliRunner().invoke(demo, ["tenants", "--report", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    race, shared = json.loads((tmp_path / "summary.json").read_text())
    assert (race["held_percent"], race["late_percent"]) == (50.0, 100.0)
    assert race["cost"] == 8 + 0.5 * 100 * len(TENANTS)
    assert race["tenants"]["assistant"]["below_guarantee_percent"] == 100.0
    assert race["tenants"]["tagging"]["below_guarantee_percent"] == 0.0
    assert (shared["held_percent"], shared["late_percent"], shared["cost"]) == (100.0, 0.0, 16.0)
    assert shared["busy_percent"] == pytest.approx(25, abs=2)
    assert "| weighted max-min | 16.0 |" in done.output
    assert (tmp_path / "tenants.png").stat().st_size > 20_000


def test_a_folder_without_records_is_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(demo, ["tenants", "--report", "--out", str(tmp_path)])
    assert done.exit_code == 1
    assert "has no records of a demo of tenants" in done.output


def test_a_service_without_a_deployment_is_refused() -> None:
    done = CliRunner().invoke(service, ["fleet", "--namespace", "ns"])
    assert done.exit_code == 2
    assert "name --gpu-deployment, --cpu-deployment or both" in done.output
