"""Two operators, of which one acts; and one that dies in the middle of its work."""

from contextlib import suppress

import requests


def test_the_other_operator_takes_over_when_the_leader_dies(start, world, wait):
    load = world.service("relay", rate=5)
    world.deployments("relay")
    world.policy("relay")
    operators = [start(), start()]
    wait(lambda: world.condition("relay", "Ready")[0] == "True")
    load.rate = 60
    before = wait(lambda: sum(r := world.replicas("relay")) > 2 and r)
    acted = [bool(operator.decisions("relay")) for operator in operators]
    assert sorted(acted) == [False, True]
    leader, other = operators if acted[0] else operators[::-1]
    leader.kill()
    load.rate = 150
    wait(lambda: sum(world.replicas("relay")) > sum(before), 40)
    assert other.decisions("relay")
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
    wait(lambda: again.audit.exists() and "holds the lease" in again.log.read_text())
    stays(lambda: sum(world.replicas("crash")) >= sum(high), True, 14)
    wait(lambda: sum(world.replicas("crash")) < sum(high), 40)
    assert again.stop() == 0


def test_health_tells_alive_from_acting_and_a_taken_port_ends_the_start(start, free_port, wait):
    health = f"http://127.0.0.1:{free_port}"
    first = start("--health-port", str(free_port))

    def answers(path):
        with suppress(requests.ConnectionError):
            return requests.get(f"{health}{path}", timeout=5).status_code

    wait(lambda: answers("/healthz") == 200)
    wait(lambda: answers("/readyz") == 200)
    second = start("--health-port", str(free_port))
    assert second.process.wait(20) == 1
    assert "choose another port" in second.log.read_text()
    assert first.stop() == 0
