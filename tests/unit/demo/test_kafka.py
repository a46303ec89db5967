"""The demo of Kafka without a cluster: its objects, what waits, and its figures from records."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs

import numpy as np
import pytest
from click.testing import CliRunner

from rlscaler_core.api.policy import parse
from rlscaler_dev.demo.cli import demo
from rlscaler_dev.demo.kafka import results
from rlscaler_dev.demo.kafka.plan import CONTENDERS, GROUP, PARTITIONS, Contender, Play, scaler
from rlscaler_dev.demo.kafka.recorder import Waiting, write_rebalances
from rlscaler_dev.demo.settings import Settings
from rlscaler_dev.exceptions import DevClusterError
from tests.harness.serving import Quiet, serving


def write_records(
    folder: Path, name: str, seconds_each: float, consumers: int = 2, unprocessed: int = 0, again: int = 0
) -> None:
    """Ten messages/s for 20 s over two partitions, each processed so many seconds after its moment."""
    data = folder / name / "data"
    data.mkdir(parents=True)
    run = {"contender": name, "title": CONTENDERS[name].title, "protocol": "range", "slo_ms": 1000}
    (data / "run.json").write_text(json.dumps(run | {"begun": 100.0, "duration_seconds": 20}))
    written = [(100 + number / 10, number % 2, number // 2) for number in range(200)]
    rows = [f"{at},{partition},{offset}" for at, partition, offset in reversed(written)]
    (data / "produced.csv").write_text("\n".join(["scheduled_at,partition,offset", *rows]) + "\n")
    kept = written[: len(written) - unprocessed]
    done = [f"{at + seconds_each},pod,{p},{o}" for at, p, o in kept] + [f"140,pod,{p},{o}" for _, p, o in kept[:again]]
    (data / "processed.csv").write_text("\n".join(["time,pod,partition,offset", *done]) + "\n")
    replicas = [f"90,{consumers},{consumers},{consumers},0", f"110,{2 * consumers},{2 * consumers},{consumers},1"]
    (data / "replicas.csv").write_text("\n".join(["time,spec,existing,ready,starting", *replicas]) + "\n")
    (data / "rebalances.csv").write_text("time,rebalances\n95,3\n112,4\n114,6\n")


@contextmanager
def prometheus(answer: dict[str, object]) -> Iterator[tuple[str, list[dict[str, list[str]]]]]:
    """A server that gives one answer to everything; its URL, and the questions that it was asked."""
    asked: list[dict[str, list[str]]] = []

    class Handler(Quiet):
        def do_POST(self) -> None:  # noqa: N802
            asked.append(parse_qs(self.body().decode()))
            self.answer(200, json.dumps(answer).encode())

    with serving(Handler) as url:
        yield url, asked


def test_the_network_is_played_beside_rule_keda_and_hpa(monkeypatch, tmp_path) -> None:
    played: list[tuple[str, str]] = []

    def play(settings: Settings, say: object, this: Play, contender: Contender) -> None:
        policy = scaler(contender, this, "127.0.0.1:9092")["spec"].get("policy", {})
        played.append((contender.name, policy.get("bundled", "")))
        assert settings.kafka
        write_records(this.out, contender.name, 0.4)

    monkeypatch.setattr("rlscaler_dev.demo.kafka.play.KafkaStage.play", play)
    monkeypatch.setattr("rlscaler_dev.demo.kafka.draw.draw", lambda *records: None)
    done = CliRunner().invoke(demo, ["kafka", "--policy", "streams", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert played == [("hpa", ""), ("keda-tuned", ""), ("rlscaler", "rule"), ("streams", "streams")]
    assert "| RLScalingPolicy, network streams |" in done.output


def test_the_coordinators_count_is_written_where_it_changes(tmp_path: Path) -> None:
    values = [[98, "3"], [100, "3"], [102, "5"], [104, "5"], [106, "6"]]
    with prometheus({"status": "success", "data": {"result": [{"metric": {}, "values": values}]}}) as (url, asked):
        write_rebalances(url, time.time() - 60, tmp_path)
    rows = (tmp_path / "rebalances.csv").read_text().splitlines()
    assert rows == ["time,rebalances", "98.0,3", "102.0,5", "106.0,6"]
    assert float(asked[0]["end"][0]) - float(asked[0]["start"][0]) > 60, "the count at the load's begin is asked for"
    with prometheus({"status": "error", "error": "no such function"}) as (url, _), pytest.raises(DevClusterError):
        write_rebalances(url, time.time(), tmp_path)


def test_the_policy_is_valid_and_the_autoscaler_has_its_bounds() -> None:
    this = Play(Path("/out"))
    policy = parse(scaler(CONTENDERS["rlscaler"], this, "127.0.0.1:9092"))
    assert policy.spec.signal is not None
    assert policy.spec.signal.kafka.group == GROUP
    target = policy.spec.targets.cpu
    assert target is not None
    autoscaler = scaler(CONTENDERS["hpa"], this, "127.0.0.1:9092")
    assert autoscaler["kind"] == "HorizontalPodAutoscaler"
    assert (target.min_replicas, target.max_replicas) == (1, PARTITIONS)
    assert (autoscaler["spec"]["minReplicas"], autoscaler["spec"]["maxReplicas"]) == (1, PARTITIONS)


def test_what_waits_is_followed_while_it_is_written(tmp_path: Path) -> None:
    produced, processed = tmp_path / "produced.csv", tmp_path / "processed.csv"
    waiting = Waiting(produced, processed)
    waiting.read()
    assert (waiting.messages, waiting.lag_seconds(50.0)) == (0, 0.0)
    produced.write_text("scheduled_at,partition,offset\n10.0,0,0\n11.0,1,0\n")
    # Offset 1 of partition 0 is seen at the consumer first, and offset 0 is processed twice.
    processed.write_text("time,pod,partition,offset\n12.0,a,0,0\n13.0,b,0,1\n14.0,b,0,0\n")
    waiting.read()
    assert (waiting.messages, waiting.lag_seconds(15.0)) == (1, 4.0)
    with produced.open("a") as file:
        file.write("12.0,0,1\n")
    waiting.read()
    assert waiting.messages == 1


def test_figures_table_and_picture_come_from_the_records(tmp_path: Path) -> None:
    write_records(tmp_path, "hpa", seconds_each=3.0, again=4)
    write_records(tmp_path, "rlscaler", seconds_each=0.5, consumers=1)
    done = CliRunner().invoke(demo, ["kafka", "--report", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    slow, quick = json.loads((tmp_path / "summary.json").read_text())
    assert (slow["messages"], slow["late"], slow["late_percent"], slow["lost"]) == (200, 200, 100.0, 0)
    assert (slow["p95_lag_seconds"], slow["duplicates"], slow["rebalances"]) == (3.0, 4, 3)
    assert slow["consumer_seconds"] == 2 * 10 + 4 * 10
    assert (slow["left"], quick["left"]) == (29, 4)
    assert (quick["late"], quick["p95_lag_seconds"], quick["consumer_seconds"]) == (0, 0.5, 30.0)
    assert "| RLScalingPolicy on the stream | 0.5 | 0.5 | 0 of 200 (0.0 %) | 30 | 4 | 3 | 0 | 0 |" in done.output
    assert "| least possible | - | - | - | 2 | - | - | - | - |" in done.output, "200 messages, 100 a second"
    assert (tmp_path / "kafka.png").stat().st_size > 20_000


def test_a_message_that_is_never_processed_is_lost_and_late(tmp_path: Path) -> None:
    write_records(tmp_path, "hpa", seconds_each=0.5, unprocessed=20)
    found = results.figures(results.read(tmp_path / "hpa" / "data"))
    assert (found.lost, found.late) == (20, 20)
    assert found.p95_lag_seconds is None
    assert found.worst_lag_seconds is None


def test_the_lag_is_the_age_of_the_oldest_message_that_waits(tmp_path: Path) -> None:
    write_records(tmp_path, "hpa", seconds_each=2.0)
    played = results.read(tmp_path / "hpa" / "data")
    assert played.lag()[5:19] == pytest.approx(np.full(14, 2.0), abs=0.11)
    assert played.lag()[-1] == 0.0
    nothing = replace(played, done=played.written)
    assert np.all(nothing.lag() == 0.0)


def test_a_record_that_is_broken_is_named(tmp_path: Path) -> None:
    write_records(tmp_path, "hpa", seconds_each=1.0)
    (tmp_path / "hpa" / "data" / "processed.csv").write_text("time,pod\n")
    done = CliRunner().invoke(demo, ["kafka", "--report", "--out", str(tmp_path)])
    assert done.exit_code == 1
    assert "processed.csv: no column partition" in done.output
