"""The records of consumers in pods: tables of several pods as one, members beside ready pods, lag over the load."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlscaler_dev.demo.kafka.results import Played
from rlscaler_dev.demo.records import Steps
from rlscaler_dev.e2e.consumers.observe import Collected, Seen, most_agreed
from rlscaler_dev.e2e.consumers.play import lag_summary


def append(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        file.write(text)


def test_the_tables_of_all_pods_become_one_and_each_row_is_taken_once(tmp_path: Path) -> None:
    pods, together = tmp_path / "pods", tmp_path / "processed.csv"
    pods.mkdir()
    collected = Collected(pods, together)
    append(pods / "a" / "processed.csv", "time,pod,partition,offset\n1.0,a,0,0\n2.0,a,0,")
    collected.pull()
    append(pods / "a" / "processed.csv", "1\n")
    append(pods / "b" / "processed.csv", "time,pod,partition,offset\n1.5,b,1,0\n")
    collected.pull()
    collected.pull()
    assert together.read_text().splitlines() == ["time,pod,partition,offset", "1.0,a,0,0", "2.0,a,0,1", "1.5,b,1,0"]


def test_members_are_compared_by_name_and_a_rebalance_is_not_a_group() -> None:
    two, other = frozenset("ab"), frozenset("ac")
    assert most_agreed([Seen(0, frozenset("a"), frozenset("a")), Seen(1, two, other), Seen(2, two, None)]) == 1
    assert most_agreed([Seen(0, two, two)]) == 2
    assert most_agreed([]) == 0


def played(done: list[float]) -> Played:
    """Messages of the seconds 0 to 9, of which each was processed at a time of `done`; the objective is 2 s."""
    nothing = Steps(np.zeros(1), np.zeros((1, 4)))
    written = np.arange(10.0)
    return Played("rlscaler", "", "range", 2.0, 10.0, written, np.array(done), 0, nothing, nothing)


def test_the_lag_of_the_load_is_summed_up() -> None:
    late = played([0.5, 1.5, 6.0, 6.1, 6.2, 6.3, 6.5, 7.5, 8.5, 9.5])
    assert lag_summary(late) == {
        "seconds_above_objective": 2,
        "first_above_second": 5.0,
        "last_above_second": 6.0,
        "under_objective_at_end": True,
    }
    assert not lag_summary(played([*range(7), np.inf, 8.5, 9.5]))["under_objective_at_end"]


def test_a_load_without_lag_was_never_above(tmp_path: Path) -> None:
    assert lag_summary(played([t + 0.5 for t in range(10)]))["seconds_above_objective"] == 0
    with pytest.raises(FileNotFoundError):
        Collected(tmp_path, tmp_path / "missing" / "processed.csv")
