"""Published files and files of one's own become traces, or an error that says what to do."""

from __future__ import annotations

import bz2
import gzip
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from rlscaler_rl.workloads import WorkloadError
from rlscaler_rl.workloads.originals import Recipe, read_original

LOG = """\
in24.inetnebr.com - - [01/Aug/1995:00:00:01 -0400] "GET /a.html HTTP/1.0" 200 1839
uplherc.upl.com - - [01/Aug/1995:00:00:02 -0400] "GET / HTTP/1.0" 304 0
no time in this line
uplherc.upl.com - - [01/Aug/1995:00:00:02 -0400] "GET /b.gif HTTP/1.0" 304 0 "http://a/[x]" "Agent"
uplherc.upl.com - - [01/Aug/1995:00:00:05 -0400] "GET /c.gif HTTP/1.0" 304 0
uplherc.upl.com - - [01/Aug/1995:00:00:06 -0400] "GET /\xe9.gif HTTP/1.0" 304 0
"""


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_text(text, encoding=encoding)
    return path


def test_an_access_log_is_counted_by_the_second(tmp_path):
    """The first and the last second may be cut off, so they are left out; a silent second is a zero."""
    path = write(tmp_path / "access.log", LOG, "latin-1")
    trace, filled = read_original([path], Recipe(reader="access-log"), ["Source: mine"])
    assert trace.rate.tolist() == [2, 0, 0, 1]
    assert trace.width_s == 1
    assert filled == 0
    assert trace.comments == ("Source: mine",)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress])
def test_packed_and_several_logs_are_one_load(tmp_path, pack):
    lines = LOG.splitlines(keepends=True)
    paths = [tmp_path / "1", tmp_path / "2"]
    for path, part in zip(paths, (lines[:2], lines[2:]), strict=True):
        path.write_bytes(pack("".join(part).encode("latin-1")))
    assert read_original(paths, Recipe(reader="access-log"))[0].rate.tolist() == [2, 0, 0, 1]


def test_a_log_in_two_zones_is_counted_in_one(tmp_path):
    lines = [
        f"- - - [01/Aug/1995:{h:02}:00:0{s} {zone}] x" for h, zone in ((4, "+0000"), (0, "-0400")) for s in range(4)
    ]
    assert read_original([write(tmp_path / "a", "\n".join(lines))], Recipe(reader="access-log"))[0].rate.tolist() == [
        2,
        2,
    ]


def test_a_list_of_requests_is_counted(tmp_path):
    text = "TIMESTAMP,tokens\n" + "".join(
        f"2023-11-16 18:{m:02}:0{s}.9799600,1\n" for m in range(4) for s in range(m + 1)
    )
    recipe = Recipe(reader="events", time="{TIMESTAMP}", width_s=60)
    assert read_original([write(tmp_path / "a.csv", text)], recipe)[0].rate.tolist() == [2 / 60, 3 / 60]
    numbers = "t\n" + "".join(f"{t}\n" for t in (0.5, 1.2, 1.9, 3.0, 4.5))
    recipe = Recipe(reader="events", time="{t}", begin="0", end="5")
    assert read_original([write(tmp_path / "b.csv", numbers)], recipe)[0].rate.tolist() == [1, 2, 0, 1, 1]


def test_a_table_of_counts_in_any_order_with_the_time_in_several_columns(tmp_path):
    text = "day, hr ,cnt\n2024-03-02,0,30\n2024-03-01,22,10\n2024-03-01,23,20\n"
    recipe = Recipe(reader="bins", time="{day}T{hr:0>2}:00", value="cnt", width_s=3600)
    trace, _ = read_original([write(tmp_path / "a.csv", text)], recipe)
    assert (trace.rate * 3600).tolist() == pytest.approx([10, 20, 30])


def test_tables_of_several_clients_are_added(tmp_path):
    paths = [write(tmp_path / f"{i}.csv", "".join(f"{600 * k},{i + k},Gamma\n" for k in range(3))) for i in range(3)]
    recipe = Recipe(reader="bins", columns=("time", "rate"), time="{time}", value="rate", unit="rate", width_s=600)
    assert read_original(paths, recipe)[0].rate.tolist() == [3, 6, 9]


def test_numbers_alone_are_cut_and_joined(tmp_path):
    path = write(tmp_path / "workload.txt", "9 9 1 2 3\n4 5 6 7 9 9")
    trace, _ = read_original([path], Recipe(reader="counts", first=2, bins=7, join=3))
    assert trace.rate.tolist() == [2, 5]
    assert trace.width_s == 3
    with pytest.raises(WorkloadError, match="11 numbers where 14 are needed"):
        read_original([path], Recipe(reader="counts", first=2, bins=12))


def bins(tmp_path: Path, times: list[str], **options: object) -> tuple[np.ndarray, int]:
    path = write(tmp_path / "bins.csv", "timestamp,value\n" + "".join(f"{t},{60 * i}\n" for i, t in enumerate(times)))
    trace, filled = read_original([path], Recipe(reader="bins", width_s=60, **options))
    return trace.rate, filled


def at(*minutes: float) -> list[str]:
    return [f"2024-03-01T00:{int(m):02}:{round(60 * (m % 1)):02}" for m in minutes]


def test_a_hole_is_an_error_or_a_line_and_never_a_zero(tmp_path):
    with pytest.raises(WorkloadError, match=r"1 holes, the longest 120 s from 2024-03-01T00:02:00 on"):
        bins(tmp_path, at(0, 1, 4, 5))
    rate, filled = bins(tmp_path, at(0, 1, 4, 5), holes="line")
    assert filled == 2
    assert rate.tolist() == pytest.approx([0, 1, 4 / 3, 5 / 3, 2, 3])
    with pytest.raises(WorkloadError, match="longer than 60 s; cut"):
        bins(tmp_path, at(0, 1, 4, 5), holes="line", longest_hole_s=60)


def test_an_hour_that_clocks_repeat_is_named(tmp_path):
    with pytest.raises(WorkloadError, match=r"bins.csv: 2024-03-01T00:01:00 is there twice; did clocks go back"):
        bins(tmp_path, at(0, 1, 1, 2))
    assert bins(tmp_path, at(0, 1, 1, 2), repeats="mean")[0].tolist() == [0, 1.5, 3]
    assert bins(tmp_path, at(0, 1, 1, 2), repeats="sum")[0].tolist() == [0, 3, 3]


def test_a_counter_that_stopped_is_a_hole(tmp_path):
    path = write(tmp_path / "a", "5 5 0 5 0 0 0 0 5 5")
    assert read_original([path], Recipe(reader="counts"))[0].rate.tolist() == [5, 5, 0, 5, 0, 0, 0, 0, 5, 5]
    trace, filled = read_original([path], Recipe(reader="counts", silence_s=3, holes="line"))
    assert trace.rate.tolist() == [5, 5, 0, 5, 5, 5, 5, 5, 5, 5]
    assert filled == 4
    with pytest.raises(WorkloadError, match="1 holes, the longest 4 s from second 4 on"):
        read_original([path], Recipe(reader="counts", silence_s=3))


def test_begin_and_end_cut(tmp_path):
    rate, _ = bins(tmp_path, at(0, 1, 2, 3, 4), begin="2024-03-01T00:01:00", end="2024-03-01T00:04:00")
    assert rate.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("text", "recipe", "said"),
    [
        ("version https://git-lfs.github.com/spec/v1\noid sha256:1\n", {"reader": "bins"}, "no column 'timestamp'"),
        ("timestamp,value\n", {"reader": "bins"}, "no rows; is it the file itself"),
        ("timestamp,value\n1,2\n2,x\n", {"reader": "bins"}, "bins.csv:3: no number in column 'value'"),
        ("timestamp,value\n1,2\nnoon,2\n", {"reader": "bins"}, "bins.csv:3: 'noon' is no time"),
        ("timestamp,value\n1,2\n2.5,2\n", {"reader": "bins"}, "bins.csv: second 2.5 is not a multiple of 1 s"),
        ("timestamp,value\n1,2\n2,-2\n", {"reader": "bins"}, "a negative count at second 2; a counter's raw value"),
        ("timestamp,value\n1,0\n2,0\n", {"reader": "bins"}, "no requests at all"),
        ("timestamp,value\n1,2\n1700000000000,2\n", {"reader": "bins"}, "bins.csv: .* is the width right"),
        ("timestamp\n1\n1700000000000\n", {"reader": "events"}, "bins.csv: .* is the unit of the times seconds"),
        ("timestamp\n", {"reader": "events"}, "no rows"),
        ("timestamp\n1\nnan\n", {"reader": "events"}, "'nan' is no time"),
        ("no log", {"reader": "access-log"}, "is it an access log"),
        ("1 2 x", {"reader": "counts"}, "not only numbers"),
    ],
)
def test_bad_input_names_place_and_remedy(tmp_path, text, recipe, said):
    with pytest.raises(WorkloadError, match=said):
        read_original([write(tmp_path / "bins.csv", text)], Recipe(**recipe))


def test_a_file_that_is_not_there_or_broken(tmp_path):
    with pytest.raises(WorkloadError, match="No such file"):
        read_original([tmp_path / "none"], Recipe(reader="counts"))
    (tmp_path / "half.gz").write_bytes(gzip.compress(b"1 2 3 " * 1000)[:-9])
    with pytest.raises(WorkloadError, match=r"half.gz: .* name a file that can be read"):
        read_original([tmp_path / "half.gz"], Recipe(reader="counts"))


def test_a_recipe_refuses_what_it_does_not_know():
    for wrong in ({"reader": "xml"}, {"reader": "bins", "width_s": 0}, {"reader": "bins", "wdith": 1}):
        with pytest.raises(ValidationError):
            Recipe(**wrong)


def test_milliseconds_of_unix_are_understood(tmp_path):
    path = tmp_path / "bins.csv"
    path.write_text("timestamp,value\n1772409600000,30\n1772409615000,60\n1772409630000,15\n")
    trace, _ = read_original([path], Recipe(reader="bins", width_s=15))
    assert trace.rate.tolist() == [2, 4, 1]
    assert trace.begin == 1_772_409_600


def archive(path, files):
    with tarfile.open(path, "w:bz2") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content.encode()))
    return path


def test_an_archive_of_one_file_is_read_and_one_of_several_is_refused(tmp_path):
    recipe = Recipe(reader="counts")
    single = archive(tmp_path / "one.tbz2", {"workload.txt": "1 2 3"})
    assert read_original([single], recipe)[0].rate.tolist() == [1, 2, 3]
    several = archive(tmp_path / "two.tbz2", {"a.txt": "1 2", "b.txt": "3 4"})
    with pytest.raises(WorkloadError, match=r"two\.tbz2: 2 files are in the archive; unpack it and name one"):
        read_original([several], recipe)
