"""Consumers and producer of a Kafka topic, as far as they need no broker: accounts, keys, membership, options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from prometheus_client import CollectorRegistry, generate_latest

from rlscaler_loadgen.cli import load
from rlscaler_loadgen.service.metrics import PodCollector, Usage
from rlscaler_loadgen.service.replica import CPU, Flavour, ServiceTimes
from rlscaler_loadgen.service.router import Pod
from rlscaler_loadgen.streams.accounts import Account
from rlscaler_loadgen.streams.cli import PROTOCOL_NAMES
from rlscaler_loadgen.streams.group import Members
from rlscaler_loadgen.streams.member import PROTOCOLS, Job
from rlscaler_loadgen.streams.producer import draw_keys


def account(mean_seconds: float = 0.1, variation: float = 0.0) -> Account:
    return Account(mean_seconds, ServiceTimes(1, variation))


def test_messages_that_wait_are_worked_on_without_a_gap() -> None:
    one = account()
    assert one.begin([0.0, 0.0, 0.0], 10.0) == pytest.approx((10.1, 10.2, 10.3))
    assert one.load == 3
    assert one.end() == 3
    assert one.load == 0
    # It came round late, and the next message begins at the moment at which the one before was due to end.
    assert one.begin([0.0], 10.29) == pytest.approx((10.4,))


def test_a_message_begins_when_it_has_come_and_was_asked_for() -> None:
    one = account()
    assert one.begin([5.0, 5.05, 7.0], 5.0) == pytest.approx((5.1, 5.2, 7.1))
    one.end()
    # Idle time, as during a rebalance, gives no credit.
    assert one.begin([7.2], 20.0) == pytest.approx((20.1,))


def test_a_consumer_that_ends_gives_up_the_rest_of_its_batch() -> None:
    one = account()
    one.begin([0.0] * 5, 0.0)
    assert one.busy_seconds(0.25) == pytest.approx(0.25)
    assert one.end(0.25) == 2
    assert one.busy_seconds(9.0) == pytest.approx(0.2), "the message that was begun is another's work"


def test_keys_are_as_unequal_as_they_should_be() -> None:
    even, skewed = (np.bincount(draw_keys(100_000, 100, skew, 1), minlength=100) for skew in (0.0, 1.0))
    assert even.min() > 800
    assert even.max() < 1200
    weights = 1 / np.arange(1, 101)
    assert skewed[0] / 100_000 == pytest.approx(weights[0] / weights.sum(), rel=0.03)
    assert skewed[0] / skewed[9] == pytest.approx(10, rel=0.1)
    assert np.array_equal(draw_keys(50, 100, 1.0, 7), draw_keys(50, 100, 1.0, 7))
    assert not np.array_equal(draw_keys(50, 100, 1.0, 7), draw_keys(50, 100, 1.0, 8))


def test_every_protocol_has_its_settings_and_nothing_is_committed_before_it_was_worked_on() -> None:
    assert PROTOCOLS == PROTOCOL_NAMES
    for protocol in PROTOCOLS:
        found = Job("a:1", "orders", "billing", protocol, commit_seconds=2.5).settings("pod-1")
        assert found["enable.auto.offset.store"] is False
        assert found["auto.commit.interval.ms"] == 2500
        assert found["client.id"] == "pod-1"
        assert ("group.protocol" in found) == (protocol == "consumer")
        assert found.get("partition.assignment.strategy", "consumer") == protocol


class FakeMember:
    """A member whose end is noted."""

    def __init__(self, pod: str) -> None:
        self.pod, self.ended, self.waited = pod, False, False
        self.flavour: Flavour = CPU
        self.load = 0

    @property
    def running(self) -> bool:
        return not self.waited

    def busy_seconds(self, now: float | None = None) -> float:
        return 2.0

    def end(self) -> None:
        self.ended = True

    def wait(self) -> None:
        assert self.ended
        self.waited = True


def members() -> tuple[Members, list[FakeMember]]:
    made: list[FakeMember] = []

    def start(pod: str) -> Any:
        made.append(FakeMember(pod))
        return made[-1]

    return Members(start), made


def test_a_pod_has_a_consumer_from_its_readiness_until_it_terminates() -> None:
    group, made = members()
    group.apply(Pod("a", "cpu", ready=False))
    assert not made, "a pod that starts is no member"
    group.apply(Pod("a", "cpu"))
    group.apply(Pod("a", "cpu"))
    assert [one.pod for one in made] == ["a"]
    group.apply(Pod("a", "cpu", terminating=True))
    assert made[0].ended
    assert not group.replicas
    group.remove("a")
    assert not group.pods
    group.apply(Pod("b", "cpu"))
    group.remove("b")
    group.apply(Pod("c", "cpu"))
    group.close()
    assert all(one.waited for one in made)
    assert len(made) == 3


def test_consumers_have_the_series_of_a_real_cluster() -> None:
    group, _ = members()
    group.apply(Pod("a", "cpu", cpu_request=4.0, container="app"))
    group.apply(Pod("b", "cpu", ready=False, cpu_request=4.0, container="app"))
    registry = CollectorRegistry()
    registry.register(PodCollector(group, Usage(group), "ns"))
    text = generate_latest(registry).decode()
    assert 'container_cpu_usage_seconds_total{container="app",namespace="ns",pod="a"} 8.0' in text
    assert 'pod="b",resource="cpu",unit="core"} 4.0' in text
    assert 'container_cpu_usage_seconds_total{container="app",namespace="ns",pod="b"}' not in text


def test_a_load_that_makes_no_sense_is_a_wrong_call(tmp_path: Path) -> None:
    options = ["--bootstrap-servers", "127.0.0.1:1", "--topic", "orders", "--out", str(tmp_path), "--duration", "0"]
    done = CliRunner().invoke(load, ["produce", *options])
    assert done.exit_code == 2
    assert "duration" in done.output
