"""`rlscaler replay` on logs that the reporter's own parts wrote."""

import base64
import gzip
import json
from dataclasses import replace
from importlib import resources

import numpy as np
import pytest
from click.testing import CliRunner

from rlscaler_core.decision.batch import decide_all, fresh_state
from rlscaler_core.decision.manifest import Manifest
from rlscaler_core.decision.tables import make_samples
from rlscaler_core.decision.throughput import FEWER, MORE, PHASE, UNTIL, Phase
from rlscaler_operator.cli.replay import compare
from rlscaler_operator.cli.replay import replay as command
from rlscaler_operator.cli.replay.actors import AvailableActors
from rlscaler_operator.records.log import find_files, read
from rlscaler_operator.records.record import manifest_digest
from tests.harness.records import recorded


@pytest.fixture(scope="session")
def episode(entry):
    """Records of one policy under a load that rises and falls, with gaps in the metrics."""

    def make(actor, length=30, name="chat", **params):
        one, records, replicas = entry(actor=actor, **params), [], (2, 2)
        state, generator = fresh_state(actor, replicas, 100.0), np.random.default_rng(3)
        for tick in range(length):
            known = generator.random(4) < 0.9
            rate, gpu, cpu, p95 = np.where(known, (60 + 50 * np.sin(tick / 4), 70.0, 60.0, 240.0), np.nan)
            samples = make_samples(
                1,
                time=100.0 + 10 * tick,
                arrival_rate=rate,
                gpu_utilization=gpu,
                cpu_utilization=cpu,
                p95_ms=p95,
                age_seconds=np.where(np.isnan([rate, cpu, 1, gpu, p95, 0]), np.inf, 1.5),
                spec_replicas=replicas,
                ready_replicas=replicas,
                paused=tick == 9,
            )
            kind = "floor" if tick % 3 else "action"
            ready = replace(one, state=state, samples=samples, kind=kind)
            outcome = decide_all([ready])[0]
            records.append(recorded(outcome, f"{name}-{tick}", tick, name))
            state, replicas = outcome.state, tuple(outcome.decision.desired[0].tolist())
        return records

    return make


def run(*arguments):
    return CliRunner().invoke(command.replay, [str(argument) for argument in arguments])


def test_a_log_of_a_release_without_budgets_replays_to_the_last_bit(ppo, episode, log):
    """Such a record has no column, no stage and no field of a grant; nothing else of a new one differs from it."""
    records = episode(ppo)
    for record in records:
        assert "grant" not in [step["guard"] for step in record["guards"]]
        assert record.pop("grant") is None
        assert record.pop("sharing") is None
        assert record["samples"].pop("granted_replicas") == [-1, -1]
    done = run(log(*records), "-o", "json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["same"] == len(records)


def of_contract_3(records):
    """Make the records those of a release whose observation had other numbers."""
    for record in records:
        record["actor"]["contract"] = "rlscaler.io/observation/v3"
        record["state"].pop("headroom", None)
        record.pop("headroom")
        if (seen := record["observation"]) is not None:
            seen["memory_utilization"], seen["load_variance"] = seen.pop("headroom"), seen.pop("near_misses")
    return records


def test_decisions_of_the_rule_replay_across_observation_contracts(rule, episode, log):
    records = of_contract_3(episode(rule, length=9))
    done = run(log(*records), "-o", "json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["same"] == len(records)


def test_decisions_of_a_network_of_an_earlier_contract_are_refused_with_the_command(ppo, episode, log):
    records = of_contract_3(episode(ppo, length=3))
    for record in records:
        record["actor"]["digest"] = "0" * 64
    done = run(log(*records))
    assert done.exit_code == 3
    told = " ".join(done.output.split())
    assert "rlscaler.io/observation/v3" in told
    assert "`rlscaler replay` of the release that wrote it" in told


def consumers(entry, rule, **columns):
    """A policy of consumers; the GPU pool takes their place here."""
    one = entry(actor=rule, rate=190.0, stream=True, slo_ms=10_000.0)
    for name, value in ({"lag_messages": 90_000.0, "partitions": 12} | columns).items():
        getattr(one.samples, name)[:] = value
    return one


def test_a_log_of_consumers_of_a_release_that_did_not_know_what_they_process_replays(rule, entry, log):
    record = recorded(decide_all([consumers(entry, rule)])[0])
    assert "throughput" not in [step["guard"] for step in record["guards"]]
    assert "trial" not in record["state"]
    assert record["samples"].pop("processed") is None
    done = run(log(record), "-o", "json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["same"] == 1


def test_a_scale_up_that_is_undone_replays_and_another_trial_is_a_difference(rule, entry, log):
    one = consumers(entry, rule, processed=40.0)
    one.state.trial[0, [PHASE, FEWER, MORE, UNTIL]] = Phase.HELD, 4.0, 12.0, np.inf
    record = recorded(decide_all([one])[0])
    assert [step["guard"] for step in record["guards"] if step["before"] != step["after"]][-1] == "throughput"
    assert run(log(record)).exit_code == 0
    record["state"]["trial"][FEWER] = 6.0
    assert run(log(record)).exit_code == 1


def test_a_grant_replays_and_another_one_is_a_difference(rule, entry, log):
    one = entry(actor=rule, rate=190.0)
    one.samples.granted_replicas[:] = 3, -1
    record = recorded(decide_all([one])[0])
    assert [step["after"]["gpu"] for step in record["guards"] if step["guard"] == "grant"] == [3]
    assert run(log(record)).exit_code == 0
    record["samples"]["granted_replicas"] = [4, -1]
    done = run(log(record))
    assert done.exit_code == 1
    assert "guards" in done.output


@pytest.mark.parametrize("params", [{}, {"has_behavior": True, "stabilization_seconds": (20.0, 60.0)}])
def test_everything_recorded_comes_out_again(ppo, rule, episode, log, params):
    records = [*episode(ppo, **params), *episode(rule, name="other", **params), *episode(None, name="none", **params)]
    log(*records[30:])
    done = run("-o", "json", log(*records[:30], name="audit.jsonl.1.gz").parent)
    tally = json.loads(done.stdout)
    assert done.exit_code == 0, done.output
    assert tally["same"] == tally["decisions"] == 90
    assert tally["policies"] == 3
    assert tally["largestProbabilityError"] < 1e-6


def test_the_episode_is_worth_replaying(ppo, episode):
    records = episode(ppo)
    flags = {flag for record in records for flag in record["flags"]}
    assert {"HeldUnknown", "Floor", "Paused"} <= flags
    assert len({tuple(record["desired"].values()) for record in records}) > 3


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("desired", "gpu"), 99),
        (("guards", 3, "after", "cpu"), 99),
        (("probabilities", 2), 0.5),
        (("action", 0), 9),
        (("flags",), ["Floor"]),
        (("weights", "gpu"), -1),
        (("samples", "arrival_rate"), 900.0),
        (("params", "min_replicas"), [8, 8]),
        (("observation", "throughput", "state"), "UNKNOWN"),
    ],
)
def test_any_other_number_is_found_and_named(ppo, episode, log, path, value):
    records = [record for record in episode(ppo) if record["kind"] == "action" and not record["flags"]]
    changed = records[2]
    for part in path[:-1]:
        changed = changed[part]
    changed[path[-1]] = value
    done = run(log(*records))
    assert done.exit_code == command.DIFFERENT
    assert records[2]["decision_id"] in done.stderr
    assert "different            1" in done.stdout
    if path[0] not in ("samples", "params"):
        assert path[0] in done.stderr


def test_rounding_of_probabilities_is_no_difference(ppo, episode, log):
    records = episode(ppo)
    for record in records:
        if record["probabilities"]:
            record["probabilities"] = [p + 4e-6 for p in record["probabilities"]]
    done = run(log(*records))
    assert done.exit_code == 0
    assert "4e-06" in done.stdout


def test_a_line_cut_short_is_counted_and_a_foreign_one_is_not_replayed(rule, episode, log):
    records = episode(rule, length=3)
    done = run(log(records[0], '{"decision_id": "x", "stat\n', *records[1:]))
    assert done.exit_code == 0
    assert "1 lines were cut short" in done.stdout
    done = run(log(records[0], "hello}\n", '{"a": 1}\n', {**records[1], "schema": "v0"}, {"decision_id": "x"}))
    assert done.exit_code == command.NOT_REPLAYED
    assert "not replayed         4" in done.stdout
    assert "audit.jsonl:4" in done.stderr


def test_an_actor_that_is_not_there_is_named(rule, episode, log):
    records = episode(rule, length=4)
    for record in records:
        record["actor"] |= {"name": "tailored", "digest": "ab" * 32}
    done = run(log(*records))
    assert done.exit_code == command.NOT_REPLAYED
    assert "not replayed         2" in done.stdout
    assert [record["kind"] for record in records].count("action") == 2
    assert done.stderr.count("'tailored'") == 1
    assert "--model" in done.stderr


def test_the_same_network_with_another_envelope_is_another_actor(ppo, episode, log):
    records = episode(ppo, length=1)
    records[0]["actor"]["manifest"] = "0" * 64
    assert "another manifest" in run(log(*records)).stderr


def test_a_model_of_ones_own_is_found_by_its_digest(ppo, episode, log, tmp_path):
    folder, models = tmp_path / "mine", resources.files("rlscaler_core.models")
    folder.mkdir()
    manifest = json.loads((models / "ppo.json").read_text()) | {"name": "mine"}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "notes.json").write_text("{}")
    (folder / "a.onnx").write_bytes((models / "ppo.onnx").read_bytes())
    mine = AvailableActors([folder]).find(
        {"digest": ppo.manifest.digest, "manifest": manifest_digest(Manifest.load(folder / "manifest.json"))}
    )
    path = log(*episode(mine, length=4))
    assert run(path).exit_code == command.NOT_REPLAYED
    assert run(path, "--model", folder).exit_code == 0
    assert run(path, "--model", folder / "a.onnx").exit_code == 0
    graph = base64.b64encode((folder / "a.onnx").read_bytes()).decode()
    body = {"kind": "ConfigMap", "metadata": {"name": "mine"}, "data": {"manifest.json": json.dumps(manifest)}}
    (tmp_path / "mine.yaml").write_text(json.dumps(body | {"binaryData": {"policy.onnx": graph}}))
    assert run(path, "--model", tmp_path / "mine.yaml").exit_code == 0


def test_one_policy_of_many(rule, episode, log):
    path = log(*episode(rule, length=4), *episode(rule, length=5, name="other"))
    assert json.loads(run("-o", "json", path, "--policy", "ns/other").stdout)["decisions"] == 5


@pytest.mark.parametrize("arguments", [["nowhere.jsonl"], ["."], ["--model", "."]])
def test_what_is_missing_is_said(arguments, tmp_path, monkeypatch, log, rule, episode):
    monkeypatch.chdir(tmp_path)
    if arguments[0] == "--model":
        arguments = [*arguments, log(*episode(rule, length=1))]
    done = run(*arguments)
    assert done.exit_code == command.NOT_REPLAYED
    assert "name " in done.output


def test_an_empty_log_proves_nothing(log):
    assert run(log()).exit_code == command.NOT_REPLAYED


def test_a_damaged_archive_is_said(tmp_path):
    path = tmp_path / "audit.jsonl.1.gz"
    path.write_bytes(gzip.compress(b"{}\n" * 1000)[:-9])
    done = run(path)
    assert done.exit_code == command.NOT_REPLAYED
    assert str(path) in done.output


def test_the_first_differences_are_shown_and_all_when_asked(rule, episode, log):
    path = log(*({**record, "placement": "Nowhere"} for record in episode(rule, length=25)))
    assert run(path).stderr.count(": different") == command.SHOWN
    assert run(path, "--all").stderr.count(": different") == 25


def test_more_than_a_batch_comes_in_order(rule, episode, log, monkeypatch):
    monkeypatch.setattr(compare, "BATCH", 8)
    path = log(*episode(rule, length=2) * 10)
    numbers = [replayed.line.number for replayed in compare.replay(read(find_files([path])), AvailableActors())]
    assert numbers == list(range(1, 21))
