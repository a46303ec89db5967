"""Options and files that cannot be used, of every command that trains, compares, looks back or starts something.

Each is refused by object, field and remedy before anything is made; those of loads and policies are in
`test_wrong_inputs.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.refusals import Wrong, everything, filled, make_files, refused

PLAYED = [
    Wrong("evaluate --model {none}", 2, ("--model", "none: no such file or folder", "train one with `rlscaler train`")),
    Wrong("evaluate --model {model_pt}", 2, ("model.pt", "a Python pickle", "Give the training folder")),
    Wrong("evaluate --model {bare_onnx}", 2, ("bare.onnx: its manifest is missing", "expected")),
    Wrong("evaluate --model {folder}", 2, ("folder: neither policy.onnx nor best_model.zip", "has the training")),
    Wrong("evaluate --model {good_yaml}", 2, ("good.yaml: expected a training folder, a .onnx or a .zip",)),
    Wrong("evaluate --model rule --workloads sawtooth", 2, ("sawtooth: choose from ramp", "or give a .csv")),
    Wrong("evaluate --model rule --workloads ,", 2, ("--workloads ','", "names nothing", "leave it out")),
    Wrong("evaluate --model rule --workloads {gap_csv}", 2, ("gap.csv:4: gap: 120 s", "fill it or cut there")),
    Wrong("evaluate --model rule --workloads {short_csv}", 2, ("short.csv", "ask for shorter episodes")),
    Wrong("evaluate --model rule --runs -1", 2, ("runs = -1", "greater than or equal to 1")),
    Wrong("evaluate --model rule --interval 7", 2, ("interval_seconds = 7", "multiple of 5")),
    Wrong("evaluate --model rule --duration -60", 2, ("duration_seconds = -60", "greater than or equal to 60")),
    Wrong("evaluate --model rule --traces {none}", 2, ("traces", "no such folder; leave it out")),
    Wrong("evaluate --model rule --config {none}", 2, ("--config", "none: No such file")),
    Wrong("evaluate --model rule --config {binary}", 2, ("--config", "binary: not JSON")),
    Wrong("evaluate --model rule --config {list_json}", 2, ("list.json: environment: not an object", "in braces")),
    Wrong("evaluate --model rule --config {config_json}", 2, ("no_such_field: no such field; there are",)),
    Wrong("evaluate --model rule --out {blocked}", 2, ("--out", "good.yaml is a file", "name another place")),
    Wrong("compare --level fast", 2, ("--level", "'fast' is not one of 'request', 'fluid'")),
    Wrong("compare --model rule --model {none}", 2, ("--model", "no such file or folder")),
    Wrong("compare --env moon", 2, ("--env", "'moon' is not one of 'sim', 'cluster'")),
    Wrong("days --out out --loads nope", 2, ("nope: no load of the library of days", "there are")),
    Wrong("days --out out --loads jobs_1 --picture jobs_2", 2, ("--picture jobs_2", "among the loads jobs_1")),
    Wrong("days --out out --loads jobs_1 --share 1.5", 2, ("--share", "1.5 is not in the range 0<x<=1")),
    Wrong("days --out out --loads jobs_1 --days 0", 2, ("--days", "0 is not in the range x>=1")),
    Wrong("days --out out --loads jobs_1 --model {none}", 2, ("--model", "no such file or folder")),
    Wrong("days --loads jobs_1 --out {blocked}", 2, ("--out", "good.yaml is a file", "name another place")),
    Wrong("tune --contenders cron", 2, ("--contenders cron", "choose from")),
    Wrong("tune --workloads sawtooth", 2, ("--workloads sawtooth", "choose from ramp")),
    Wrong("tune --check --file {binary}", 2, ("binary", "make it again with `rlscaler tune`")),
    Wrong("tune --check --file {tuned_json}", 2, ("tuned.json: records.0", "make it again with `rlscaler tune`")),
    Wrong("tune --budget 0", 2, ("--budget", "0 is not in the range x>=1")),
    Wrong("tenants compare --out out --loads nobody", 2, ("nobody: no load of the library of days", "there are")),
    Wrong("tenants compare --out out --pools 2", 2, ("--pools", "2 is not in the range x>=3")),
    Wrong("tenants compare --out {blocked}", 2, ("--out", "good.yaml is a file", "name another place")),
    Wrong("tenants evaluate --out out --model {folder}", 2, ("--model", "name a folder that `tenants train` left")),
    Wrong("tenants train --out out --lambda 2", 2, ("--lambda", "2.0 is not in the range 0<=x<=1")),
    Wrong("tenants study tenants --out out --model {none}", 2, ("--model", "that `tenants train` left")),
    Wrong("tenants study lambda --out out --model {folder}", 2, ("--model: lambda trains its own agents", "leave it")),
]
OTHERS = [
    Wrong("train --out out --config {config_json}", 2, ("config.json: environment.no_such_field",)),
    Wrong("train --out out --config {range_json}", 2, ("range.json: agent.gamma", "less than or equal to 1")),
    Wrong("train --out out --config {broken_json}", 2, ("broken.json", "with the parts environment and agent")),
    Wrong("train --out out --config {binary}", 2, ("binary", "with the parts environment and agent is needed")),
    Wrong("train --out out --seeds 1,b", 2, ("--seeds 1,b", "whole numbers with commas between")),
    Wrong("train --out out --steps -5", 2, ("--steps", "-5 is not in the range x>=1")),
    Wrong("train --out out --seed -1", 2, ("--seed", "-1 is not in the range x>=0")),
    Wrong("train --resume", 2, ("--resume", "name the folder to go on from with --out")),
    Wrong("train --out {blocked}", 2, ("--out", "good.yaml is a file", "name another place")),
    Wrong("train --out out --history {load_csv}", 2, ("--history: only with --for",)),
    Wrong("publish {none}", 2, ("FOLDER", "none' does not exist")),
    Wrong("publish {folder}", 2, ("policy.onnx: No such file", "that `rlscaler train --for` wrote")),
    Wrong("publish {folder} --kubeconfig {near}", 2, ("--kubeconfig: only with --apply",)),
    Wrong("replay {none}", 3, ("none does not exist", "name an audit log")),
    Wrong("replay {log_jsonl} --policy chat", 2, ("--policy chat", "NAMESPACE/NAME")),
    Wrong(
        "replay {log_jsonl} --model {good_yaml}",
        3,
        ("good.yaml: no ConfigMap in it has a manifest", "`rlscaler publish`"),
    ),
    Wrong("explain last {none}", 1, ("none does not exist", "name an audit log")),
    Wrong("explain last {log_jsonl}", 1, ("no decision last", "status.lastDecision.id")),
    Wrong("explain last {log_jsonl} --policy chat", 2, ("--policy chat", "NAMESPACE/NAME")),
    Wrong("explain chat --model {near}", 2, ("--model and --policy", "name their PATHS")),
    Wrong("status --kubeconfig {none}", 2, ("--kubeconfig", "none' does not exist")),
    Wrong("status --kubeconfig {binary}", 1, ("cannot find a cluster in", "binary", "--kubeconfig")),
    Wrong("status --kubeconfig {near}", 1, ("127.0.0.1:9", "is this API server running?", "--context")),
    Wrong("status --kubeconfig {near} --context nope", 1, ("cannot find a cluster", "nope", "--kubeconfig")),
    Wrong("status --kubeconfig {near} -n Not/Valid", 2, ("--namespace", "'Not/Valid' is no name of a namespace")),
    Wrong("pause chat --kubeconfig {near} --gpu -1", 2, ("--gpu", "-1 is not in the range 0<=x<=10000")),
    Wrong("preflight {unknown_yaml} --kubeconfig {near}", 2, ("maxReplica = 8", "did you mean maxReplicas?")),
    Wrong("preflight {good_yaml} --kubeconfig {near} --operator me", 2, ("--operator me", "NAMESPACE/SERVICEACCOUNT")),
    Wrong("explain chat --kubeconfig {near}", 1, ("127.0.0.1:9", "is this API server running?", "--kubeconfig")),
    Wrong("init --deployment chat --kubeconfig {near} --out {good_yaml}", 2, ("--out", "is there already", "--force")),
    Wrong("operator run --shards 0", 2, ("shards (RLSCALER_SHARDS", "greater than or equal to 1")),
    Wrong("scheduler compare EE --model-dir {folder}", 2, ("--model-dir", "EE.json")),
    Wrong("scheduler compare XX", 2, ("'XX' is not one of 'EE', 'LB', 'EL', 'GPU'",)),
    Wrong("scheduler train EE --out out --steps 5", 2, ("--steps", "5 is not in the range x>=1000")),
    Wrong("scheduler run --port 70000", 2, ("port", "less than or equal to 65535")),
    Wrong("scheduler explain web --decision-log {log_jsonl}", 1, ("no suggestion for default/web", "log.jsonl")),
    Wrong("scheduler explain web --server http://127.0.0.1:9", 1, ("no suggestion server", "--decision-log")),
    Wrong("scheduler config --timeout-ms 0", 2, ("--timeout-ms", "0 is not in the range x>=1")),
    Wrong("cluster up --gpu-nodes -1", 2, ("--gpu-nodes", "-1 is not in the range 0<=x<=1000")),
    Wrong("cluster build nope", 2, ("no such tool: nope", "there are")),
    Wrong("cluster clean", 2, ("name the parts to remove", "--go, --binaries")),
    Wrong("demo --duration -5", 2, ("--duration", "-5 is not in the range")),
    Wrong("demo --out {blocked}", 2, ("--out", "good.yaml is a file", "name another place")),
    Wrong("demo report {folder}", 1, ("folder", "offered.csv")),
    Wrong("demo kafka --report --out out", 1, ("has no records of a demo of Kafka", "leave --report out")),
    Wrong("demo tenants --report --out out", 1, ("has no records of a demo of tenants", "leave --report out")),
    Wrong("completion tcsh", 2, ("'tcsh' is not one of 'bash', 'zsh', 'fish'",)),
]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return make_files(tmp_path_factory.mktemp("wrong"))


@pytest.mark.parametrize("wrong", [*PLAYED, *OTHERS], ids=lambda wrong: wrong.words.replace(" --out out", ""))
def test_what_is_wrong_is_said_in_one_sentence_and_nothing_is_written(
    wrong: Wrong, places: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = everything(tmp_path, Path(places["none"]).parent)
    refused(wrong, places)
    assert everything(tmp_path, Path(places["none"]).parent) == before


SLOW = {"torch", "optuna", "matplotlib", "stable_baselines3", "pandas", "ray", "tensorboard"}
"""Libraries that take seconds to import."""

QUICK = [
    "evaluate --model {none}",
    "compare --model rule --workloads {gap_csv}",
    "train --config {config_json} --out out",
    "train --out out --for {unknown_yaml} --history {load_csv}",
    "train --out out --for {good_yaml} --history {gap_csv}",
    "estimate --out out --history {gap_csv}",
    "simulate {unknown_yaml} --out out --history {load_csv}",
    "simulate {good_yaml} --out out --history {gap_csv}",
    "streams simulate --history {gap_csv}",
    "days --out out --loads nope",
    "days --out out --loads jobs_1 --model {none}",
    "tenants compare --out out --loads nobody",
    "tenants evaluate --out out --model {folder}",
    "tenants study tenants --out out --model {folder}",
    "scheduler compare EE --model-dir {folder}",
]
PROGRAM = """
import json, sys
from rlscaler_live.cli import main

for words in json.loads(sys.argv[1]):
    before = set(sys.modules)
    try:
        main(words, prog_name="rlscaler")
    except SystemExit as end:
        imported = sorted({name.partition(".")[0] for name in set(sys.modules) - before})
        print(json.dumps([end.code, imported]), flush=True)
"""
"""Runs one command line after the other and prints the exit code of each and the packages that it imported."""


@pytest.mark.slow
def test_what_is_wrong_is_said_before_libraries_that_take_seconds_are_imported(
    places: dict[str, str], tmp_path: Path
) -> None:
    """In a process of its own, where nothing else has imported these libraries."""
    lines = [filled(words, places).split() for words in QUICK]
    arguments = [sys.executable, "-c", PROGRAM, json.dumps(lines)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, cwd=tmp_path)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == len(QUICK), done.stderr
    wrong = {
        words: (code, SLOW & set(imported))
        for words, (code, imported) in zip(QUICK, results, strict=True)
        if code != 2 or SLOW & set(imported)
    }
    assert not wrong
