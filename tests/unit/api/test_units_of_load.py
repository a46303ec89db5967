"""What a replica carries: one value, whichever field says it, and never one of another unit."""

import dataclasses
import math

import numpy as np
import pytest

from rlscaler_core.api import Status, parse, to_params
from rlscaler_core.api.status_memory import Learned, LearnedPool
from rlscaler_core.decision.units import LatencySignal, LoadUnit

TOKENS = {"metrics": {"preset": "vllm"}, "capacity": {"unit": "tokens"}}


def params(body, values=None, learned=None):
    return to_params(parse(body(values)).spec, learned)


def test_requests_per_second_is_per_replica_of_the_unit_requests(body):
    one = params(body, {"targets.gpu.requestsPerSecond": 20, "targets.cpu.requestsPerSecond": 4})
    other = params(body, {"capacity": {"unit": "requests", "perReplica": {"gpu": 20, "cpu": 4}}})
    assert one.requests_per_second.tolist() == [[20, 4]]
    for column in dataclasses.fields(one):
        np.testing.assert_array_equal(getattr(one, column.name), getattr(other, column.name), column.name)


@pytest.mark.parametrize(
    ("unit", "number"), [("tokens", LoadUnit.TOKENS), ("concurrency", LoadUnit.CONCURRENCY), ("requests", 0)]
)
def test_the_row_says_what_it_is_counted_in(body, unit, number):
    row = params(body, {**TOKENS, "capacity": {"unit": unit, "perReplica": {"gpu": 4000}}})
    assert row.unit.tolist() == [number]
    assert row.requests_per_second[0, 0] == 4000
    assert math.isnan(row.requests_per_second[0, 1]), "what is not set is not known, and never 0"


def test_the_row_says_which_latency_the_objective_is_on(body):
    slo = {"latencyMilliseconds": 50, "signal": "tpot"}
    assert params(body, {"slo": slo, "metrics": {"preset": "vllm"}}).slo_signal.tolist() == [LatencySignal.OUTPUT_TOKEN]
    assert params(body).slo_signal.tolist() == [LatencySignal.END_TO_END]


def test_what_was_learned_in_another_unit_is_not_used(body):
    learned = Learned(gpu=LearnedPool(requests_per_second=20.0), cpu=LearnedPool(tokens_per_second=900.0))
    row = params(body, TOKENS, learned)
    assert math.isnan(row.requests_per_second[0, 0]), "20 requests/s are not 20 tokens/s"
    assert row.requests_per_second[0, 1] == 900
    assert np.isnan(params(body, {"capacity": {"unit": "concurrency"}}, learned).requests_per_second).all()


def test_what_is_set_wins_over_what_was_learned(body):
    learned = Learned(gpu=LearnedPool(tokens_per_second=900.0))
    values = {**TOKENS, "capacity": {"unit": "tokens", "perReplica": {"gpu": 4000}}}
    assert params(body, values, learned).requests_per_second[0, 0] == 4000


def test_the_field_that_says_it_is_named(body):
    assert parse(body()).spec.per_replica_field("gpu") == "targets.gpu.requestsPerSecond"
    assert parse(body(TOKENS)).spec.per_replica_field("cpu") == "capacity.perReplica.cpu"


def test_own_load_queries_are_for_every_preset(body):
    """A server that counts no tokens has a user's query of them."""
    own = {"metrics": {"preset": "triton", "queries": {"load": "sum(rate(my_tokens_total[60s]))"}}}
    assert parse(body({**own, "capacity": {"unit": "tokens"}})).spec.capacity.unit == "tokens"


def test_the_status_of_an_earlier_release_is_read():
    status = Status.model_validate({"learned": {"gpu": {"requestsPerSecond": 20.0, "samples": 8}}})
    assert (status.learned.gpu.carried("requests"), status.learned.gpu.carried("tokens")) == (20.0, None)
    assert status.capacity is None
