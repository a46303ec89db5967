"""Why a pod was suggested its node, as a person reads it: from logs, good and bad, and from a server."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from rlscaler_live.cli import main
from tests.harness.serving import Quiet, serving
from tests.unit.scheduler.test_replay import Network, Policy, lines_of


def run(*arguments: str):
    return CliRunner().invoke(main, ["scheduler", "explain", *arguments], env={"COLUMNS": "200"})


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(lines_of(3, {})) + "\n")
    return path


def test_the_choice_and_all_of_the_best_nodes_are_shown(log):
    record = json.loads(log.read_text().splitlines()[7])
    done = run("p7", "-n", "shop", "--decision-log", str(log))
    assert done.exit_code == 0, done.output
    assert f"shop/p7 → {record['node']}" in done.output
    assert f"by the rule {record['rule']}" in done.output
    rows = [line.split() for line in done.output.splitlines()]
    for best in record["best"]:
        row = next(row for row in rows if row and row[0] == best["node"])
        assert row[1] == f"{best['score']:g}"
        assert sum("%" in cell for cell in row) == 2, "each has its shares, and not the chosen one alone"


def test_an_override_and_a_network_are_named(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(lines_of(4, {policy: Network(policy) for policy in Policy})))
    assert "by an override" in run("p3", "-n", "shop", "--decision-log", str(path)).output
    assert "by the network" in run("p5", "-n", "shop", "--decision-log", str(path)).output


def test_the_newest_of_several_logs_counts_and_json_has_no_inputs(log, tmp_path):
    newer = tmp_path / "newer.jsonl"
    newer.write_text(json.dumps(json.loads(log.read_text().splitlines()[2]) | {"node": "n-new", "time": 1e9}))
    done = run("p2", "-n", "shop", "--decision-log", str(log), "--decision-log", str(newer), "-o", "json")
    told = json.loads(done.output)
    assert told["node"] == "n-new"
    assert "inputs" not in told


def test_a_log_without_inputs_shows_the_chosen_node_alone(log, tmp_path):
    path = tmp_path / "plain.jsonl"
    record = json.loads(log.read_text().splitlines()[7])
    del record["inputs"]
    path.write_text(json.dumps(record))
    done = run("p7", "-n", "shop", "--decision-log", str(path))
    assert sum("%" in line for line in done.output.splitlines()) == 1


@pytest.mark.parametrize("inputs", [{}, None, {"names": "x", "nodes": {}}, "garbage"])
def test_inputs_that_are_damaged_leave_the_rest(log, tmp_path, inputs):
    path = tmp_path / "damaged.jsonl"
    path.write_text('{"cut off\n[1]\n' + json.dumps(json.loads(log.read_text().splitlines()[7]) | {"inputs": inputs}))
    done = run("p7", "-n", "shop", "--decision-log", str(path))
    assert done.exit_code == 0, done.output
    assert "shop/p7 →" in done.output


def test_a_pod_that_is_not_there_is_said_with_where_it_was_looked_for(log):
    done = run("web-9", "--decision-log", str(log))
    assert done.exit_code == 1
    assert "no suggestion for default/web-9 in" in done.output


@pytest.fixture
def server() -> Iterator[str]:
    """Answers as the suggestion server does for one pod, and with something else on /elsewhere."""
    record = json.loads(lines_of(3, {})[7])
    del record["inputs"]

    class Handler(Quiet):
        def do_GET(self) -> None:  # noqa: N802
            if self.path.startswith("/elsewhere"):
                status, body = 200, b"<html>"
            elif self.path == "/suggestions?namespace=shop&pod=p7":
                status, body = 200, json.dumps(record).encode()
            else:
                status, body = 404, json.dumps({"error": "no pod default/x is pending"}).encode()
            self.answer(status, body)

    with serving(Handler) as url:
        yield url


def test_the_server_is_asked(server):
    done = run("p7", "-n", "shop", "--server", server)
    assert done.exit_code == 0, done.output
    assert "shop/p7 →" in done.output
    assert ", now" in done.output


@pytest.mark.parametrize(
    ("path", "said"), [("", "no pod default/x is pending"), ("/elsewhere", "is no suggestion server that answers")]
)
def test_what_the_server_refuses_is_said(server, path, said):
    done = run("x", "--server", server + path)
    assert done.exit_code == 1
    assert said in done.output


def test_a_server_that_is_not_there_is_said_with_a_remedy():
    done = run("x", "--server", "http://127.0.0.1:1")
    assert done.exit_code == 1
    assert "forward its port, or name its log" in done.output
