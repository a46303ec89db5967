"""The two commands, from options to exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from rlscaler_live.compare_cli import compare, evaluate
from rlscaler_rl.evaluation.episodes import name_of
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.settings import read_settings

QUICK = "--model rule --runs 2 --episodes 1 --workloads ramp --level fluid --duration 120 --no-extras".split()  # noqa: SIM905


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda command, *options: CliRunner().invoke(command, options, catch_exceptions=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "name", "options"),
    [(evaluate, "comprehensive_evaluation", ["--accept-invalid"]), (compare, "rl_comparison_data", [])],
)
def test_a_quick_run_writes_its_folder_and_says_whether_it_is_valid(invoke, tmp_path, command, name, options):
    done = invoke(command, *QUICK, "--out", "here", *options)
    content = json.loads((tmp_path / "here" / f"{name}.json").read_text())
    assert done.exit_code == (0 if content["valid"] or options else 3), done.output
    assert content["settings"]["runs"] == 2
    assert {row["workload"] for row in content["rows"]} == {"ramp", "all"}
    assert "here" in done.output


@pytest.mark.slow
@pytest.mark.parametrize(("command", "name"), [(evaluate, "comprehensive_evaluation"), (compare, "rl_comparison_data")])
def test_as_json_standard_output_has_the_result_alone(invoke, tmp_path, command, name):
    done = invoke(command, *QUICK, "--out", "here", "--accept-invalid", "-o", "json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == json.loads((tmp_path / "here" / f"{name}.json").read_text())
    assert "playing ramp" in done.stderr


def test_options_win_over_the_file_and_the_file_over_the_defaults(tmp_path):
    environment = {"episode_duration": 180, "action_interval": 15, "namespace": "chat", "prometheus_url": "http://x"}
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"environment": environment, "agent": {"gamma": 0.9}}))
    settings = read_settings(path, duration_seconds=120, runs=None)
    assert (settings.duration_seconds, settings.interval_seconds, settings.runs) == (120, 15, 5)


@pytest.mark.parametrize(
    ("options", "content", "message"),
    [
        (["--workloads", "ramp,sawtooth"], None, "sawtooth: choose from ramp"),
        (["--workloads", "nowhere.csv"], None, "nowhere.csv"),
        (["--traces", "nowhere"], None, "no such folder; leave it out"),
        (["--workloads", "traces", "--duration", "86400"], None, "ask for shorter episodes"),
        (["--runs", "0"], None, "runs = 0"),
        (["--interval", "7"], None, "interval_seconds = 7"),
        (["--config", "c.json"], "{", "not JSON"),
        (["--config", "c.json"], '{"env": {}}', "the parts are `environment` and `agent`"),
        (["--config", "c.json"], '{"environment": {"action_interval": "often"}}', "action_interval = 'often'"),
        (["--config", "c.json"], '{"environment": {"min_replicas": 5, "max_replicas": 2}}', "min_replicas 5 is above"),
        (["--config", "c.json"], '{"environment": {"episode_length": 60}}', "episode_length: no such field; there are"),
        (["--config", "absent.json"], None, "No such file"),
    ],
)
def test_bad_input_names_the_field_and_plays_nothing(invoke, tmp_path, options, content, message):
    if content is not None:
        (tmp_path / "c.json").write_text(content)
    done = invoke(compare, "--model", "rule", *options)
    assert done.exit_code == 2
    assert message in done.output
    assert not (tmp_path / "rl").exists()


def test_groups_stand_for_their_workloads():
    assert read_settings(None, workloads=("traces", "ramp")).workloads[-1] == "ramp"
    assert read_settings(None, workloads=("patterns",)).workloads == ("ramp", "spike", "periodic", "random")
    assert len(read_settings(None).workloads) == 9


@pytest.mark.slow
def test_a_history_of_ones_own_is_a_workload(invoke, tmp_path):
    rates = "\n".join(f"{second},{20 + second // 60}" for second in range(1200))
    (tmp_path / "shop.csv").write_text(f"time_s,requests_per_s\n{rates}\n")
    options = [option if option != "ramp" else "shop.csv" for option in QUICK]
    invoke(evaluate, *options, "--out", "here", "--accept-invalid")
    content = json.loads((tmp_path / "here" / "comprehensive_evaluation.json").read_text())
    assert [(item["name"], item["kind"], item["blocks"]) for item in content["workloads"]] == [("shop.csv", "trace", 2)]


def test_the_published_schema_is_the_present_one(invoke):
    printed = json.loads(invoke(compare, "--schema").output)
    assert {"rows", "gate", "closed"} <= set(printed["properties"])
    published = Path(__file__).parents[3] / "docs" / "learning" / "comparison.schema.json"
    assert json.loads(published.read_text()) == printed, f"rlscaler compare --schema > {published}"


def test_files_of_one_name_are_refused_and_a_file_is_no_pattern():
    with pytest.raises(EvaluationError, match=r"load\.csv: two files of one name"):
        read_settings(None, workloads=("a/load.csv", "b/load.csv"))
    found = read_settings(None, workloads=("spike", "spike.csv", "load.2025-01.csv", "load.2025-02.csv"))
    assert len({name_of(name) for name in found.workloads}) == 4
