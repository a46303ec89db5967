"""The picture: it is drawn from whatever a run left, and says which run it shows."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from rlscaler_dev.demo.beside import best_constant
from rlscaler_dev.demo.plot import plot_timeline, runs, subtitle, words
from rlscaler_dev.demo.records import Records
from rlscaler_dev.demo.results import summarise
from rlscaler_dev.demo.timeline import Timeline, build_timeline

from .records_fixture import made_up_run, make_records, make_requests


def png_size(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:24])
    return width, height


def draw(records: Records, path: Path) -> Timeline:
    timeline = build_timeline(records)
    plot_timeline(timeline, summarise(records), path)
    return timeline


def test_a_run_is_drawn_in_full_size(tmp_path: Path) -> None:
    records = made_up_run()
    draw(records, tmp_path / "timeline.png")
    assert png_size(tmp_path / "timeline.png") == (1760, 1760)


@pytest.mark.parametrize("requests", [make_requests(), make_requests((1, 5000, False))])
def test_a_run_without_answers_is_drawn_too(tmp_path: Path, requests: object) -> None:
    draw(make_records(requests=requests), tmp_path / "timeline.png")
    assert png_size(tmp_path / "timeline.png")[0] == 1760


@pytest.mark.slow
def test_gpu_hours_and_lateness_of_the_run_and_of_what_is_beside_it_are_said(tmp_path: Path) -> None:
    records = made_up_run()
    timeline, summary = draw(records, tmp_path / "alone.png"), summarise(records)
    constant = best_constant(records)
    assert constant is not None
    assert f"{summary['gpu_replica_seconds'] / 3600:.2f} GPU-hours" in subtitle(summary)
    assert f"{constant.label}: {constant.gpu_hours:.2f} GPU-hours, {constant.late_ratio:.1%} late" in words([constant])
    plot_timeline(timeline, summary, tmp_path / "beside.png", [constant, constant])
    assert png_size(tmp_path / "beside.png") == (1760, 1760)
    assert (tmp_path / "beside.png").read_bytes() != (tmp_path / "alone.png").read_bytes()


def test_stretches_of_equal_values() -> None:
    assert runs(np.array([0, 0, 2, 2, 2, -1.0])) == [(0, 2, 0), (2, 5, 2), (5, 6, -1)]
    assert runs(np.zeros(0)) == []
