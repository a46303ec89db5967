"""Two operators, of which one acts; and one that dies in the middle of its work."""

import signal
import time
from contextlib import suppress
from datetime import UTC, datetime

import pytest
import requests

from tests.harness.waiting import stalls


@pytest.fixture
def start(start):
    """Operators that end with their test: one that is left would hold the Lease of the next."""
    mine = []

    def run(*options, **more):
        mine.append(start(*options, **more))
        return mine[-1]

    yield run
    for operator in mine:
        if operator.process.poll() is None:
            operator.process.send_signal(signal.SIGCONT)
            operator.stop()


def test_the_other_operator_takes_over_when_the_leader_dies(start, world, wait):
    load = world.service("relay", rate=5)
    world.deployments("relay")
    world.policy("relay")
    operators = [start(), start()]
    wait(lambda: world.condition("relay", "Ready")[0] == "True")
    load.rate = 60
    before = wait(lambda: sum(r := world.replicas("relay")) > 2 and r)
    acted = wait(lambda: any(found := [bool(operator.decisions("relay")) for operator in operators]) and found)
    assert sorted(acted) == [False, True]
    leader, other = operators if acted[0] else operators[::-1]
    leader.kill()
    load.rate = 150
    wait(lambda: sum(world.replicas("relay")) > sum(before), 40)
    wait(lambda: other.decisions("relay"))
    assert other.stop() == 0


def test_after_a_kill_nothing_is_scaled_down_before_a_full_window(start, world, wait, stays):
    load = world.service("crash", rate=60)
    world.deployments("crash")
    world.policy("crash", behavior={"scaleDown": {"stabilizationWindowSeconds": 15}})
    operator = start()
    high = wait(lambda: (r := world.replicas("crash"))[0] * 20 + r[1] * 4 >= 75 and r)
    operator.kill()
    high = world.replicas("crash")
    load.rate = 2
    again = start()
    wait(lambda: "acting for shards" in again.log.read_text())
    stays(lambda: sum(world.replicas("crash")) >= sum(high), True, 14)
    wait(lambda: sum(world.replicas("crash")) < sum(high), 40)
    assert again.stop() == 0


def test_a_standby_is_as_ready_as_the_one_that_acts_and_a_taken_port_ends_the_start(start, free_ports, wait):
    acting_port, standby_port = free_ports(2)

    def answers(port, path):
        with suppress(requests.ConnectionError):
            return requests.get(f"http://127.0.0.1:{port}{path}", timeout=5).status_code

    acting = start("--metrics-port", str(acting_port))
    wait(lambda: "acting for shards" in acting.log.read_text())
    standby = start("--metrics-port", str(standby_port))
    wait(lambda: "standing by" in standby.log.read_text())
    for port in (acting_port, standby_port):
        for path in ("/healthz", "/readyz", "/metrics"):
            wait(lambda port=port, path=path: answers(port, path) == 200)
    third = start("--metrics-port", str(acting_port))
    assert third.process.wait(20) == 1
    assert "choose another port" in third.log.read_text()


STOPS_ITSELF = """
import os, pathlib, signal
from rlscaler_live import cli
from rlscaler_operator.cluster import kube
marker, patch = pathlib.Path({marker!r}), kube.Kube.patch

async def patch_after_a_stop(self, path, *arguments, **more):
    if path.endswith("/scale") and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGSTOP)
    return await patch(self, path, *arguments, **more)

kube.Kube.patch = patch_after_a_stop
cli.main()
"""


def test_a_leader_that_was_stopped_with_a_patch_in_hand_writes_nothing_when_it_wakes_up(start, world, wait, tmp_path):
    """Stopped for longer than its lease between decision and write. The replicas are still what it decided upon, so
    that the compare-and-swap alone would let the write pass.
    """
    load = world.service("frozen", rate=5)
    world.deployments("frozen")
    world.policy("frozen")
    marker = tmp_path / "stopped"
    frozen = start(program=("-c", STOPS_ITSELF.format(marker=str(marker))))
    wait(lambda: world.condition("frozen", "Ready")[0] == "True", 60)
    before = world.replicas("frozen")
    load.rate = 60
    wait(marker.exists, 40)
    world.patch("rlscalingpolicies", "frozen", {"metadata": {"annotations": {"rlscaler.io/paused": "true"}}})
    other = start()
    wait(lambda: "acting for shards" in other.log.read_text(), 40)
    wait(lambda: world.condition("frozen", "Paused")[0] == "True", 40)
    assert world.replicas("frozen") == before
    frozen.process.send_signal(signal.SIGCONT)
    late = wait(lambda: [d for d in frozen.decisions("frozen") if "LeaseLost" in d["writes"].values()], 40)
    assert late[0]["desired"] != late[0]["base"]
    assert not late[0]["applied"]
    assert world.replicas("frozen") == before
    assert other.stop() == 0


def test_another_operator_acts_within_fifteen_seconds_of_the_leaders_death(start, world, wait):
    load = world.service("heir", rate=5)
    world.deployments("heir")
    world.policy("heir")
    leader = start("--lease-seconds", "10")
    wait(lambda: "acting for shards" in leader.log.read_text(), 60)
    standby = start("--lease-seconds", "10")
    wait(lambda: "standing by" in standby.log.read_text(), 60)
    wait(lambda: world.condition("heir", "Ready")[0] == "True", 60)
    before = sum(world.replicas("heir"))
    with stalls() as lost:
        leader.kill()
        died = time.monotonic()
        load.rate = 60
        wait(lambda: sum(world.replicas("heir")) > before, 40)
        took = time.monotonic() - died
    assert took - lost.seconds <= 15
    assert standby.stop() == 0


def test_a_leader_that_overslept_while_nobody_took_over_goes_on_with_what_it_remembers(start, world, wait, kube):
    load = world.service("alone", rate=5)
    world.deployments("alone")
    world.policy("alone")
    operator = start()
    wait(lambda: world.condition("alone", "Ready")[0] == "True", 60)
    before = sum(world.replicas("alone"))
    operator.process.send_signal(signal.SIGSTOP)
    lease = f"/apis/coordination.k8s.io/v1/namespaces/default/leases/{world.namespace}"

    def silent_seconds():
        renewed = datetime.fromisoformat(kube.get(lease)["spec"]["renewTime"])
        return (datetime.now(UTC) - renewed).total_seconds()

    wait(lambda: silent_seconds() > 6, 20)
    load.rate = 60
    operator.process.send_signal(signal.SIGCONT)
    wait(lambda: sum(world.replicas("alone")) > before, 40)
    assert operator.log.read_text().count("acting for shards") == 1
    assert operator.stop() == 0
