"""Pauses between decisions and the lowest replicas around an event; what is left on a machine."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from rlscaler_dev.cluster.paths import cluster_dir
from rlscaler_dev.e2e.cli import e2e
from rlscaler_dev.e2e.cluster import interfaces, left_behind
from rlscaler_dev.e2e.lifecycle import longest_pause, lowest
from rlscaler_dev.e2e.settings import Play, Settings
from tests.harness.waiting import until
from tests.unit.demo.records_fixture import START, make_steps


def test_a_pause_counts_where_it_touches_the_event() -> None:
    times = np.array([0.0, 5.0, 10.0, 22.0, 27.0])
    assert longest_pause(times, 11.0, 12.0) == 12.0
    assert longest_pause(times, 0.0, 9.0) == 5.0
    assert longest_pause(times, 40.0, 50.0) is None


def test_the_lowest_replicas_are_those_in_force_at_the_begin_or_later() -> None:
    steps = make_steps((0, 5, 5, 5, 0), (10, 2, 5, 5, 0), (20, 7, 7, 5, 2), columns=4)
    assert lowest(steps, START + 1, START + 9) == 5
    assert lowest(steps, START + 9, START + 30) == 2
    assert lowest(steps, START - 9, START - 5) is None


def test_what_is_left_is_what_was_not_there_before() -> None:
    before = interfaces()
    assert left_behind("never-was", frozenset(), before) == []
    assert left_behind("never-was", frozenset(), before - {"lo"}) == ["interface lo"]
    folder = cluster_dir(f"left-{os.getpid()}")
    folder.mkdir(parents=True)
    try:
        with subprocess.Popen([sys.executable, "-c", "input()", str(folder)], stdin=subprocess.PIPE) as process:
            # Popen returns when the child begins to exec, a moment before its arguments can be read.
            until(lambda: len(left_behind(folder.name, frozenset(), before)) == 2)
            found = left_behind(folder.name, frozenset(), before)
            assert left_behind(folder.name[:-1], frozenset(), before) == [], "the folder of another cluster"
        assert [line.split()[:2] for line in found] == [["process", str(process.pid)], ["folder", str(folder)]]
    finally:
        folder.rmdir()
    assert left_behind(folder.name, frozenset(), before) == []


def test_each_contender_plays_each_pattern_on_the_same_load(tmp_path) -> None:
    settings = Settings(out=tmp_path, charts=tmp_path, patterns=("spike", "ramp"), duration_seconds=60)
    plays = Play.all_of(settings)
    assert [play.name for play in plays] == ["rl-spike", "hpa-spike", "rl-ramp", "hpa-ramp"]
    assert {play.duration_seconds for play in plays} == {60}
    assert Play.all_of(replace(settings, parts=("sizes", "consumers"))) == []


@pytest.mark.parametrize(
    ("option", "value", "named"),
    [("--patterns", "spike,square", "square"), ("--contenders", "kpa", "kpa"), ("--only", "sizes,all", "all")],
)
def test_an_unknown_name_is_named(option: str, value: str, named: str) -> None:
    result = CliRunner().invoke(e2e, [option, value])
    assert result.exit_code == 2
    assert f"{named}: not one of" in result.output
