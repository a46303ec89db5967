"""Jobs side by side in processes, one for each core that this process may use.

A tick of many days is a thousand small array operations in Python, which threads of one interpreter do not share, so
each job runs in a process. Results are the same, to the last bit, as on one core, because the rows of a batch do not
touch one another.
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
"""Simulated seconds, the rows of a job side by side, below which processes take longer to start than the jobs do."""


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def side_by_side(
    function: Callable[..., R],
    jobs: Sequence[tuple[Any, ...]],
    seconds: float,
    done: Callable[[int], None] = lambda number: None,
) -> list[R]:
    """Call `function` with the arguments of each job and give the results in the order of the jobs.

    `seconds` are the simulated seconds of all jobs. `done` is told the number of each job that is over. Function,
    arguments and results have to be such that pickle takes them. Raises EvaluationError where a process dies, and
    whatever a job raises.
    """
    if cores() == 1 or len(jobs) < 2 or seconds < LEAST_SECONDS:
        results = []
        for number, job in enumerate(jobs):
            results.append(function(*job))
            done(number)
        return results
    waiting: dict[Future[R], int] = {}
    try:
        for number, job in enumerate(jobs):
            waiting[_pool(cores()).submit(function, *job)] = number
        for future in as_completed(waiting):
            future.result()
            done(waiting[future])
    except BrokenProcessPool as error:
        _pool.cache_clear()
        raise EvaluationError(
            "days: a process that plays them was ended, most likely for want of memory; play fewer days or loads at a "
            "time, or on one core (`taskset -c 0 rlscaler days ...`)"
        ) from error
    finally:
        for future in waiting:
            future.cancel()
    return [future.result() for future in waiting]


@cache
def _pool(count: int) -> ProcessPoolExecutor:
    """Return the processes, which wait for more jobs until this process ends.

    They are not forked: threads of ONNX Runtime do not survive a fork.
    """
    return ProcessPoolExecutor(count, mp_context=get_context("spawn"))
