"""The picture: it is drawn of whatever one run or two copies left."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from rlscaler_dev.demo.plot import Shown, draw
from rlscaler_dev.demo.records import Records
from rlscaler_dev.demo.settings import HPA, POLICY
from rlscaler_dev.demo.timeline import build_timeline

from .records_fixture import made_up_run, make_records, make_requests


def png_size(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:24])
    return width, height


def shown(records: Records, name: str = POLICY) -> Shown:
    return Shown(name, name, build_timeline(records))


@pytest.mark.slow
def test_two_copies_are_drawn_into_one_picture(tmp_path: Path) -> None:
    one, two = tmp_path / "one.png", tmp_path / "two.png"
    run = shown(made_up_run())
    draw([run], "one", one)
    draw([replace(run, name=HPA), run], "a sentence that is too long for one line " * 4, two)
    assert png_size(one) == png_size(two) == (1650, 1350)
    assert one.read_bytes() != two.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("requests", [make_requests(), make_requests((1, 5000, False))])
def test_a_run_without_answers_is_drawn_too(tmp_path: Path, requests: object) -> None:
    draw([shown(make_records(requests=requests))], "nothing", tmp_path / "timeline.png")
    assert png_size(tmp_path / "timeline.png")[0] == 1650
