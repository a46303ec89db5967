"""Jobs side by side in processes, one for each core that this process may use.

A tick of many episodes is a thousand small array operations in Python, which threads of one interpreter cannot run at
the same time, so each job gets a process. The results equal those of a single core to the last bit, because the rows
of a batch do not depend on one another.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from multiprocessing import get_context
from typing import Any, TypeVar

from rlscaler_rl.evaluation.errors import EvaluationError

R = TypeVar("R")

LEAST_SECONDS = 86_400
"""Simulated seconds, the rows of a job side by side, below which the start of processes takes longer than the jobs."""


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def side_by_side(
    function: Callable[..., R],
    jobs: Sequence[tuple[Any, ...]],
    seconds: float = float("inf"),
    done: Callable[[int], None] = lambda number: None,
    workers: int | None = None,
) -> list[R]:
    """Call `function` with the arguments of each job and return the results in the order of the jobs.

    `seconds` are the simulated seconds of all jobs. `done` is called with the number of each finished job. `workers` is
    the number of processes, by default one for each core. Function, arguments and results have to be picklable. Raises
    EvaluationError where a process dies, and the exceptions of jobs.
    """
    count = workers or cores()
    if count == 1 or len(jobs) < 2 or seconds < LEAST_SECONDS:
        results = []
        for number, job in enumerate(jobs):
            results.append(function(*job))
            done(number)
        return results
    waiting: dict[Future[R], int] = {}
    try:
        for number, job in enumerate(jobs):
            waiting[_pool(count).submit(_in_folder, os.getcwd(), function, job)] = number
        for future in as_completed(waiting):
            future.result()
            done(waiting[future])
    except BrokenProcessPool as error:
        _pool.cache_clear()
        raise EvaluationError(
            "a process that plays episodes was ended, most likely for lack of memory; play fewer days, loads or "
            "episodes at a time, or on one core (`taskset -c 0 rlscaler ...`)"
        ) from error
    finally:
        for future in waiting:
            future.cancel()
    return [future.result() for future in waiting]


def _in_folder(folder: str, function: Callable[..., R], job: tuple[Any, ...]) -> R:
    # A pool outlives a change of the working directory, and a job may name a file relative to it.
    os.chdir(folder)
    return function(*job)


@cache
def _pool(count: int) -> ProcessPoolExecutor:
    """Return the pool of processes, which serves all calls until this process ends."""
    # Not forked: threads of ONNX Runtime do not survive a fork.
    return ProcessPoolExecutor(count, mp_context=get_context("spawn"))
