"""test1 and test2: contenders, users that move, pictures and the table."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import requests
from click.testing import CliRunner

from rlscaler_core.placement.policies import RULES_OF, Policy
from rlscaler_dev.exceptions import DevClusterError
from rlscaler_dev.placement.churn import HARD_MS, OF_NODES, Course, Plan, play, table
from rlscaler_dev.placement.contenders import DEFAULT, Contender, contenders
from rlscaler_dev.placement.control_plane import deployment
from rlscaler_dev.placement.draw import draw_nodes
from rlscaler_dev.placement.live import Live, served
from rlscaler_dev.placement.simulated import Simulated
from rlscaler_dev.placement.users import TOLD, Users
from rlscaler_live.cli import main


def named(names: list[str], folders: list[Path] | None = None) -> list[str]:
    return [contender.name for contender in contenders(names, folders or [])]


def test_the_default_scheduler_begins() -> None:
    assert named(["LB", "EL/latency-fit", "default", "LB"]) == ["default", "LB", "EL/latency-fit"]
    assert named([]) == ["default", "EL"]
    assert contenders(["EL/latency-fit"])[0].options() == ["--policy", "EL", "--rule", "EL", "latency-fit"]
    assert contenders(["LB"])[0].options() == ["--policy", "LB", "--rule", "LB", "spread"]


def test_networks_are_played_beside_every_rule_of_their_policy(tmp_path) -> None:
    for name in ("first", "last"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "EL.onnx").touch()
    folders = [tmp_path / "first", tmp_path / "last"]
    rules = [f"EL/{rule}" for rule in RULES_OF[Policy.EL]]
    assert named([], folders) == ["default", *rules, "EL network first", "EL network last"]
    assert named(["EL"], folders[:1]) == ["EL", "EL network first"]
    assert contenders(["EL"], folders[:1])[1].options() == ["--policy", "EL", "--model-dir", str(folders[0])]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["best"], "--contender best: none of default, EE, LB, EL, GPU, nor POLICY/RULE"),
        (["EE/spread"], "--contender EE/spread: spread is none of EE: pack"),
        (["LB"], "--model-dir: has networks for EL alone; name one of these with --contender"),
    ],
)
def test_wrong_contenders_are_named_with_the_remedy(names: list[str], message: str, tmp_path) -> None:
    (tmp_path / "EL.onnx").touch()
    with pytest.raises(DevClusterError, match=message):
        contenders(names, [tmp_path])


def test_a_folder_without_a_network_is_refused(tmp_path) -> None:
    with pytest.raises(DevClusterError, match="no network; name a folder of `scheduler train`"):
        contenders([], [tmp_path])


def test_a_network_that_cannot_be_loaded_is_refused_before_a_cluster_starts(tmp_path) -> None:
    (tmp_path / "EL.onnx").write_bytes(b"no graph")
    (tmp_path / "EL.json").write_text("{}")
    words = ["scheduler", "test1", "--model-dir", str(tmp_path), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 1
    assert "--model-dir" in done.output
    assert "EL.json: no manifest" in done.output


def test_pods_are_those_of_the_thesis_and_only_el_states_limits() -> None:
    pods = [deployment("d", Contender(name, policy)) for name, policy in ((DEFAULT, None), *((p, p) for p in Policy))]
    requests = [pod["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] for pod in pods]
    assert requests == [{"cpu": "250m", "memory": "64Mi"}] * len(pods)
    annotations = [pod["spec"]["template"]["metadata"]["annotations"] for pod in pods]
    limits = {"rlscaler.io/latency-soft-ms": "20", "rlscaler.io/latency-hard-ms": "30"}
    assert annotations[0] == {}
    for policy, written in zip(Policy, annotations[1:], strict=True):
        assert written == {"rlscaler.io/scoring-policy": policy} | (limits if policy is Policy.EL else {})


@pytest.mark.parametrize("count", [3, 12, 100])
def test_users_walk_and_jump_alike_for_each_contender_and_some_node_stays_near(count: int) -> None:
    nodes = [f"n-{index}" for index in range(count)]
    once, again = Users(nodes, 5), Users(nodes, 5)
    before = dict(once.latency_ms)
    nearest = [min(before, key=lambda name: before[name])]
    for _ in range(200):
        shown = dict(once.latency_ms)
        changed = once.move()
        assert changed == again.move()
        assert all(abs(value - shown[name]) > TOLD * shown[name] for name, value in changed.items())
        # What is written lags the truth by a tenth.
        assert min(once.latency_ms.values()) <= HARD_MS
        nearest.append(min(once.latency_ms, key=lambda name: once.latency_ms[name]))
    assert sum(one != other for one, other in pairwise(nearest)) >= 3, "the nearest node changes during a run"
    assert once.latency_ms != before


def played(names: list[str], test: str, nodes: int, seed: int = 0) -> dict[str, Course]:
    bed, plan = Simulated(nodes), Plan(test, seed=seed)
    return {one.name: play(bed, one, plan, Path(), lambda course: None) for one in contenders(names)}


@pytest.mark.parametrize("nodes", [3, 100])
def test_simulated_contenders_meet_the_same_users_and_place_as_their_rules_do(
    nodes: int, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    courses = played(["default", "EE", "EL"], "test1", nodes)
    assert len({str(course.nodes["latency_ms"]) for course in courses.values()}) == 1
    assert len({str([row["pods"] + row["waiting"] for row in course.rows]) for course in courses.values()}) == 1
    means = {name: course.means() for name, course in courses.items()}
    assert means["EE"]["nodes_in_use"] == 1.0
    assert means["default"]["nodes_in_use"] > 2.5
    assert courses["EL"].rows[-1]["seconds"] == 2 * (30 * 3 + 20 + 3)
    assert all(row["placed_above_hard"] == 0 for row in courses["EL"].rows)
    assert max(row["above_hard"] for row in courses["EL"].rows) > 0, "users move away from pods that run"


def test_in_a_simulated_test2_the_oldest_goes_whenever_a_new_one_comes(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    course = played(["LB"], "test2", 40)["LB"]
    assert [max(row["pods"] for row in course.rows), course.rows[-1]["pods"]] == [30, 30]
    assert course.rows[-1]["nodes_in_use"] == 30


def test_a_simulated_test_is_a_command_with_table_and_pictures_and_has_no_live_graphs(tmp_path) -> None:
    words = ["scheduler", "test1", "--nodes", "3", "--deployments", "2", "--repeats", "1", "--simulated"]
    done = CliRunner().invoke(main, [*words, "--contender", "EL", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "| EL |" in done.output
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {"test1.json", "test1.png", "nodes.png"}
    refused = CliRunner().invoke(main, [*words, "--port", "8050", "--out", str(tmp_path)])
    assert refused.exit_code == 2
    assert "a simulated test is over at once; leave out --port or --simulated" in refused.output


def course_of(count: int, looks: int) -> Course:
    rows = [{"seconds": 2.0 * look, "nodes_in_use": 1.0, "pods": look, "latency_met": 1.0} for look in range(looks)]
    nodes = {name: [[float(look + node) for node in range(count)] for look in range(looks)] for name in OF_NODES}
    return Course("EL", rows, nodes)


def test_a_browser_sees_the_course_while_it_is_played() -> None:
    live = Live("test1 on 3 nodes")
    with served(live, 0) as address:
        assert "has not begun yet" in requests.get(address, timeout=5).text
        live.show(course_of(3, 2))
        first = requests.get(address, timeout=5).text
        live.show(course_of(3, 5))
        page = requests.get(address, timeout=5).text
    assert "test1 on 3 nodes: EL, 8 s" in page
    assert page.count("<polyline") == 3 * 3 + 3, "a line for each node in three graphs, and one in the others"
    assert "nodes in use: 1<svg" in page
    assert first != page
    with pytest.raises(requests.ConnectionError):
        requests.get(address, timeout=5)


def test_a_port_that_is_taken_is_named() -> None:
    with served(Live("one"), 0) as address:
        port = int(address.rpartition(":")[2])
        with pytest.raises(DevClusterError, match=f"--port {port}: Address already in use; choose another"):
            served(Live("other"), port).__enter__()


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 40])
def test_the_nodes_of_a_contender_have_a_picture(count: int, tmp_path) -> None:
    draw_nodes(course_of(count, 4), [f"n-{node}" for node in range(count)], tmp_path / "EL" / "nodes.png", "test1, EL")
    assert (tmp_path / "EL" / "nodes.png").stat().st_size > 10_000


def test_the_table_has_the_means_over_looks_with_pods() -> None:
    assert Course("EE").means() == {}
    rows = [{"pods": pods, "nodes_in_use": pods / 2} for pods in (0.0, 2.0, 4.0)]
    assert "| EE | 1.50 |" in table([Course("EE", rows)])
