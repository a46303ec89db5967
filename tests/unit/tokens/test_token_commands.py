"""`rlscaler tokens`: weights by load tests, a policy on a recorded load, and autoscalers compared on drawn services."""

from __future__ import annotations

import json
from copy import copy
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from rlscaler_core.decision.manifest import PoolRanges
from rlscaler_core.decision.rule import RuleSettings
from rlscaler_core.models import load_bundled
from rlscaler_live.cli import main
from rlscaler_rl.baselines.contender import stacked
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.models import Loaded
from rlscaler_rl.evaluation.tokens import SERVERS as NAMES
from rlscaler_rl.evaluation.tokens.cli import tokens
from rlscaler_rl.evaluation.tokens.compare import compared, drawn_worlds
from rlscaler_rl.evaluation.tokens.contenders import ENTRIES, network
from rlscaler_rl.evaluation.tokens.load import mix_of
from rlscaler_rl.evaluation.tokens.result import Comparison
from rlscaler_rl.simulation.scenario import ScenarioError
from rlscaler_rl.simulation.tokens.drawn import World, drawn
from rlscaler_rl.simulation.tokens.episode import Demand
from rlscaler_rl.simulation.tokens.servers import SERVERS
from rlscaler_rl.simulation.tokens.services import Requests, Services

POLICY = """
apiVersion: rlscaler.io/v1alpha1
kind: RLScalingPolicy
metadata: {name: chat, namespace: workloads}
spec:
  targets:
    gpu: {deployment: chat-vllm, maxReplicas: 8, costPerHour: 4.1, coldStartSeconds: 60}
  capacity: {unit: tokens, tokenWeights: {answer: 2}, perReplica: {gpu: 6000}}
  slo: {latencyMilliseconds: 2500, signal: ttft}
  metrics: {preset: vllm}
"""


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(tokens, [str(argument) for argument in arguments])


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A policy and a load that triples for five minutes."""
    policy, history = tmp_path / "policy.yaml", tmp_path / "load.csv"
    policy.write_text(POLICY)
    rate = np.where((np.arange(900) > 300) & (np.arange(900) < 600), 9.0, 3.0)
    rows = "".join(f"{second},{value}\n" for second, value in enumerate(rate))
    history.write_text("time_s,requests_per_s\n" + rows)
    return policy, history


def test_weights_are_fields_of_a_policy() -> None:
    result = invoke("weights", "--server", "8b-l40s", "--mix", "chat=0.8,reasoning=0.2")
    assert result.exit_code == 0, result.output
    comment, fields = result.output.splitlines()
    assert comment.startswith("# ")
    assert fields.startswith("capacity: {unit: tokens, tokenWeights: {prompt: 1, answer: ")
    assert "Error: 8B on L40S: not even" in invoke("weights", "--server", "8b-l40s", "--ttft", "0.01").output


@pytest.mark.slow
def test_a_policy_in_tokens_is_played_beside_keda(files: tuple[Path, Path]) -> None:
    policy, history = files
    result = invoke("simulate", policy, "--history", history, "--server", "8b-a100", "-o", "json")
    assert result.exit_code == 0, result.output
    rows = {row["contender"]: row for row in json.loads(result.stdout)["rows"]}
    assert set(rows) == {"policy", "waiting", "in_flight", "kv", "backlog", "wva"}
    assert rows["policy"]["cost_per_month"] == pytest.approx(4.1 * 730 * rows["policy"]["replicas"], rel=1e-3)
    assert "[" not in rows["kv"]["behind"], "one service has no interval"
    assert rows["policy"]["label"] == "policy chat"
    assert all(0 <= row["late_percent"] <= 100 and row["over_need"] > 0.5 for row in rows.values())


@pytest.mark.parametrize(
    ("written", "instead", "told"),
    [
        ("unit: tokens, tokenWeights: {answer: 2}", "unit: requests", "capacity.unit is requests; set it to tokens"),
        ("    gpu:", "    cpu:", "keep targets.gpu alone"),
        ("signal: ttft", "signal: tpot", "slo.signal is tpot; set it to ttft"),
        (", signal: ttft", "", "slo.signal is endToEnd; set it to ttft"),
    ],
)
def test_a_policy_that_the_level_cannot_play_is_refused(
    files: tuple[Path, Path], written: str, instead: str, told: str
) -> None:
    policy, history = files
    text = POLICY.replace(written, instead)
    if instead == "    cpu:":
        text = text.replace("perReplica: {gpu:", "perReplica: {cpu:")
    policy.write_text(text)
    assert told in " ".join(invoke("simulate", policy, "--history", history, "--server", "8b-a100").output.split())


@pytest.mark.parametrize(
    ("slo", "objectives"),
    [("", (2.5, np.inf)), (", timePerOutputTokenMilliseconds: 60", (2.5, 0.06))],
)
def test_a_policy_is_played_by_its_own_objectives(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, slo: str, objectives: tuple[float, float]
) -> None:
    policy, history = files
    policy.write_text(POLICY.replace("signal: ttft", f"signal: ttft{slo}"))

    def load_tests(server: object, mix: object, first: float, token: float, kinds: object) -> None:
        raise ScenarioError(f"objectives {first}, {token}")

    monkeypatch.setattr("rlscaler_rl.evaluation.tokens.load.load_tests", load_tests)
    output = invoke("simulate", policy, "--history", history, "--server", "8b-a100").output
    assert "objectives {}, {}".format(*objectives) in output


def test_a_load_is_of_rates_or_of_requests(files: tuple[Path, Path]) -> None:
    policy, load = files
    simulate = ("simulate", policy, "--server", "8b-a100")
    assert "choose either --history" in invoke(*simulate).output
    assert "choose either --history" in invoke(*simulate, "--trace", load, "--history", load).output
    assert "remove --mix" in invoke(*simulate, "--trace", load, "--mix", "code").output


@pytest.mark.slow
def test_a_policy_is_played_on_recorded_requests(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, rng = tmp_path / "requests.csv", np.random.default_rng(0)
    moments = np.datetime64("2024-01-01T00:00:00") + np.arange(0, 600_000, 500).astype("timedelta64[ms]")
    rows = zip(moments, *rng.integers(100, 900, (2, len(moments))), strict=True)
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(f"{time},{p},{a}\n" for time, p, a in rows)
    trace.write_text(text)
    result = invoke("simulate", files[0], "--trace", trace, "--server", "8b-a100", "-o", "json")
    assert result.exit_code == 0, result.output
    played = json.loads(result.stdout)
    assert played["seconds"] == 600
    assert all(row["over_need"] > 0.5 for row in played["rows"])
    estimate = ["estimate", "--history", str(trace), "--out", str(tmp_path / "out"), "--server", "8b-a100"]
    short = CliRunner().invoke(main, [*estimate, "--policy", str(files[0])])
    assert "TIMESTAMP covers 10.0 minutes; settings are tuned on the earlier half" in " ".join(short.output.split())
    assert "leave out --series" in CliRunner().invoke(main, estimate).output
    monkeypatch.setattr("rlscaler_rl.evaluation.tokens.recorded.SHORTEST_SECONDS", 300)
    monkeypatch.setattr("rlscaler_rl.evaluation.days.history_cli.TRIALS", 2)
    answer = CliRunner().invoke(main, [*estimate, "--policy", str(files[0]), "-o", "json"])
    assert answer.exit_code == 0, answer.output
    assert (json.loads(answer.stdout)["seconds"], json.loads(answer.stdout)["trials"]) == (300, 2)
    assert answer.stdout == (tmp_path / "out" / "estimate.json").read_text()
    trace.write_text(text + "2024-01-01T00:09:59.999,300000,1\n")
    told = invoke("simulate", files[0], "--trace", trace, "--server", "8b-a100")
    assert "requests.csv: ContextTokens and GeneratedTokens of a request are 300,001" in " ".join(told.output.split())


@pytest.mark.parametrize("text", ["chat=0.7,cod=0.3", "chat=0", "chat=x", ""])
def test_a_mix_of_unknown_kinds_or_shares_is_refused(text: str) -> None:
    with pytest.raises(EvaluationError, match="no kind of requests with a share above 0; kinds are chat"):
        mix_of(text)
    assert mix_of("chat=1,code=3")[:2] == [0.25, 0.75]


def test_drawn_services_are_of_all_servers_and_equal_seeds_are_equal_services() -> None:
    first, again, other = (drawn(4, 120, seed) for seed in (3, 3, 4))
    assert set(first.servers) == set(SERVERS) == set(NAMES)
    np.testing.assert_array_equal(first.requests.prompt, again.requests.prompt)
    assert first.requests.first[-1] != other.requests.first[-1]
    off = first.declared.capacity / first.truth.capacity
    assert ((off >= 0.75) & (off <= 1.25) & (off != 1)).all()
    assert ((first.requests.need > 0) & (first.requests.need < 100)).all()
    many = first.repeated(2)
    assert many.requests.first[4] == len(first.requests.arrived) == many.requests.first[-1] // 2


def test_a_switch_of_the_rule_stays_one_value_where_settings_are_stacked() -> None:
    both = stacked([RuleSettings(loading=1.0), RuleSettings(loading=1.2)], 2)
    assert both.lasting is False
    assert np.asarray(both.loading).tolist() == [1.0, 1.0, 1.2, 1.2]


def test_services_outside_the_envelope_of_a_network_are_counted() -> None:
    """Three services with three requests each; the network is that for requests, told to be for tokens."""
    server = SERVERS["8b-a100"]
    services = Services.of([server] * 3, initial=1, first_seconds=2.5, max_replicas=[4, 64, 90])
    ones = np.ones(3)
    demand = Demand(ones, ones, 5000 * ones, ones, np.full((3, 2), 100.0))
    tokens = np.full(9, 100, np.int32)
    requests = Requests(np.arange(0, 10, 3), np.tile([0.0, 5.0, 9.0], 3), tokens, tokens, np.zeros(9), np.ones(9))
    world = World((server.label,) * 3, services, requests, demand, demand, 60)
    actor = copy(load_bundled("ppo"))
    envelope = actor.manifest.envelope
    assert envelope is not None
    envelope = envelope.model_copy(update={"units": {"tokens": None}, "signals": ("ttft",), "observation": None})

    def judged(**update: object) -> Comparison:
        actor.manifest = actor.manifest.model_copy(update={"envelope": envelope.model_copy(update=update)})
        entries = [ENTRIES[0], network(Loaded(actor, "tokens_1", None, "0123456789", ""))]
        return compared(lambda: (world, world), "few", 2, 1, lambda step: None, entries)

    some = judged()
    assert [row.contender for row in some.rows] == ["policy", "network 01234567"]
    assert (some.rows[0].outside, some.rows[1].settings) == (None, {})
    assert some.notes() == [
        "network tokens_1: 1 of 3 services are outside its envelope (targets.gpu.maxReplicas 90 is outside 2..64), and "
        "the rule acts for them"
    ]
    assert judged(max_replicas=PoolRanges(gpu=(1, 100), cpu=(1, 100))).notes() == []


@pytest.mark.slow
def test_all_are_tuned_alike_and_judged_on_other_services() -> None:
    entries = [entry for entry in ENTRIES if entry.tunable.name in ("policy", "waiting", "mix")]
    result = compared(partial(drawn_worlds, 4, 600, 1), "drawn", 2, 1, lambda step: None, entries)
    assert [row.contender for row in result.rows] == ["policy", "waiting", "mix"]
    assert result.rows[0].behind is None
    assert result.rows[0].settings == {
        name: round(float(value), 4) for name, value in entries[0].tunable.default.items()
    }
    assert result.rows[1].behind is not None
    assert "[" in result.rows[1].behind
    assert all(len(row.j) == 4 for row in result.rows)
    assert len(result.table().markdown()) == 5
