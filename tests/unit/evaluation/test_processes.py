"""Days that are played in processes side by side are those that are played one after the other."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields
from functools import partial

import numpy as np
import pytest

from rlscaler_core.models import load_bundled
from rlscaler_rl.evaluation import processes
from rlscaler_rl.evaluation.days import contenders, learned
from rlscaler_rl.evaluation.days.play import Days, Job, played_side_by_side, prepared
from rlscaler_rl.evaluation.days.service_load import MONDAY, ServiceLoad
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.processes import side_by_side

LENGTH = 900


def load(name: str, rps: float, drawn: Callable[[int], None] = lambda first: None) -> ServiceLoad:
    """A load whose rate is another in every stretch; `drawn` is told when seconds are asked for."""

    def seconds(first: int, last: int) -> np.ndarray:
        drawn(first)
        return rps * (1 + 0.5 * np.sin(np.arange(first, last) / 300))

    return ServiceLoad(name, name, False, seconds, MONDAY, 0, {}, LENGTH)


@pytest.fixture
def two_processes(monkeypatch: pytest.MonkeyPatch):
    """Two processes, however short the days are and however few cores there are."""
    monkeypatch.setattr(processes, "LEAST_SECONDS", 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    yield
    pool: ProcessPoolExecutor = processes._pool(2)
    pool.shutdown()
    processes._pool.cache_clear()


def bits(days: Days) -> list[bytes]:
    return [np.ascontiguousarray(column).tobytes() for column in days.past]


@pytest.mark.slow
def test_every_contender_gets_the_same_figures_in_a_process_of_its_own(two_processes, monkeypatch):
    chosen = [(load(f"l{k}", 20.0 + 10 * k), 2) for k in range(4)]
    monkeypatch.setattr(learned, "FEWEST_ROWS", 2)
    there = prepared(chosen)
    network = contenders.Policy("network", "Network", partial(load_bundled, "ppo"))
    makes = [one.make for one in (*contenders.untuned([network]), contenders.hindsight())]
    jobs = [Job(make, rows) for make in makes for rows in (None, np.array([3, 0, 3]))]
    done: list[int] = []
    apart = played_side_by_side(there, jobs, done=done.append)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0})
    here = prepared(chosen)
    assert bits(here) == bits(there)
    assert sorted(done) == list(range(len(jobs)))
    for one, other in zip(apart, played_side_by_side(here, jobs), strict=True):
        for field in fields(one.result):
            # Sums may differ in the last bit with where the arrays lie in memory.
            np.testing.assert_allclose(getattr(one.result, field.name), getattr(other.result, field.name), rtol=1e-12)
        np.testing.assert_array_equal(one.coverage, other.coverage)


def test_a_process_that_dies_is_named_and_the_next_job_gets_new_ones(two_processes):
    with pytest.raises(EvaluationError, match="memory"):
        side_by_side(os._exit, [(1,), (1,)], 1.0)
    assert side_by_side(abs, [(-1,), (2,)], 1.0) == [1, 2]


def test_what_a_job_raises_is_raised(two_processes):
    with pytest.raises(ZeroDivisionError):
        side_by_side(divmod, [(1, 0), (1, 1)], 1.0)


def test_each_second_of_the_past_is_drawn_once_for_all_days_after_it():
    asked: list[int] = []
    one = load("l", 30.0, asked.append)
    prepared([(one, number) for number in (3, 4, 5)], history_days=3)
    past = [first for first in asked if first < 5 * LENGTH]
    assert sorted(past) == sorted([*range(0, 5 * LENGTH, LENGTH), 3 * LENGTH, 4 * LENGTH])
