"""A decision's line: nothing is lost on the way to JSON and back, and all that decides is in it."""

import json
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlscaler_core.decision.batch import Entry, decide_all
from rlscaler_core.decision.manifest import Manifest
from rlscaler_core.decision.tables import initial_state, make_params, make_samples
from rlscaler_core.models import load_bundled
from rlscaler_operator.exceptions import RecordError
from rlscaler_operator.records.record import RECORDED, Subject, entry_of, line, manifest_digest
from rlscaler_operator.records.rows import decode_params, decode_samples, decode_state, encode, encode_state
from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.reporting.reporter import Reporter
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.registry import Registry

SUBJECT = Subject("ns", "chat", "uid", 3, "Auto")


def through_json(value):
    return json.loads(json.dumps(value, allow_nan=False))


def assert_equal(one, other):
    for field in fields(one):
        before, after = getattr(one, field.name), getattr(other, field.name)
        assert before.dtype == after.dtype, field.name
        np.testing.assert_array_equal(before, after, err_msg=field.name)


def anything(generator, values):
    """Random numbers of the array's type; NaN and infinities among the floats."""
    if values.dtype.kind == "b":
        return generator.random(values.shape) < 0.5
    if values.dtype.kind == "i":
        return generator.integers(-(2**31), 2**31, values.shape).astype(values.dtype)
    with np.errstate(over="ignore"):  # of float32 columns
        drawn = generator.lognormal(0, 20, values.shape).astype(values.dtype)
    kinds = generator.integers(0, 6, values.shape)
    for kind, special in enumerate((np.nan, np.inf, -np.inf)):
        drawn[kinds == kind] = special
    return drawn


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32 - 1))
def test_params_and_samples_come_back_bit_by_bit(seed):
    generator = np.random.default_rng(seed)
    params = make_params(2)
    samples = make_samples(2, spec_replicas=0, ready_replicas=0)
    for table, decode in ((params, decode_params), (samples, decode_samples)):
        for field in fields(table):
            setattr(table, field.name, anything(generator, getattr(table, field.name)))
        if table is params:
            np.abs(table.step_size, out=table.step_size)
            table.step_size[table.step_size <= 0] = 1
            table.min_replicas *= table.present
            table.max_replicas *= table.present
            table.fallback_replicas = np.abs(table.fallback_replicas // 2)
        assert_equal(table.take(slice(1, 2)), decode(through_json(encode(table, 1))))


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32 - 1), stack=st.integers(1, 8), rates=st.integers(0, 128), events=st.integers(0, 32))
def test_a_state_comes_back_bit_by_bit(seed, stack, rates, events):
    generator = np.random.default_rng(seed)
    state = initial_state(1, stack)
    for field in fields(state):
        setattr(state, field.name, anything(generator, getattr(state, field.name)))
    state.rate_time[:] = np.nan
    state.rate_value[:] = np.nan
    if rates:
        state.rate_time[0, -rates:] = generator.random(rates) * 1e9
        state.rate_value[0, -rates:] = generator.random(rates)
    for time, value in (("event_time", "event_change"), ("recommendation_time", "recommendation")):
        getattr(state, time)[:, :, events:] = np.nan
        getattr(state, value)[:, :, events:] = 0
        getattr(state, value)[:, :, :events][
            np.isnan(getattr(state, time)[:, :, :events]).all(axis=1)[:, None, :].repeat(2, 1)
        ] = 0
    assert_equal(state, decode_state(through_json(encode_state(state))))


def test_every_field_of_an_entry_is_recorded():
    """Whatever decides belongs into the record: a new field of Entry goes into `line` and `entry_of`."""
    assert {field.name for field in fields(Entry)} == RECORDED


@pytest.mark.parametrize("kind", ["action", "floor"])
def test_a_record_holds_what_was_decided_upon(entry, rule, kind):
    outcome = decide_all([entry(kind)])[0]
    record = through_json(line("id", 1.0, SUBJECT, outcome, [], None, None))
    again = entry_of(record, lambda _: rule)
    for name in ("params", "state", "samples"):
        assert_equal(getattr(outcome.entry, name), getattr(again, name))
    assert again.kind == kind


def test_a_column_that_an_older_release_did_not_have_is_at_its_default(entry, rule):
    record = through_json(line("id", 1.0, SUBJECT, decide_all([entry()])[0], [], None, None))
    del record["params"]["failure_threshold"], record["state"]["floor_hold"], record["samples"]["paused"]
    again = entry_of(record, lambda _: rule)
    assert again.params.failure_threshold.tolist() == [3]
    assert again.state.floor_hold.tolist() == [[0, 0]]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"schema": "rlscaler.io/decision/v1"}, "decision/v1"),
        ({"params": {"warp": 1}}, "warp"),
        ({"state": {"stack": [[0] * 10], "rate_slots": 4, "mood": 1}}, "mood"),
        ({"state": {"stack": [[0] * 10]}}, "rate_slots"),
        ({"state": {"stack": [[0] * 10], "rate_slots": 2, "rate_time": [1, 2, 3]}}, "state.rate_time"),
        ({"samples": {"time": 1.0}}, "spec_replicas"),
        ({"kind": None}, "kind is missing"),
        ({"params": None}, "params is missing"),
    ],
)
def test_what_cannot_be_read_is_named(entry, rule, change, named):
    record = through_json(line("id", 1.0, SUBJECT, decide_all([entry()])[0], [], None, None)) | change
    with pytest.raises(RecordError, match=named):
        entry_of(record, lambda _: rule)


def test_a_decision_whose_write_was_cut_short_is_recorded_once(entry, policy_body, tmp_path):
    policy = Registry().put(policy_body())
    outcome = decide_all([entry()])[0]
    reporter = Reporter(Settings(audit_log=tmp_path / "audit.jsonl"), None, Metrics(), None)
    reporter.unfinished(policy, outcome)
    reporter.unfinished(policy, outcome)
    reporter.unfinished(policy, None)
    reporter.close()
    (record,) = [json.loads(text) for text in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert record["applied"] is None
    assert record["name"] == "chat"


def test_a_field_that_a_later_release_adds_to_the_manifest_makes_no_other_actor():
    class Later(Manifest):
        mood: str = "calm"

    body = load_bundled("ppo").manifest.model_dump(mode="json")
    assert manifest_digest(Later.model_validate(body)) == manifest_digest(Manifest.model_validate(body))
    assert manifest_digest(Later.model_validate(body | {"mood": "wild"})) != manifest_digest(Manifest(**body))
    assert manifest_digest(Manifest(**body | {"training": {}})) == manifest_digest(Manifest(**body))
    assert manifest_digest(Manifest(**body | {"lasting": not body["lasting"]})) != manifest_digest(Manifest(**body))
