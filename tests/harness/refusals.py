"""Wrong inputs to commands: the files that they name, and what every refusal has to be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from click.testing import CliRunner, Result

from rlscaler_live.cli import main
from rlscaler_loadgen.traces import Trace, write_trace

HEADER = "time_s,requests_per_s"
GPU = {"deployment": "chat-gpu", "maxReplicas": 8, "requestsPerSecond": 20}
CPU = {"deployment": "chat-cpu", "maxReplicas": 8, "requestsPerSecond": 4}
SPEC = {"targets": {"gpu": GPU, "cpu": CPU}, "slo": {"latencyMilliseconds": 1000}}


class Wrong(NamedTuple):
    """One wrong input."""

    words: str
    """The command; `{name}` is a file or a folder of `make_files`."""
    code: int
    said: tuple[str, ...]
    """What the one sentence on standard error has to have: the object, the field, the remedy."""


def policy(name: str = "chat", **changes: Any) -> str:
    """The YAML of a policy whose spec has these changes."""
    body = {"apiVersion": "rlscaler.io/v1alpha1", "kind": "RLScalingPolicy", "metadata": {"name": name}}
    return yaml.safe_dump(body | {"spec": SPEC | changes})


def history(*lines: str) -> str:
    return "\n".join([HEADER, *lines]) + "\n"


def _minutes(count: int, rate: str = "5") -> list[str]:
    return [f"{60 * i},{rate}" for i in range(count)]


TEXTS = {
    "empty": "",
    "prose.yaml": "there\n",
    "broken.yaml": "spec: [targets",
    "deployment.yaml": "kind: Deployment\nmetadata: {name: chat}\n",
    "unknown.yaml": policy(targets={"gpu": {"deployment": "chat-gpu", "maxReplica": 8}}),
    "high.yaml": policy(targets={"gpu": GPU | {"minReplicas": 9}}),
    "negative.yaml": policy(intervalSeconds=-30),
    "unit.yaml": policy(capacity={"unit": "words", "perReplica": {"gpu": 1}}),
    "preset.yaml": policy(metrics={"preset": "vlllm"}),
    "odd.yaml": policy(intervalSeconds=17),
    "tokens.yaml": policy(
        targets={"gpu": {"deployment": "chat-gpu", "maxReplicas": 8}},
        capacity={"unit": "tokens", "perReplica": {"gpu": 900}},
        metrics={"preset": "vllm"},
    ),
    "kafka.yaml": policy(
        targets={"cpu": CPU}, signal={"kafka": {"bootstrapServers": ["kafka:9092"], "topics": ["orders"], "group": "a"}}
    ),
    "two.yaml": policy() + "---\n" + policy("other"),
    "good.yaml": policy(),
    "hpa.yaml": "kind: HorizontalPodAutoscaler\nmetadata: {name: a}\nspec: {scaleTargetRef: {name: chat-gpu}}\n",
    "hpa-list.yaml": "kind: List\nitems: 3\n",
    "gap.csv": history("0,5", "60,5", "180,5", "240,5", "300,5"),
    "twice.csv": history("0,5", "60,5", "60,5", "120,5"),
    "backwards.csv": history("0,5", "3600,5", "1800,5", "7200,5"),
    "zeros.csv": history(*_minutes(200, "0")),
    "nan.csv": history("0,5", "60,nan", "120,5"),
    "below.csv": history("0,5", "60,-4", "120,5"),
    "letters.csv": history("0,5", "60,five", "120,5"),
    "columns.csv": "time,rate,errors\n0,5,0\n60,5,0\n",
    "bare.csv": "0,5\n60,5\n",
    "header.csv": HEADER + "\n",
    "seconds.csv": history("0,5", "10,5", "20,5"),
    "short.csv": history(*_minutes(14)),
    "huge.csv": history(*_minutes(200, "90000")),
    "rows.csv": "timestamp,value\n2026-01-01T00:00,1\n2026-01-01T00:01,2\n",
    "never.csv": "timestamp,value\nnan,1\nnan,2\n",
    "more.txt": "1 2 3\n",
    "most.txt": "1 2 3 4\n",
    "config.json": '{"environment": {"no_such_field": 1}}',
    "range.json": '{"agent": {"gamma": 2}}',
    "list.json": '{"environment": [1]}',
    "broken.json": "{",
    "model.pt": "weights",
    "bare.onnx": "no graph",
    "tuned.json": '{"probes": {}, "records": [{"contender": "hpa"}]}',
    "log.jsonl": '{"no": "decision"}\n',
    "near": yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
            "clusters": [{"name": "here", "cluster": {"server": "http://127.0.0.1:9"}}],
            "users": [{"name": "me", "user": {"token": "none"}}],
        }
    ),
}
"""Small files by their names; without its ending a name stands for the file in `Wrong.words`, `.` becoming `_`."""


def make_files(folder: Path) -> dict[str, str]:
    """Write every file, and give their paths by the names that `Wrong.words` has for them."""
    for name, text in TEXTS.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "binary").write_bytes(b"\x00\xff\xfe\x80" * 64)
    (folder / "folder").mkdir()
    write_trace(folder / "load.csv", Trace(20.0 + 10 * np.sin(np.arange(400) / 15), 60.0))
    write_trace(folder / "counter.csv", Trace(1000.0 * np.arange(400), 60.0))
    named = {path.name.replace(".", "_").replace("-", "_"): str(path) for path in folder.iterdir()}
    return named | {"none": str(folder / "none"), "blocked": str(folder / "good.yaml" / "out")}


def filled(text: str, places: Mapping[str, str]) -> str:
    """The text with every `{name}` replaced by what `places` has for it."""
    return re.sub(r"\{(\w+)\}", lambda found: places[found[1]], text)


def everything(*folders: Path) -> dict[Path, int]:
    """Every file and folder below, with the moment at which it was last changed."""
    return {path: path.stat().st_mtime_ns for folder in folders for path in [folder, *folder.rglob("*")]}


def refused(wrong: Wrong, places: Mapping[str, str]) -> Result:
    """Call the command in this process, and see that it says what is wrong in one sentence, and nothing else."""
    done = CliRunner(env={"COLUMNS": "200"}).invoke(main, filled(wrong.words, places).split())
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    assert done.exit_code == wrong.code, done.output
    assert "Traceback" not in done.output
    lines = [line for line in done.stderr.splitlines() if all(filled(one, places) in line for one in wrong.said)]
    assert len(lines) == 1, f"{wrong.said} is in {len(lines)} lines of:\n{done.stderr}"
    assert done.stdout == ""
    return done
