"""The demo of model servers without a cluster: its objects, and its figures from records."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from rlscaler_core.api.convert import to_params
from rlscaler_core.api.policy import parse
from rlscaler_dev.demo.cli import demo
from rlscaler_dev.demo.llm import results
from rlscaler_dev.demo.llm.plan import CONTENDERS, INITIAL, Play, deployment, scaler

FACTS = {
    "answer_weight": 6.2,
    "tokens_per_second": 14_321.5,
    "requests_per_second": 7.5,
    "first_seconds": 2.5,
    "token_seconds": 0.15,
}
PLAY = Play(Path("/nowhere"))


def write_records(folder: Path, name: str, late: int = 0, lost: int = 0) -> None:
    """A request a second for 100 s, of which some get a late or no first token, with 2 and then 4 replicas."""
    data = folder / name / "data"
    data.mkdir(parents=True)
    run = {"contender": name, "title": CONTENDERS[name].title, "server": "8b-a100"}
    (data / "run.json").write_text(json.dumps(run | {"begun": 1000.0, "duration_seconds": 100}))
    (data / "facts.json").write_text(json.dumps(FACTS))
    rows = []
    for second in range(100):
        first = "nan" if second < lost else "9.0" if second < lost + late else "0.5"
        token = "0.2" if second == 99 else "nan" if first == "nan" else "0.05"
        rows.append(f"{second},1000,100,2.0,{first},{token}")
    (data / "outcomes.csv").write_text("\n".join(["arrived,prompt,answer,need,first,token", *rows]) + "\n")
    replicas = ["990,2,2,2,0", "1050,4,4,2,2"]
    (data / "replicas.csv").write_text("\n".join(["time,spec,existing,ready,starting", *replicas]) + "\n")


def test_the_policy_declares_what_the_servers_tell_of_the_usual_mix() -> None:
    body = scaler(CONTENDERS["rlscaler"], PLAY, "http://127.0.0.1:9090", FACTS)
    params = to_params(parse(body).spec)
    assert params.requests_per_second[0, 0] == 14_322
    assert params.slo_ms[0] == 2500
    assert params.max_replicas[0, 0] == PLAY.pool.max_replicas
    assert deployment(PLAY)["spec"]["replicas"] == INITIAL


@pytest.mark.parametrize("name", ["keda", "keda-in-flight"])
def test_keda_reads_a_number_of_the_same_servers(name: str) -> None:
    body = scaler(CONTENDERS[name], PLAY, "http://127.0.0.1:9090", FACTS)
    (trigger,) = body["spec"]["triggers"]
    assert trigger["metadata"]["serverAddress"] == "http://127.0.0.1:9090"
    assert 'sum(vllm:num_requests_waiting{namespace="workloads"})' in trigger["metadata"]["query"]
    assert body["spec"]["maxReplicaCount"] == PLAY.pool.max_replicas


def test_late_is_a_first_or_further_token_beyond_the_objective_or_no_answer(tmp_path: Path) -> None:
    write_records(tmp_path, "keda", late=3, lost=2)
    played = results.read(tmp_path / "keda" / "data")
    figures = results.figures(played)
    assert (figures.late, figures.lost, figures.requests) == (6, 2, 100)
    assert figures.first_p95 == 9.0
    assert figures.replica_seconds == 50 * 2 + 50 * 4
    assert figures.needed == 200
    write_records(tmp_path / "worse", "keda", lost=6)
    assert results.figures(results.read(tmp_path / "worse" / "keda" / "data")).first_p95 is None


def test_records_make_a_table_and_a_picture(tmp_path: Path) -> None:
    write_records(tmp_path, "keda", late=10)
    write_records(tmp_path, "rlscaler")
    told = CliRunner().invoke(demo, ["llm", "--report", "--out", str(tmp_path)])
    assert told.exit_code == 0, told.output
    assert "11 of 100 (11.0 %)" in told.output
    assert "1 of 100 (1.0 %)" in told.output
    assert (tmp_path / "llm.png").stat().st_size > 20_000
    rows = json.loads((tmp_path / "summary.json").read_text())
    assert [row["late"] for row in rows] == [11, 1]
    assert np.isclose(rows[0]["replica_seconds"] / rows[0]["needed"], 1.5)


def test_a_folder_without_records_is_told(tmp_path: Path) -> None:
    told = CliRunner().invoke(demo, ["llm", "--report", "--out", str(tmp_path)])
    assert told.exit_code == 1
    assert "has no records of a demo of LLM" in told.output
