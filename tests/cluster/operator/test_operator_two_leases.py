"""Two operators that are installed beside each other, so that they have different Leases, and one policy."""


def test_of_two_operators_with_different_leases_one_acts(start, world, wait, stays):
    load = world.service("chat", rate=20)
    world.deployments("chat")
    world.policy("chat")

    def carries(rate):
        return sum(n * each for n, each in zip(world.replicas("chat"), (20, 4), strict=True)) >= rate

    def lease():
        return world.get("rlscalingpolicies", "chat")["status"]["operator"]["lease"].rpartition("/")[2]

    first = start()
    wait(lambda: world.condition("chat", "Active") == ("True", "Acting"))
    second = start("--lease-name", f"{world.namespace}-b")
    wait(lambda: "OtherOperatorActs" in world.events("chat"))
    wait(lambda: world.condition("chat", "Conflicted") == ("False", "OtherOperatorHolds"))
    load.rate = 100
    wait(lambda: carries(100))
    stays(lambda: (lease(), second.decisions("chat")), (world.namespace, []), 35)
    first.kill()
    # Asked at most two minutes after the last answer, and half a minute for the next one.
    wait(lambda: lease() == f"{world.namespace}-b", 200)
    load.rate = 220
    wait(lambda: carries(220))
    start()
    wait(lambda: world.condition("chat", "Conflicted") == ("False", "OtherOperatorHolds"))
    assert lease() == f"{world.namespace}-b"
