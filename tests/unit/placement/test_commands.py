"""`rlscaler scheduler`: what is printed, and what is said of wrong calls."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace

import click
import numpy as np
import pytest
import yaml
from click.testing import CliRunner

from rlscaler_core.placement.policies import DEFAULT_RULE, RULES_OF, Policy
from rlscaler_live.cli import main
from rlscaler_rl.placement import dqn, drawn_search
from rlscaler_rl.placement.compare import RIVALS, Row, _rows, compare, strongest
from rlscaler_rl.placement.compare import table as row_table
from rlscaler_rl.placement.dqn import Options
from rlscaler_rl.placement.dqn import train as learn
from rlscaler_rl.placement.drawn import TEST_SEED
from rlscaler_rl.placement.openb import DIGESTS, NODE_LIST, POD_LISTS
from rlscaler_rl.placement.play import Played, rule
from rlscaler_rl.placement.trained import Run
from rlscaler_rl.results.statistics import Interval


def compared(policy: Policy, rows: list[Row]) -> str:
    return "\n".join(row_table(policy, rows).markdown())


def call(*words: str):
    return CliRunner().invoke(main, ["scheduler", *words])


def test_all_subcommands_are_listed() -> None:
    listed = call("--help").output
    assert all(f"  {name} " in listed for name in ("run", "config", "train", "compare", "openb", "test1", "test2"))
    assert call("tset1").exit_code == 2


def test_config_is_yaml_for_kube_scheduler() -> None:
    done = call("config", "--url", "http://s:1", "--timeout-ms", "250", "--strict")
    (extender,) = yaml.safe_load(done.output)["extenders"]
    assert (extender["urlPrefix"], extender["httpTimeout"], extender["ignorable"]) == ("http://s:1", "250ms", False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("openb", "replay", "--folder", "/nowhere"), "is not there; download it from"),
        (("openb", "replay", "--scheduler", "fdg"), "--scheduler: fdg is none of random, dot product"),
        (("openb", "make", "/nowhere/openb_pod_list_default.csv"), "No such file"),
        (("compare", "EE", "--model-dir", "/nowhere"), "name a folder with a network"),
        (("train", "XX", "--out", "x"), "Invalid value"),
        (("train", "EE", "--out", "x", "--rule", "spread"), "none of EE: pack, least-extension, pack-and-extension"),
        (("train", "EE", "--out", "x", "--gamma", "0.5", "--thesis-reward"), "--gamma, --thesis-reward: only DQN has"),
        (("train", "EE", "--out", "x", "--gamma", "0"), "--gamma: only DQN has"),
        (("train", "EE", "--out", "x", "--learning-rate", "0"), "not in the range 0<x<=1"),
        (
            ("train", "GPU", "--out", "x", "--method", "dqn", "--thesis-reward"),
            "the thesis has EE, LB, EL; leave it out for GPU",
        ),
        (("train", "EE", "--out", "x", "--method", "dqn", "--generations", "3"), "belongs to --method evolution"),
        (("run", "--policy", "XX"), "Invalid value"),
        (("run", "--port", "70000"), "port: "),
    ],
)
def test_wrong_calls_say_what_to_do(words: tuple[str, ...], said: str) -> None:
    done = call(*words)
    assert done.exit_code in (1, 2)
    assert said in done.output


@pytest.mark.slow
def test_the_same_contender_twice_is_not_ahead_of_itself() -> None:
    assert all(RIVALS[policy][0] == DEFAULT_RULE[policy] for policy in Policy)
    said: list[str] = []
    rows = compare(Policy.EE, {"twin": [rule("pack")]}, (3,), clusters=2, say=said.append).rows
    assert [text.split(" played")[0] for text in said] == [f"3 nodes: {row.name}" for row in rows]
    twin = next(row for row in rows if row.name == "twin")
    assert twin.ahead == Interval(0.0, 0.0, 0.0)
    worse = next(row for row in rows if row.name == "random")
    assert worse.ahead.mean < -0.1
    assert worse.against_strongest < 0 == max(row.against_strongest for row in rows if row.name != "twin")
    best = next(row for row in rows if row.against_strongest == 0 and row.name in RIVALS[Policy.EE])
    assert best.ahead_of_strongest == Interval(0.0, 0.0, 0.0)
    assert worse.ahead_of_strongest.mean == pytest.approx(worse.ahead.mean - best.ahead.mean)
    assert "| 3 | twin |" in compared(Policy.EE, rows)


@pytest.mark.slow
def test_training_seeds_that_disagree_widen_the_interval() -> None:
    alike = {"alike": [rule("best-fit"), rule("best-fit")], "apart": [rule("best-fit"), rule("pack")]}
    rows = {row.name: row for row in compare(Policy.EE, alike, (3,), clusters=3, say=lambda text: None).rows}
    one, same, apart = rows["best-fit"], rows["alike"], rows["apart"]
    assert same.ahead == pytest.approx(one.ahead)
    assert apart.ahead.mean == pytest.approx(one.ahead.mean / 2)
    assert apart.ahead.high - apart.ahead.low > same.ahead.high - same.ahead.low
    assert apart.trained == 2
    assert "| 3 | apart, 2 training seeds |" in compared(Policy.EE, list(rows.values()))


def gpus(used: list[float], other: float = 0.0) -> list[Played]:
    """One training seed on clusters with these shares of used GPUs; NaN has none, and there all else is `other`."""
    found = np.array(used)
    rest = np.where(np.isnan(found), other, 0.25)
    return [Played(rest, rest, rest, rest, rest, found)]


def shares(used: list[float], other: float = 0.0) -> dict[str, list[Played]]:
    return {
        **{name: gpus(used, other) for name in RIVALS[Policy.GPU]},
        "random": gpus([one / 2 for one in used], other),
    }


def test_clusters_without_a_score_count_for_no_column() -> None:
    rows = _rows(Policy.GPU, 3, shares([0.5, math.nan, 0.75], other=0.9))
    assert {(row.in_use, row.latency_met, row.refused) for row in rows} == {(0.25, 0.25, 0.25)}
    assert rows[-1].ahead.low < rows[-1].ahead.mean < rows[-1].ahead.high


def test_one_scored_cluster_has_no_interval() -> None:
    rows = _rows(Policy.GPU, 3, shares([0.5, math.nan]))
    assert rows[-1].ahead.mean == -0.25
    assert (rows[-1].ahead.low, rows[-1].ahead.high) == (-math.inf, math.inf)
    assert "| 3 | random | 0.2500 | -0.2500 |" in compared(Policy.GPU, rows)


def test_clusters_of_which_none_is_scored_are_said_with_the_remedy() -> None:
    with pytest.raises(
        click.UsageError, match=r"none of the 2 clusters of 3 nodes has a GPU.* --clusters, or more nodes"
    ):
        _rows(Policy.GPU, 3, shares([math.nan, math.nan]))


@pytest.mark.slow
def test_folders_that_differ_in_the_seed_are_one_row(tmp_path) -> None:
    for seed in (0, 1):
        options = Options(Policy.EE, steps=256, seed=seed, nodes=(3,), clusters=16, looks=1)
        learn(options).save(tmp_path / f"EE-short-{seed}")
    folders = [word for folder in sorted(tmp_path.iterdir()) for word in ("--model-dir", str(folder))]
    words = ("compare", "EE", "--nodes", "2", "--clusters", "2", *folders, "--out", str(tmp_path / "found"))
    done = call(*words, "-o", "json")
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "found" / "comparison.json").read_text())
    assert found == json.loads(done.stdout)
    assert {row["name"] for row in found["rows"]} == {*RIVALS[Policy.EE], "random", "network EE-short"}
    assert found["seed"] == TEST_SEED
    assert "| 2 | network EE-short, 2 training seeds |" in (tmp_path / "found" / "comparison.md").read_text()
    assert (tmp_path / "found" / "comparison.png").stat().st_size > 1000


@pytest.mark.slow
@pytest.mark.parametrize("words", [("--method", "dqn", "--steps", "1000"), ("--generations", "2")])
def test_each_method_trains_a_network_that_compare_plays(words: tuple[str, ...], tmp_path, monkeypatch) -> None:
    def smaller(options: drawn_search.Options, say, record):
        assert options.evolution == replace(drawn_search.EVOLUTION, seed=3, generations=2)
        return search(replace(options, nodes_at_once=24, looked_at=24), say, record)

    search = drawn_search.search
    monkeypatch.setattr(drawn_search, "search", smaller)
    monkeypatch.setattr(dqn, "train", lambda options, say, record: learn(replace(options, looks=1), say, record))
    done = call("train", "EE", "--lifetimes", "--seed", "3", "--out", str(tmp_path / "EE-3"), *words)
    assert done.exit_code == 0, done.output
    manifest = json.loads((tmp_path / "EE-3" / "EE.json").read_text())
    assert (manifest["rule"], manifest["seed"], manifest["trained_nodes"][1]) == ("least-extension", 3, 24)
    assert list((tmp_path / "EE-3" / "tensorboard").glob("events.*"))
    done = call("compare", "EE", "--nodes", "2", "--clusters", "2", "--model-dir", str(tmp_path / "EE-3"))
    assert "| 2 | network EE |" in done.output


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("scheduler", "train", "EE"), "EE.onnx"),
        (("tenants", "train"), "training_progress.json"),
        (("streams", "train"), "policy.onnx"),
    ],
)
def test_a_network_is_not_overwritten_without_a_word(words: tuple[str, ...], name: str, tmp_path) -> None:
    (tmp_path / name).write_text("trained")
    done = CliRunner().invoke(main, [*words, "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert f"{name}: exists; name another place or add --force" in done.output
    assert (tmp_path / name).read_text() == "trained"


def test_a_checkpoint_that_training_did_not_improve_is_named_untrained() -> None:
    assert Run(curve=[(0, 0.5), (100, 0.4), (200, 0.5)]).untrained
    assert not Run(curve=[(0, 0.5), (100, 0.6)]).untrained
    assert not Run().untrained


def test_the_help_says_the_defaults_of_each_method() -> None:
    said = " ".join(call("train", "--help").output.split())
    for default in (drawn_search.EVOLUTION.generations, Options(Policy.EE).steps, Options(Policy.EE).gamma):
        assert f"[default: {default}" in said


def test_a_network_begins_as_the_strongest_rule() -> None:
    assert strongest(Policy.EE, True, 0.0) == "least-extension"
    assert strongest(Policy.EE, True, 0.3) == "pack-and-extension"
    assert strongest(Policy.EE, False, 0.0) == strongest(Policy.EE, True, 1.0) == "pack"
    assert strongest(Policy.GPU, True, 0.0) == "best-fit"
    assert all(
        strongest(policy, *setting) in RULES_OF[policy] for policy in Policy for setting in ((False, 0.0), (True, 0.3))
    )


@pytest.mark.slow
def test_openb_is_replayed_with_the_list_of_pods_that_is_named(tmp_path, monkeypatch) -> None:
    asked = {"default": "2,1000", "gpushare100": "1,500"}
    files = {NODE_LIST: "sn,cpu_milli,memory_mib,gpu,model\na,64000,100,8,V100\n"}
    files |= {
        POD_LISTS[name]: f"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np,64000,1,{gpu},\n"
        for name, gpu in asked.items()
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        monkeypatch.setitem(DIGESTS, name, hashlib.sha256(text.encode()).hexdigest())
    words = ("openb", "replay", "--folder", str(tmp_path), "--seeds", "1", "--scheduler", "best fit")
    # One pod takes all cores: of eight GPUs two are allocated, or half of one.
    for name, percent in (("default", "25.00"), ("gpushare100", "6.25")):
        done = call(*words, "--pod-list", name)
        assert done.exit_code == 0, done.output
        assert f"| {percent} | 0.00 |" in done.output
    assert "openb_pod_list_cpu050.csv: is not there" in call(*words, "--pod-list", "cpu050").output
