"""Actors from ONNX and manifest, what is refused, and the decision they take part in."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from rlscaler_core.decision.action import from_indices, head_probabilities, most_likely, one_hot, to_indices
from rlscaler_core.decision.actor import Actor
from rlscaler_core.decision.decide import decide
from rlscaler_core.decision.exceptions import ContractMismatchError, ModelError
from rlscaler_core.decision.headroom import factors
from rlscaler_core.decision.manifest import Envelope, Manifest
from rlscaler_core.decision.observation import CONTRACT_VERSION, sense
from rlscaler_core.decision.rule import Rule
from rlscaler_core.decision.tables import initial_state, make_params, make_samples
from rlscaler_core.decision.training_distribution import TrainingDistribution
from rlscaler_core.decision.types import FallbackBehavior, Flag, Float32, Params, Placement, Samples, State
from rlscaler_core.models import load_bundled

ENVELOPE = Envelope.model_validate(
    {
        "slo_ms": [200, 3000],
        "cold_start_seconds": {"gpu": [20, 90], "cpu": [3, 20]},
        "max_replicas": {"gpu": [5, 20], "cpu": [5, 20]},
        "price_ratio": [2, 8],
        "interval_seconds": [10, 60],
        "rps_ratio": [2, 10],
        "lag_seconds": [2, 40],
    }
)


def linear(bias: np.ndarray, stack: int = 2, inputs: str = "observation", scale: float = 0.0) -> bytes:
    """logits = bias + scale * (the first 13 inputs)."""
    weight = np.zeros((10 * stack, 13), np.float32)
    np.fill_diagonal(weight, scale)
    graph = helper.make_graph(
        [helper.make_node("Gemm", [inputs, "w", "b"], ["logits"])],
        "linear",
        [helper.make_tensor_value_info(inputs, TensorProto.FLOAT, ["N", 10 * stack])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 13])],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(bias.astype(np.float32), "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


def manifest(content: bytes, **fields: object) -> Manifest:
    return Manifest.model_validate(
        {"name": "test", "stack_size": 2, "digest": hashlib.sha256(content).hexdigest()} | fields
    )


UP_UP_CPU = one_hot(np.array([[1, 2, Placement.PREFER_CPU]], np.int32))[0]


def rows(n: int, **columns: object) -> tuple[Params, State, Samples]:
    params = make_params(n, requests_per_second=(20, 4), **columns)
    samples = make_samples(
        n,
        time=100.0,
        arrival_rate=np.linspace(1, 30, n),
        cpu_utilization=50.0,
        gpu_utilization=50.0,
        memory_utilization=50.0,
        p95_ms=200.0,
        spec_replicas=(3, 4) * params.present,
        ready_replicas=(3, 4) * params.present,
    )
    return params, sense(params, initial_state(n, 2), samples), samples


def test_an_actor_file_decides(tmp_path: Path) -> None:
    content = linear(5 * UP_UP_CPU)
    (tmp_path / "a.onnx").write_bytes(content)
    (tmp_path / "a.json").write_text(manifest(content).model_dump_json())
    actor = Actor.load(tmp_path / "a.onnx", Manifest.load(tmp_path / "a.json"))
    params, state, samples = rows(3)
    decision, observation, following = decide(params, state, samples, actor)
    assert decision.action.tolist() == [[1, 2, Placement.PREFER_CPU]] * 3
    assert decision.desired.tolist() == [[4, 6]] * 3
    np.testing.assert_allclose(decision.probabilities[:, :5].sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(decision.probabilities[:, 10:].sum(axis=1), 1, rtol=1e-6)
    assert (decision.flags == Flag.NONE).all()
    assert observation.fed.shape == (3, 10)
    assert following.stacked.tolist() == [1, 1, 1]


def test_a_batch_decides_as_its_rows_do_alone() -> None:
    rng = np.random.default_rng(4)
    content = linear(rng.standard_normal(13), scale=3.0)
    actor = Actor.load(content, manifest(content))
    params, state, samples = rows(40, slo_ms=np.linspace(100, 2000, 40))
    together, _, _ = decide(params, state, samples, actor)
    for row in range(40):
        one = slice(row, row + 1)
        alone, _, _ = decide(params.take(one), state.take(one), samples.take(one), actor)
        assert (alone.desired == together.desired[one]).all()
        np.testing.assert_allclose(alone.probabilities, together.probabilities[one], atol=1e-6)


def test_the_head_of_an_absent_pool_says_no_change() -> None:
    content = linear(5 * UP_UP_CPU)
    params, state, samples = rows(1, present=(False, True))
    decision, _, _ = decide(params, state, samples, Actor.load(content, manifest(content)))
    assert decision.action.tolist() == [[0, 2, Placement.PREFER_CPU]]
    assert decision.probabilities[0, :5].tolist() == [0, 0, 1, 0, 0]


def test_outside_the_envelope_nobody_asks_the_actor() -> None:
    content = linear(5 * UP_UP_CPU)
    actor = Actor.load(content, manifest(content, envelope=ENVELOPE.model_dump()))
    keeps = FallbackBehavior.CURRENT_REPLICAS
    params, state, samples = rows(2, slo_ms=[1000.0, 50.0], fallback=keeps)
    decision, _, _ = decide(params, state, samples, actor)
    assert decision.desired.tolist() == [[4, 6], [3, 4]]
    assert decision.flags.tolist() == [Flag.NONE, Flag.FALLBACK | Flag.OUT_OF_ENVELOPE]


def test_outside_the_envelope_the_rule_beneath_a_lasting_action_decides_alone() -> None:
    content = linear(5 * UP_UP_CPU)
    learned = {"late_price": 0.5, "caution": 0.2, "jump_caution": 0.15}
    fields = {"residual": True, "lasting": True, "learned": learned, "envelope": ENVELOPE.model_dump()}
    params, state, samples = rows(2, slo_ms=[1000.0, 50.0], fallback=FallbackBehavior.CURRENT_REPLICAS)
    decision, _, following = decide(params, state, samples, Actor.load(content, manifest(content, **fields)))
    by_rule, _, _ = decide(params, sense(params, initial_state(2, 1), samples), samples, Rule())
    assert decision.desired[1].tolist() == by_rule.desired[1].tolist()
    assert decision.placement[1] == by_rule.placement[1]
    assert decision.flags[1] == Flag.OUT_OF_ENVELOPE
    assert decision.action[1].tolist() == [0, 0, -1]
    assert (factors(following) > 1).tolist() == [[True, True], [False, False]]
    samples.arrival_rate[1] = np.nan
    unknown, _, _ = decide(params, state, samples, Actor.load(content, manifest(content, **fields)))
    assert unknown.desired[1].tolist() == [3, 4], "held: a rule without a load decides nothing"
    assert unknown.flags[1] & Flag.HELD_UNKNOWN


@pytest.mark.parametrize(
    ("columns", "lag", "reason"),
    [
        ({}, 3.0, ""),
        ({"slo_ms": 100.0}, 3.0, "slo.latencyMilliseconds 100 is outside 200..3000"),
        ({"interval_seconds": 300.0}, 3.0, "intervalSeconds 300"),
        ({"cold_start_seconds": (300, 8)}, 3.0, "targets.gpu.coldStartSeconds 300"),
        ({"cold_start_seconds": (300, 8), "present": (False, True)}, 3.0, ""),
        ({"cost_per_hour": (1.0, 1.0)}, 3.0, "costPerHour gpu/cpu 1"),
        ({"cost_per_hour": (1.0, 1.0), "present": (True, False)}, 3.0, ""),
        ({"requests_per_second": (100, 1)}, 3.0, "requestsPerSecond gpu/cpu 100"),
        ({"cold_start_seconds": (90 * (1 + 1e-12), 8)}, 3.0, ""),
        ({"max_replicas": (50, 10)}, 3.0, "targets.gpu.maxReplicas 50 is outside 5..20"),
        ({"max_replicas": (10, 4)}, 3.0, "targets.cpu.maxReplicas 4 is outside 5..20"),
        ({"max_replicas": (10, 50), "present": (True, False)}, 3.0, ""),
        ({"requests_per_second": (np.nan, 1)}, 3.0, ""),
        ({}, 0.0, ""),
        ({}, 50.0, "age of the arrival rate 50"),
        ({}, np.inf, ""),
        ({"slo_ms": 100.0, "interval_seconds": 5.0}, 3.0, "; intervalSeconds 5"),
    ],
)
def test_envelope(columns: dict, lag: float, reason: str) -> None:
    params = make_params(1, **{"requests_per_second": (20, 4)} | columns)
    outside, reasons = Manifest(name="test", envelope=ENVELOPE).outside(params, np.array([lag]))
    assert reason in reasons[0]
    assert outside[0] == bool(reason) == bool(reasons[0])
    assert not Manifest(name="test").outside(params)[0].any()


def test_an_observation_unlike_those_of_training_is_outside() -> None:
    content = linear(5 * UP_UP_CPU)
    measure = TrainingDistribution.of(np.random.default_rng(1).normal(0.5, 0.01, (1000, 10)), 1.25)
    envelope = ENVELOPE.model_copy(update={"observation": measure})
    params, state, samples = rows(1)
    actor = Actor.load(content, manifest(content, envelope=envelope.model_dump()))
    decision, observation, _ = decide(params, state, samples, actor)
    assert decision.flags[0] & Flag.OUT_OF_ENVELOPE
    assert actor.manifest.outside(params, None, observation)[1] == ["the observation is unlike those of training"]


class Broken:
    """An actor whose runtime fails, or that answers NaN in one row."""

    manifest = Manifest(name="broken", stack_size=2)

    def __init__(self, answer: Float32 | None) -> None:
        self.answer = answer

    def probabilities(self, stacked: Float32) -> Float32:
        if self.answer is None:
            raise ModelError("broken: the network failed")
        return self.answer


def test_a_failing_actor_holds() -> None:
    params, state, samples = rows(2)
    decision, _, following = decide(params, state, samples, Broken(None))
    assert decision.desired.tolist() == [[3, 4]] * 2
    assert (decision.flags == Flag.HELD_UNKNOWN).all()
    assert following.unknown_intervals.tolist() == [1, 1]


def test_nan_holds_its_row_only() -> None:
    answer = np.stack([UP_UP_CPU, np.full(13, np.nan, np.float32)])
    params, state, samples = rows(2)
    decision, _, _ = decide(params, state, samples, Broken(answer))
    assert decision.desired.tolist() == [[4, 6], [3, 4]]
    assert decision.action[1].tolist() == [0, 0, -1]


GOOD = linear(np.zeros(13))


@pytest.mark.parametrize(
    ("content", "fields", "error", "complaint"),
    [
        pytest.param(GOOD[:-9], {}, ModelError, "damaged", id="truncated"),
        pytest.param(b"no graph", {"digest": hashlib.sha256(b"no graph").hexdigest()}, ModelError, "not an ONNX graph"),
        pytest.param(GOOD, {"digest": ""}, ModelError, "digest is empty", id="no digest"),
        pytest.param(GOOD, {"contract_version": "rlscaler.io/observation/v9"}, ContractMismatchError, "v9"),
        pytest.param(GOOD, {"stack_size": 4}, ContractMismatchError, r"\(N, 40\)", id="other stack"),
        pytest.param(linear(np.zeros(13), inputs="x"), {"digest": None}, ContractMismatchError, "inputs"),
        pytest.param(linear(np.full(13, np.nan)), {"digest": None}, ModelError, "NaN", id="NaN weights"),
    ],
)
def test_bad_files_are_refused(content: bytes, fields: dict, error: type, complaint: str) -> None:
    if fields.get("digest", "") is None:
        fields = {**fields, "digest": hashlib.sha256(content).hexdigest()}
    with pytest.raises(error, match=complaint):
        Actor.load(content, manifest(GOOD, **fields))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"gone\.onnx"):
        Actor.load(tmp_path / "gone.onnx", manifest(GOOD))
    with pytest.raises(ModelError, match=r"gone\.json"):
        Manifest.load(tmp_path / "gone.json")


@pytest.mark.parametrize(
    ("body", "error", "complaint"),
    [
        ("{", ModelError, "not JSON"),
        ("[]", ContractMismatchError, "contract_version is None"),
        ({"contract_version": "v0", "name": "x"}, ContractMismatchError, "'v0'"),
        ({"contract_version": CONTRACT_VERSION}, ModelError, "name: Field required"),
        ({"contract_version": CONTRACT_VERSION, "name": "x", "neutral": [0.1]}, ModelError, "neutral"),
        ({"contract_version": CONTRACT_VERSION, "name": "x", "surprise": 1}, ModelError, "surprise"),
    ],
)
def test_bad_manifests_are_refused(body: object, error: type, complaint: str) -> None:
    with pytest.raises(error, match=complaint):
        Manifest.parse(body if isinstance(body, str) else json.dumps(body), "policy")


def test_a_manifest_survives_json() -> None:
    original = manifest(GOOD, envelope=ENVELOPE.model_dump(), training={"seed": 3, "hyperparameters": {"gamma": 0.97}})
    assert Manifest.parse(original.model_dump_json()) == original


def test_bundled_rule_decides_without_a_network() -> None:
    rule = load_bundled("rule")
    params, _, samples = rows(2)
    samples.arrival_rate[:] = (1.0, 100.0)
    state = sense(params, initial_state(2, rule.manifest.stack_size), samples)
    decision, _, _ = decide(params, state, samples, rule)
    capacity = (decision.desired * [20, 4]).sum(axis=1)
    assert decision.desired[0].tolist() == [1, 1]
    assert capacity[1] * 0.8 >= 100
    assert decision.probabilities[0].tolist() == [0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0]


def test_nobody_is_told_that_an_actor_runs(tmp_path: Path) -> None:
    """ONNX Runtime writes an identifier of the machine below HOME before it sends anything."""
    program = "from rlscaler_core.models import load_bundled; load_bundled('ppo')"
    subprocess.run([sys.executable, "-c", program], check=True, env={"HOME": str(tmp_path)})
    assert list(tmp_path.rglob("*")) == []


def test_an_unknown_bundle_is_refused() -> None:
    with pytest.raises(ModelError, match="use ppo, rule or streams"):
        load_bundled("dqn")


def test_actions_and_indices() -> None:
    action = np.array([[-2, 2, 0], [0, 1, 2]], np.int32)
    assert (from_indices(to_indices(action)) == action).all()
    assert (most_likely(one_hot(action)) == action).all()
    logits = np.zeros((1, 13), np.float32)
    equal = head_probabilities(logits)
    assert not logits.any()
    assert equal[0].tolist() == pytest.approx([0.2] * 10 + [1 / 3] * 3)
    large = head_probabilities(np.full((1, 13), 3e38, np.float32))
    assert np.isfinite(large).all()
