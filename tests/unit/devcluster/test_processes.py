"""Background processes are found again, never mistaken for others, and stopped."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from rlscaler_dev.cluster import launcher, network, paths, processes, state
from rlscaler_dev.cluster.processes import ProcessRecord
from rlscaler_dev.cluster.readiness import wait_until
from rlscaler_dev.cluster.state import ClusterState
from rlscaler_dev.exceptions import DevClusterError

NAME = "unit"
SLEEP = ["/bin/sleep", "600"]


@pytest.fixture
def directory() -> Iterator[Path]:
    folder = paths.cluster_dir(NAME)
    folder.mkdir(parents=True)
    yield folder
    processes.stop([], folder)


def test_a_process_is_recorded_found_and_stopped(directory: Path) -> None:
    record = processes.spawn("sleep", SLEEP, directory)
    assert record.process() is not None
    assert os.getsid(record.pid) == record.pid
    assert processes.stop([record], directory) == 1
    assert record.process() is None


def test_a_recycled_pid_is_not_taken_for_the_process(directory: Path) -> None:
    record = processes.spawn("sleep", SLEEP, directory)
    assert replace(record, start_time=record.start_time - 60).process() is None
    assert replace(record, boot_id="another boot").process() is None


def test_somebody_elses_process_under_a_recorded_pid_survives(directory: Path) -> None:
    elsewhere = directory.parent / "elsewhere"
    other = processes.spawn("sleep", SLEEP, elsewhere)
    stale = ProcessRecord("etcd", other.pid, other.start_time - 3600, other.boot_id, other.log)
    assert processes.stop([stale], directory) == 0
    assert other.process() is not None
    # The parent goes on when the child begins to exec, a moment before its environment can be read.
    wait_until(lambda: [process.pid for process in processes.strays(elsewhere)] == [other.pid], "its marker", 5)
    assert processes.stop([], elsewhere) == 1


def test_a_process_whose_record_was_lost_is_found_by_its_marker(directory: Path) -> None:
    record = processes.spawn("sleep", SLEEP, directory)
    # The parent goes on when the child begins to exec, a moment before its environment can be read.
    wait_until(lambda: [process.pid for process in processes.strays(directory)] == [record.pid], "its marker", 5)
    assert launcher.clean(NAME) == 1
    assert not psutil.pid_exists(record.pid)
    assert not directory.exists()


def test_the_state_survives_a_round_trip(directory: Path) -> None:
    cluster = ClusterState(NAME, ports={"etcd": 20001})
    cluster.record(processes.spawn("sleep", SLEEP, directory))
    assert state.load(NAME) == cluster
    assert state.ports_taken() == {20001}
    cluster.forget("sleep")
    assert state.load(NAME) == cluster
    assert processes.strays(directory) == []


@pytest.mark.parametrize("content", ["", "{", "[]", '{"name": "unit", "processes": [{"pid": 1}]}'])
def test_a_broken_state_file_counts_as_none(directory: Path, content: str) -> None:
    (directory / "state.json").write_text(content)
    assert state.load(NAME) is None


def test_whoever_waits_for_a_lock_says_for_whom() -> None:
    said: list[str] = []
    waiting = threading.Event()

    def second() -> None:
        with paths.hold("x", lambda message: (said.append(message), waiting.set()), "the first"):
            said.append("held")

    with paths.hold("x"):
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(5)
        assert said == ["waiting for the first"]
    thread.join(5)
    assert said == ["waiting for the first", "held"]


@pytest.mark.parametrize("name", ["", "Upper", "../escape", "a/b", "-a", "a" * 41])
def test_names_that_are_no_dns_labels_are_refused(name: str) -> None:
    with pytest.raises(DevClusterError, match="not valid"):
        paths.cluster_dir(name)


def test_ports_are_distinct_free_and_not_taken_by_other_clusters() -> None:
    first = network.free_ports(5)
    second = network.free_ports(5, taken=first)
    assert len({*first, *second}) == 10
    assert all(network.LOWEST <= port < network.HIGHEST for port in first + second)
    assert network.free_ports(0) == [], "a component that starts again may have all of its ports"
