"""Exports of recorded loads as Grafana, Prometheus, Excel and Locust write them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from rlscaler_loadgen.errors import TraceError
from rlscaler_loadgen.load_file import seconds_of
from rlscaler_loadgen.traces import Trace, read_trace

BEGIN = datetime(2026, 3, 5, 7, 30, tzinfo=UTC)
"""A Thursday morning."""

RATE = [1040.5, 12.25, 0.0, 7.0]
MOMENTS = [BEGIN + timedelta(seconds=15 * i) for i in range(4)]
EPOCH = [int(moment.timestamp()) for moment in MOMENTS]
BERLIN = timezone(timedelta(hours=1))


def table(times: list[Any], rates: list[Any], head: str = "time_s,requests_per_s", mark: str = ",") -> str:
    return "\n".join([head, *(f"{time}{mark}{rate}" for time, rate in zip(times, rates, strict=True))]) + "\n"


def prometheus(*names: str, kind: str = "values") -> str:
    samples = [[time, str(rate)] for time, rate in zip(EPOCH, RATE, strict=True)]
    series = [{"metric": {"job": name} if name else {}, kind: samples} for name in names]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": series}})


FIELDS = [{"name": "Time", "type": "time"}, {"name": "Value", "type": "number", "labels": {"job": "chat"}}]
COLUMNS = [[1000 * time for time in EPOCH], RATE]
FRAME = {"schema": {"fields": FIELDS}, "data": {"values": COLUMNS}}

FORMS = {
    "seconds": table(EPOCH, RATE),
    "milliseconds": table([1000 * time for time in EPOCH], RATE),
    "nanoseconds": table([10**9 * time for time in EPOCH], RATE),
    "ISO": table([f"{moment:%Y-%m-%dT%H:%M:%SZ}" for moment in MOMENTS], RATE),
    "offset": table([moment.astimezone(BERLIN).isoformat() for moment in MOMENTS], RATE),
    "offset without colon": table([f"{moment.astimezone(BERLIN):%Y-%m-%d %H:%M:%S %z}" for moment in MOMENTS], RATE),
    "Grafana": table([f"{moment:%Y-%m-%d %H:%M:%S}" for moment in MOMENTS], RATE, '"Time","rps"'),
    "Grafana for Excel": "sep=,\n" + table([1000 * time for time in EPOCH], RATE, '"Time","rps"'),
    "Grafana, formatted": table(EPOCH, [f"{rate} req/s" for rate in RATE], '"Time","rps"'),
    "thousands": table(EPOCH, [f'"{rate:,.2f}"' for rate in RATE]),
    "Excel in German": table([f"{moment:%d.%m.%Y %H:%M:%S}" for moment in MOMENTS], ["1.040,5", "12,25", "0", "7"],
                             "Zeit;Wert", ";"),
    "tabs": table(EPOCH, RATE, "time\trps", "\t"),
    "columns the other way": table(RATE, EPOCH, "requests_per_s,time_s"),
    "text beside it": table(EPOCH, [f"chat,{rate}" for rate in RATE], "Time,Metric,Value"),
    "jitter": table([time + late for time, late in zip(EPOCH, (0, 0.4, 0.1, 0.3), strict=True)], RATE),
    "Windows": table(EPOCH, RATE).replace("\n", "\r\n"),
    "query_range": prometheus(""),
    "Grafana's inspector": json.dumps([FRAME]),
    "Grafana's panel data": json.dumps(
        {"series": [{"fields": [field | {"values": values} for field, values in zip(FIELDS, COLUMNS, strict=True)]}]}
    ),
    "Grafana's API": json.dumps({"results": {"A": {"frames": [FRAME]}}}),
    "Grafana's old API": json.dumps([{"target": "a", "datapoints": list(zip(RATE, COLUMNS[0], strict=True))}]),
}  # fmt: skip


def read(folder: Path, text: str, encoding: str = "utf-8", series: str | None = None) -> Trace:
    (folder / "load.csv").write_bytes(text.encode(encoding))
    return read_trace(folder / "load.csv", series)


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_every_form_gives_the_same_series_with_its_calendar(tmp_path: Path, text: str) -> None:
    trace = read(tmp_path, text)
    assert trace.rate.tolist() == RATE
    assert trace.width_s == 15
    assert trace.begin == pytest.approx(EPOCH[0])
    assert datetime.fromtimestamp(trace.begin or 0, UTC).strftime("%A %H:%M") == "Thursday 07:30"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_byte_order_marks_are_understood(tmp_path: Path, encoding: str) -> None:
    assert read(tmp_path, FORMS["seconds"], encoding).rate.tolist() == RATE


def test_times_without_a_clock_have_no_calendar(tmp_path: Path) -> None:
    assert read(tmp_path, table([0, 15, 30, 45], RATE)).begin is None
    assert read(tmp_path, table([0, 15_000, 30_000, 45_000], RATE, "time_ms,rps")).width_s == 15


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            table(["03/05/2026 07:30:00 AM", "b"], [1, 2]),
            r":2: column 'time_s': '03/.* may begin with the day or the m",
        ),
        (table([46086.3125, 46086.31267361, 46086.31284722], [1, 2, 3]), r":2: .*46086\.3 is a serial date of Excel"),
        (table(EPOCH, [1, "1.53 K req/s", 2, 3]), r":3: .*'1\.53 K req/s' is no number.*switch off `Formatted data`"),
        (table(EPOCH, [1, "2,000", 2, 3]), ":3: `1.*,2,000` has 3 cells .* thousands separators in quotes"),
        (table(EPOCH, [1, "null", 2, 3]), ":3: the rate is not a finite number; fill .* --fill hold"),
        (table(["2025-10-26 02:45:00", "2025-10-26 02:00:00"], [1, 2]), ":3: .*were clocks changed"),
        ("PK\x03\x04", "an Excel workbook or archive; save the sheet as CSV"),
        ("{", "not JSON"),
        ('{"a": [1, 2]}', "no series in this JSON"),
        (json.dumps({"status": "error", "error": "parse error"}), "Prometheus answered with an error: parse error"),
        (prometheus("a", "b"), r"""2 series \('{job="a"}', '{job="b"}'\); name one with --series"""),
        (prometheus("").replace('"0.0"', '"NaN"'), "series 'value', sample 3: the rate is not a finite number"),
        ('{"data": {"result": [{"metric": {}, "value": [1, "2"]}]}}', "1 sample of 'value'; ask .* for a range"),
    ],
)
def test_what_is_ambiguous_is_refused_with_place_and_remedy(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TraceError, match=rf"load\.csv:? ?{message}"):
        read(tmp_path, text)


def test_one_of_several_series_is_chosen_by_its_name(tmp_path: Path) -> None:
    assert read(tmp_path, prometheus("chat", "search"), series='{job="chat"}').rate.tolist() == RATE
    assert read(tmp_path, prometheus("chat", "search"), series="search").rate.tolist() == RATE
    locust = table(EPOCH, [f"10,Aggregated,{rate},N/A" for rate in RATE], "Timestamp,Users,Name,Requests/s,50%")
    assert read(tmp_path, locust, series="Requests/s").rate.tolist() == RATE
    with pytest.raises(TraceError, match=r"2 series \('Users', 'Requests/s'\)"):
        read(tmp_path, locust)
    with pytest.raises(TraceError, match="0 series match --series 'embed'; there are"):
        read(tmp_path, prometheus("chat", "search"), series="embed")


def test_single_times_are_read_as_those_of_files() -> None:
    assert seconds_of("1970-01-01T01:00:00") == seconds_of("1970-01-01T02:00:00+01:00") == seconds_of("3600") == 3600
    assert seconds_of("1772409600000") == 1_772_409_600
    for text in ("soon", "nan"):
        with pytest.raises(ValueError, match="is no time; write ISO 8601"):
            seconds_of(text)
