"""From the patch of a pod to its cgroup, and what the part asks of a node."""

from __future__ import annotations

import math

import pytest

from rlscaler_dev.cluster.realnode.cgroups import Amounts
from rlscaler_dev.e2e.sizes import plan
from rlscaler_dev.e2e.sizes.observe import Trail, delay_seconds, holds

SMALL = {"requests": {"cpu": "50m"}, "limits": {"cpu": "200m", "memory": "128Mi"}}
LARGE = {"requests": {"cpu": "150m"}, "limits": {"cpu": "600m", "memory": "192Mi"}}
MIB = 2**20


def trail() -> Trail:
    """A pod that was patched at 100 s; the kernel had its CPU 0.1 s later and its memory after 0.3 s."""
    made = Trail("a", "grows", {})
    made.asked = [(0.0, SMALL), (100.0, LARGE)]
    made.look(Amounts(51, 0.2, 128 * MIB, 1), 1.0)
    made.look(Amounts(153, 0.6, 128 * MIB, 1), 100.1)
    made.look(Amounts(153, 0.6, 192 * MIB, 1), 100.3)
    made.look(Amounts(153, 0.6, 192 * MIB, 2), 100.4)
    return made


def test_a_resize_is_over_when_all_of_it_is_in_the_cgroup() -> None:
    assert delay_seconds(trail()) == pytest.approx(0.3)


def test_a_resize_that_is_not_in_the_cgroup_has_no_delay() -> None:
    unfinished = trail()
    unfinished.given.pop()
    assert delay_seconds(unfinished) is None


def test_bytes_that_are_used_are_no_change() -> None:
    assert [moment for moment, _ in trail().given] == [1.0, 100.1, 100.3]


def test_limits_are_compared_as_the_kernel_rounds_them() -> None:
    assert holds(Amounts(2, math.inf, 200_000 - 200_000 % 4096, 0), {"limits": {"memory": "200000"}})
    assert not holds(Amounts(2, math.inf, 128 * MIB, 0), {"limits": {"memory": "64Mi"}})
    assert holds(Amounts(2, 0.01, math.inf, 0), {"limits": {"cpu": "5m"}}), "a kubelet gives a hundredth at least"
    assert not holds(Amounts(2, 0.2, math.inf, 0), {"limits": {"cpu": "210m"}})
    assert holds(Amounts(2, math.inf, math.inf, 0), {})


def test_one_range_begins_above_the_node() -> None:
    node = {"status": {"allocatable": {"cpu": "1950m"}}}
    (range_,) = (case.resources["cpu"] for case in plan.cases(node) if case.name == plan.TOO_LARGE.name)
    assert range_ == {"min": "3", "max": "3"}


def test_the_filler_leaves_room_for_what_grows_and_none_for_what_waits() -> None:
    most = float(plan.GROWS.resources["cpu"]["max"].rstrip("m")) / 1000
    assert plan.GROWS.cores < most
    wished = float(plan.WAITS.resources["cpu"]["min"].rstrip("m")) / 1000
    assert plan.GROWS.replicas * (0.15 - 0.05) < plan.FILLED_LEAVES_CORES < wished
