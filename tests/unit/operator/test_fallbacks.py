"""Own queries with a constant side: in an outage it must not pass for a measured value."""

from dataclasses import replace

import pytest

from rlscaler_operator.sensing.fallbacks import measured
from rlscaler_operator.sensing.measure import measure
from rlscaler_operator.sensing.queries import own_name, own_queries
from rlscaler_operator.sensing.results import NOTHING, Reading, unknown
from rlscaler_operator.sensing.subject import Subject

RATE = 'sum(rate(hits{app="a or vector(0)"}[1m]))'


@pytest.mark.parametrize(
    ("promql", "sent"),
    [
        (f"{RATE} or vector(0)", RATE),
        (f"{RATE} OR on() vector(0)", RATE),
        (f"{RATE} or on (app) vector(time() * 0)  # none", f"{RATE}  # none"),
        (f"(({RATE}) or (vector(0)))", f"(({RATE}))"),
        (f"sum by (app) ({RATE} or vector(0)) * 60", f"sum by (app) ({RATE}) * 60"),
        (f"clamp_min({RATE} or vector(0), 0)", f"clamp_min({RATE}, 0)"),
        (f"clamp_min({RATE} or clamp_min(vector(-1), 0), 0)", f"clamp_min({RATE}, 0)"),
        (f"max_over_time(({RATE} or vector(0))[5m:30s])", f"max_over_time(({RATE})[5m:30s])"),
        (f"{RATE} or absent(hits) * 0", RATE),
        (f"{RATE} or (absent_over_time(hits[1m]) - 1)", RATE),
        (f"vector(0) or {RATE}", RATE),
        (f"{RATE} or sum(others) or vector(0)", f"{RATE} or sum(others)"),
        (f"{RATE} or 0 * sum(up)", RATE),
        (f"{RATE} or (up == bool 1)", RATE),
        (f"{RATE} default 0", RATE),
        ("-(hits offset -5m or vector(0))", "-(hits offset -5m)"),
        ("(a or vector(0)) + on() (b @ end() or vector(0))", "(a) + on() (b @ end())"),
        ("scalar(a or vector(0))", "scalar(a)"),
        ("topk(1, a or label_replace(vector(0), 'x', 'y', '', ''))", "topk(1, a)"),
    ],
)
def test_a_constant_side_is_left_out(promql, sent):
    part = measured(promql)
    assert (part.promql.strip(), part.refused) == (sent, False)
    assert part.left_out
    assert measured(sent) == (sent, "", False), "and what is left stays as it is"


@pytest.mark.parametrize(
    "promql",
    [
        RATE,
        "42",
        "vector(3)",
        "5 * (hour() > bool 8)",
        f"{RATE} or 0 * sum(up == 1)",
        f"{RATE} or sum(rate(others[1m]))",
        f"{RATE} + (sum(rate(refused[1m])) or vector(0))",
        f"{RATE} and on() vector(1)",
        f"{RATE} unless on() absent(up)",
        'sum({"http.server.request.rate", app="}"})',
        f"histogram_quantile(0.95, sum by (le) ({RATE}))",
        "up",
        "sum(rate(",
        "a or",
        "WITH (x = 1) x or vector(0) )",
        "(" * 2000 + "a" + ")" * 2000,
    ],
)
def test_every_other_query_is_sent_as_it_is(promql):
    assert measured(promql) == (promql, "", False)


@pytest.mark.parametrize("promql", ["absent(hits) * 5", "sum(absent_over_time(hits[5m]))", "absent(a) or vector(0)"])
def test_a_value_of_nothing_but_absence_is_refused(promql):
    assert measured(promql).refused


@pytest.mark.parametrize(
    ("promql", "scalar"),
    [
        ("scalar(sum(rate(hits[1m])))", True),
        ("(42)", True),
        ("-2 * scalar(hits) + time()", True),
        ("scalar(hits) * hits", False),
        ("sum(hits)", False),
        ("vector(scalar(hits))", False),
        ("hits", False),
        ("WITH (x = 1) x )", False),
    ],
)
def test_a_scalar_is_made_the_one_sample_that_labels_can_be_put_on(promql, scalar):
    """KEDA takes `scalar(...)`, and Prometheus refused it here: label_replace takes no scalar."""
    (query,) = own_queries(Subject("ns", "chat", ("g", None), queries=(("arrivalRate", promql),)))
    assert (f"vector({promql}\n)" in query.promql) is scalar


def reading_of(promql, reading):
    query = ("arrivalRate", promql)
    subject = replace(Subject("ns", "chat", ("g", None)), queries=(query,))
    return measure({own_name(*query): {NOTHING: reading}}, subject, (1, 0))["arrival_rate"]


def test_without_series_the_load_is_unknown_and_the_message_has_field_and_remedy():
    promql = f"{RATE} or vector(0)"
    (query,) = own_queries(Subject("ns", "chat", ("g", None), queries=(("arrivalRate", promql),)))
    assert "or vector(0)\n" not in query.promql
    gone = reading_of(promql, unknown("SeriesAbsent", "no sample"))
    assert (gone.known, gone.reason) == (False, "ConstantFallback")
    for part in ("spec.metrics.queries.arrivalRate", "`or vector(0)`", "remove it"):
        assert part in gone.message
    assert reading_of(promql, Reading(7.0, 0.0)).value == 7.0
    assert not reading_of("absent(hits) * 5", Reading(5.0, 0.0)).known
