"""The one reader of trace files: what it takes, and how it refuses everything else."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlscaler_loadgen.errors import TraceError
from rlscaler_loadgen.runner import LoadRun
from rlscaler_loadgen.traces import HEADER, Fill, Trace, read_trace, write_trace


def test_a_file_may_be_compressed_and_commented(tmp_path: Path) -> None:
    text = f"# source: here\n{HEADER}\n\n1700000000,1\n1700000001,2\r\n"
    (tmp_path / "a.csv").write_text(text)
    (tmp_path / "b.csv").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "c.csv").write_text("\ufeff" + text.replace(",r", ", r"))
    for name in "abc":
        trace = read_trace(tmp_path / f"{name}.csv")
        assert trace.rate.tolist() == [1, 2]
        assert trace.width_s == 1
        assert trace.comments == ("source: here",)


@pytest.mark.parametrize(
    ("text", "line", "complaint"),
    [
        ("", None, "empty; the first line must be `time_s,requests_per_s`"),
        ("# only this\n", None, "empty"),
        (f"{HEADER}\n", None, "no bins"),
        ("0,1\n1,2\n", 1, "header is missing"),
        ("time,rps,errors\n0,1,0\n1,2,0\n", 1, r"2 series \('rps', 'errors'\); name one with --series"),
        ("time\n0\n1\n", 1, "one column"),
        (f"{HEADER}\n0,1\n", 2, "at least two bins"),
        (f"{HEADER}\n0,1\nx,2\n", 3, "column 'time_s': 'x' is no time; write ISO 8601"),
        (f"{HEADER}\n0,1\n1,2,3\n", 3, "`1,2,3` has 3 cells where the header has 2.*thousands"),
        (f"{HEADER}\n0,1\n1,\n", 3, "the rate is not a finite number; fill"),
        (f"{HEADER}\n0,1\n1,two\n", 3, "column 'requests_per_s': 'two' is no number of requests/s; export plain"),
        (f"{HEADER}\n0,1\n1\n", 3, "`1` has 1 cells where the header has 2"),
        (f"# a\n\n{HEADER}\n0,1\n1,2\n1,3\n2,4\n", 6, "there twice"),
        (f"{HEADER}\n0,1\n2,2\n1,3\n3,4\n", 4, "sort the lines"),
        (f"{HEADER}\n0,1\n1,2\n2,3\n5,4\n6,4\n", 5, "gap: 3 s after the line above, bins are 1 s wide; fill"),
        (f"{HEADER}\n0,1\n1,2\n1.5,3\n2.5,4\n3.5,4\n", 4, "uneven bin"),
        (f"{HEADER}\n0,1\n1,-2\n", 3, "negative"),
        (f"{HEADER}\n0,1\n1,nan\n", 3, "the rate is not a finite number; fill"),
        (f"{HEADER}\n0,inf\n1,1\n", 2, "not a finite number"),
        (f"{HEADER}\nnan,1\n1,1\n", 2, "the time is not a finite number"),
        (f"{HEADER}\n0,0\n1,0\n", 2, "every rate is 0"),
    ],
)
def test_a_bad_file_is_refused_with_its_line_and_a_remedy(
    tmp_path: Path, text: str, line: int | None, complaint: str
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(TraceError, match=complaint) as caught:
        read_trace(path)
    assert f"{path}:" + (f"{line}: " if line else " ") in str(caught.value)


@pytest.mark.parametrize(("fill", "rate"), [("hold", [1, 1, 1, 4]), ("zero", [1, 0, 0, 4])])
def test_missing_samples_are_filled_where_that_is_asked_for(tmp_path: Path, fill: Fill, rate: list[float]) -> None:
    (tmp_path / "a.csv").write_text(f"{HEADER}\n0,1\n15,\n45,4\n60,5\n75,6\n")
    assert read_trace(tmp_path / "a.csv", fill=fill).rate.tolist() == [*rate, 5, 6]


def test_the_calendar_is_kept_when_a_trace_is_written_and_read(tmp_path: Path) -> None:
    write_trace(tmp_path / "a.csv", Trace(np.array([1.0, 2.0, 3.0]), 15.0, begin=1_772_409_615.0))
    assert read_trace(tmp_path / "a.csv").begin == 1_772_409_615.0
    write_trace(tmp_path / "a.csv", Trace(np.array([1.0, 2.0, 3.0]), 15.0))
    assert read_trace(tmp_path / "a.csv").begin is None


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"nowhere\.csv: No such file"):
        read_trace(tmp_path / "nowhere.csv")
    broken = gzip.compress(b"time_s,requests_per_s\n0,1\n1,2\n" * 50)[:-12]
    (tmp_path / "cut.csv.gz").write_bytes(broken)
    with pytest.raises(TraceError, match=r"cut\.csv\.gz.*copy the file again"):
        read_trace(tmp_path / "cut.csv.gz")
    for rotten in (broken[:20] + bytes(20) + broken[40:], broken[:10] + b"\xff" * 30):
        (tmp_path / "rot.csv.gz").write_bytes(rotten)
        with pytest.raises(TraceError, match=r"rot\.csv\.gz.*copy the file again"):
            read_trace(tmp_path / "rot.csv.gz")
    (tmp_path / "binary.csv").write_bytes(b"\x93\x00\xff")
    with pytest.raises(TraceError, match="UTF-8"):
        read_trace(tmp_path / "binary.csv")


@given(
    rate=st.lists(st.floats(0, 1e5), min_size=2, max_size=60).filter(any),
    width=st.sampled_from([0.1, 0.5, 1.0, 15.0, 60.0]),
    packed=st.booleans(),
)
def test_what_is_written_is_read_back(tmp_path_factory, rate: list[float], width: float, packed: bool) -> None:
    path = tmp_path_factory.mktemp("traces") / ("a.csv.gz" if packed else "a.csv")
    trace = Trace(np.array(rate), width, ("licence: any",))
    write_trace(path, trace, digits=17)
    back = read_trace(path)
    np.testing.assert_array_equal(back.rate, trace.rate)
    assert back.width_s == pytest.approx(width)
    assert back.comments == trace.comments
    assert back.digest() == trace.digest()
    content = path.read_bytes()
    write_trace(path, trace, digits=17)
    assert path.read_bytes() == content


def test_fine_bins_keep_their_volume_and_wide_ones_are_joined_by_lines() -> None:
    fine = Trace(np.array([0.0, 4.0, 2.0, 4.0, 9.0]), 0.5)
    np.testing.assert_allclose(fine.per_second(), [2, 3])
    five = Trace(np.array([1.0, 3.0]), 5.0)
    np.testing.assert_allclose(five.per_second(), np.repeat([1.0, 3.0], 5))
    minute = Trace(np.array([60.0, 120.0, 0.0]), 60.0).per_second()
    assert len(minute) == 180
    assert (minute[:30] == 60).all()
    np.testing.assert_allclose(np.diff(minute[30:90]), 1)
    assert (minute[150:] == 0).all()


def test_a_run_with_a_bad_trace_does_not_begin(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text(f"{HEADER}\n0,1\n1,-1\n")
    with pytest.raises(TraceError, match=r"bad\.csv:3: the rate is negative"):
        LoadRun("http://127.0.0.1:9", tmp_path / "out", False, {"trace": str(tmp_path / "bad.csv")}).run()
    assert not (tmp_path / "out").exists()
