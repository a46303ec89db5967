"""A service's history from a server that speaks Prometheus's API."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlscaler_rl.workloads import WorkloadError
from rlscaler_rl.workloads.history import TimeRange, parse_duration, parse_time, read_history

BEGIN = 1_700_000_010
QUERY = "sum(rate(http_requests_total[1m]))"


def test_a_long_range_is_asked_for_in_pieces(api):
    api.series = lambda moment: {"": (moment - BEGIN) / 15}
    trace = read_history(api.url + "/", QUERY, TimeRange(BEGIN, BEGIN + 15 * 25_000, 15))
    np.testing.assert_array_equal(trace.rate, np.arange(25_001))
    assert trace.width_s == 15
    assert len(api.asked) == 3
    assert {asked["query"] for asked in api.asked} == {QUERY}
    assert trace.comments == (
        f"Source: {api.url}, query {QUERY}",
        "From 2023-11-14T22:13:30Z to 2023-11-19T06:23:30Z every 15 s",
    )


def test_gaps_are_an_error_unless_something_is_to_fill_them(api):
    holes = {2, 3, 7}
    api.series = lambda moment: {"": None if (i := (moment - BEGIN) / 15) in holes else float("nan") if i == 8 else i}
    asked = TimeRange(BEGIN, BEGIN + 15 * 9, 15)
    complaint = r"4 of 10 samples are missing, the first at 2023-11-14T22:14:00Z; .* --fill hold or --fill zero"
    with pytest.raises(WorkloadError, match=complaint):
        read_history(api.url, QUERY, asked)
    held = read_history(api.url, QUERY, asked, fill="hold")
    assert held.rate.tolist() == [0, 1, 1, 1, 4, 5, 6, 6, 6, 9]
    assert "4 missing samples filled (hold)" in held.comments[1]
    zero = read_history(api.url, QUERY, asked, fill="zero")
    assert zero.rate.tolist() == [0, 1, 0, 0, 4, 5, 6, 0, 0, 9]


def test_nothing_is_held_before_the_first_sample(api):
    api.series = lambda moment: {"": None if moment < BEGIN + 60 else 1.0}
    with pytest.raises(WorkloadError, match="begin with --from 2023-11-14T22:14:30Z"):
        read_history(api.url, QUERY, TimeRange(BEGIN, BEGIN + 150, 15), fill="hold")


@pytest.mark.parametrize(
    ("series", "complaint"),
    [
        (lambda moment: {}, "no data from 2023-11-14"),
        (lambda moment: {"a": 1.0, "b": 2.0}, r'2 series \({"pod": "a"}, {"pod": "b"}, .*put sum\(\.\.\.\) around it'),
        (lambda moment: {"": 100 - (moment - BEGIN)}, r"-5 at 2023-11-14T22:15:15Z; negative, ask for rate"),
        (lambda moment: {"": 0.0}, "0 all the time"),
    ],
)
def test_an_answer_that_is_no_load_is_refused(api, series, complaint):
    api.series = series
    with pytest.raises(WorkloadError, match=complaint):
        read_history(api.url, QUERY, TimeRange(BEGIN, BEGIN + 150, 15))


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (
            (400, json.dumps({"status": "error", "error": """1:5: parse error: it's "odd" """})),
            """HTTP 400: 1:5: parse error: it's "odd\"""",
        ),
        ((500, "<html>"), "HTTP 500: no reason given"),
        ((200, "<html>"), "does not answer as Prometheus does"),
        ((200, '{"status": "success"}'), "does not answer as Prometheus does"),
        ((200, '{"data": {"result": [{"metric": {}, "histograms": []}]}}'), "does not answer as Prometheus does"),
    ],
)
def test_a_refusal_says_why(api, answer, complaint):
    api.answer = answer
    with pytest.raises(WorkloadError) as caught:
        read_history(api.url, QUERY, TimeRange(BEGIN, BEGIN + 150, 15))
    assert complaint in str(caught.value)
    assert api.url in str(caught.value)


def test_a_token_is_sent_and_asked_for(api):
    api.token = "secret"
    asked = TimeRange(BEGIN, BEGIN + 150, 15)
    assert read_history(api.url, QUERY, asked, token="secret").rate.tolist() == [1.0] * 11
    with pytest.raises(WorkloadError, match="HTTP 401, not allowed; name a file with a token by --bearer-token-file"):
        read_history(api.url, QUERY, asked)


def test_credentials_in_the_address_are_not_written_down(api):
    trace = read_history(api.url.replace("//", "//me:word@"), QUERY, TimeRange(BEGIN, BEGIN + 150, 15))
    assert trace.comments[0] == f"Source: {api.url}, query {QUERY}"


def test_an_address_where_nobody_answers_is_named(api):
    url = "http://127.0.0.1:9"
    with pytest.raises(WorkloadError, match=r"Prometheus http://127\.0\.0\.1:9: cannot be asked"):
        read_history(url, QUERY, TimeRange(BEGIN, BEGIN + 150, 15))
    with pytest.raises(WorkloadError, match="prometheus:9090: write http:// or https://"):
        read_history("prometheus:9090", QUERY, TimeRange(BEGIN, BEGIN + 150, 15))


def test_times_and_durations():
    now = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert parse_time("now", now) == now
    assert parse_time("now-1d12h", now) == datetime(2026, 1, 30, 0, tzinfo=UTC)
    assert parse_time("1700000000", now).timestamp() == 1_700_000_000
    assert parse_time("2026-01-30T00:00:00Z", now) == parse_time("2026-01-30", now)
    assert parse_time("2026-01-30T02:00:00+02:00", now) == parse_time("2026-01-30", now)
    assert [parse_duration(text) for text in ("90", "15s", "1m", "1h30m", "7d")] == [90, 15, 60, 5400, 604_800]
    for text in ("", "0", "0s", "1.5s", "m", "1x", "-5s"):
        with pytest.raises(WorkloadError, match="write whole seconds"):
            parse_duration(text)
    for text in ("yesterday", "2026-13-01", "now-", "1e400", "99999999999999999"):
        with pytest.raises(WorkloadError, match=r"time|duration"):
            parse_time(text, now)


@given(begin=st.integers(0, 10**9), seconds=st.integers(0, 10**4), step=st.integers(1, 3600))
def test_a_range_is_the_multiples_of_its_step_in_between(begin, seconds, step):
    first, last = (datetime.fromtimestamp(moment, UTC) for moment in (begin, begin + seconds))
    times = TimeRange.between(first, last, step).times()
    assert times == list(range(math.ceil(begin / step) * step, begin + seconds + 1, step))
