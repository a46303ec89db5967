"""Decisions do not depend on what a load is counted in, and a network acts for what it was trained for only."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlscaler_core.decision.batch import Entry, decide_all, fresh_state
from rlscaler_core.decision.exceptions import ModelError
from rlscaler_core.decision.manifest import Manifest
from rlscaler_core.decision.rule import Rule
from rlscaler_core.decision.tables import make_params, make_samples
from rlscaler_core.decision.types import Flag
from rlscaler_core.decision.units import LatencySignal, LoadUnit
from rlscaler_core.models import load_bundled

BUNDLED = load_bundled("ppo")


def played(loads, unit=LoadUnit.REQUESTS, factor=1.0, actor=None):
    """The replicas decided upon under loads (T,), each counted `factor` times, one every 30 s."""
    actor = Rule() if actor is None else actor
    replicas, seen = (2, 2), []
    state = fresh_state(actor, replicas, 0.0)
    params = make_params(1, requests_per_second=(20.0 * factor, 4.0 * factor), unit=unit)
    for i, load in enumerate(loads):
        samples = make_samples(
            1,
            time=30.0 * i,
            arrival_rate=load * factor,
            cpu_utilization=50.0,
            gpu_utilization=50.0,
            memory_utilization=50.0,
            p95_ms=100.0,
            spec_replicas=replicas,
            ready_replicas=replicas,
        )
        (outcome,) = decide_all([Entry(params, state, samples, "action", actor)])
        state = outcome.state
        replicas = tuple(outcome.decision.desired[0].tolist())
        seen.append((replicas, int(outcome.decision.flags[0])))
    return seen, outcome


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 200), min_size=4, max_size=20))
def test_a_load_in_tokens_decides_as_the_same_load_in_requests(loads):
    """1,024 tokens are about a request, and a power of two: the arithmetic is the same to the last bit."""
    in_tokens, _ = played([float(load) for load in loads], LoadUnit.TOKENS, 1024.0)
    in_requests, _ = played([float(load) for load in loads])
    assert in_tokens == in_requests


def test_chance_is_told_from_a_jump_in_requests_whatever_is_counted():
    """40,000 tokens/s are no 40,000 requests/s: what wavers by a third is chance of 40 requests/s, and no jump."""
    wavering = [40.0, 62.0, 41.0, 39.0] * 20
    (*_, tokens), requests = played(wavering, LoadUnit.TOKENS, 1024.0), played(wavering)[1]
    np.testing.assert_array_equal(tokens.state.load_calendar, requests.state.load_calendar)
    np.testing.assert_array_equal(tokens.state.load_recent, requests.state.load_recent)


def test_for_tokens_the_rule_of_the_bundled_network_acts_alone_and_the_decision_says_why():
    seen, outcome = played([30.0] * 3, LoadUnit.TOKENS, 1000.0, actor=BUNDLED)
    assert [replicas for replicas, _ in seen] == [replicas for replicas, _ in played([30.0] * 3)[0]]
    assert all(flags & Flag.OUT_OF_ENVELOPE and not flags & Flag.FALLBACK for _, flags in seen)
    assert outcome.outside == "capacity.unit is tokens and the model was trained for requests"
    seen, outcome = played([30.0] * 3, actor=BUNDLED)
    assert "capacity.unit" not in outcome.outside


ENVELOPE = BUNDLED.manifest.envelope


def outside(columns, **changes):
    manifest = Manifest(name="test", envelope=ENVELOPE.model_copy(update=changes))
    mask, reasons = manifest.outside(make_params(2, **({"requests_per_second": (20, 4)} | columns)))
    assert mask.tolist() == [bool(reason) for reason in reasons]
    assert mask.tolist() == manifest.mask(make_params(2, **({"requests_per_second": (20, 4)} | columns))).tolist()
    assert reasons[0] == reasons[1]
    return reasons[0]


TRAINED = {"tokens": (1000.0, 8000.0), "requests": None}


@pytest.mark.parametrize(
    ("columns", "changes", "reason"),
    [
        ({}, {}, ""),
        ({"unit": LoadUnit.CONCURRENCY}, {}, "capacity.unit is concurrency and the model was trained for requests"),
        ({"unit": LoadUnit.TOKENS, "requests_per_second": (4000, 1000)}, {"units": TRAINED}, ""),
        ({"unit": LoadUnit.TOKENS, "requests_per_second": (np.nan, 1000)}, {"units": TRAINED}, ""),
        (
            {"unit": LoadUnit.TOKENS, "requests_per_second": (9000, 1000)},
            {"units": TRAINED},
            "a replica carries 9000 tokens/s, which is outside 1000..8000",
        ),
        ({"unit": LoadUnit.TOKENS, "requests_per_second": (4000, 1), "present": (True, False)}, {"units": TRAINED}, ""),
        ({"requests_per_second": (4000, 1000)}, {"units": TRAINED}, ""),
        ({"slo_signal": LatencySignal.FIRST_TOKEN}, {}, "slo.signal is ttft and the model was trained for endToEnd"),
        ({"slo_signal": LatencySignal.FIRST_TOKEN}, {"signals": ("ttft",)}, ""),
        ({}, {"signals": ("ttft",)}, "slo.signal is endToEnd and the model was trained for ttft"),
    ],
)
def test_the_envelope_says_units_ranges_and_latencies(columns, changes, reason):
    assert outside(columns, **changes) == reason


def test_every_reason_is_given():
    said = outside({"unit": LoadUnit.TOKENS, "slo_signal": LatencySignal.OUTPUT_TOKEN, "slo_ms": 5.0})
    parts = ("capacity.unit is tokens", "slo.signal is tpot", "slo.latencyMilliseconds 5 is outside")
    assert all(part in said for part in parts)


def test_a_manifest_without_units_is_of_requests_and_a_wrong_one_is_refused():
    envelope = ENVELOPE.model_dump(mode="json", exclude={"units", "signals"})
    read = Manifest.model_validate_json(Manifest(name="old").model_dump_json())
    assert read.envelope is None
    assert type(ENVELOPE).model_validate(envelope).units == {"requests": None}
    body = Manifest(name="x").model_dump(mode="json") | {"envelope": envelope | {"units": {"words": None}}}
    with pytest.raises(ModelError, match="units"):
        Manifest.parse(json.dumps(body))
