"""Two operators that are installed beside each other, so that they have different Leases, and one policy."""


def test_of_two_operators_with_different_leases_one_acts(start, world, wait, stays):
    load = world.service("chat", rate=20)
    world.deployments("chat")
    world.policy("chat")
    first = start()
    wait(lambda: world.condition("chat", "Active") == ("True", "Acting"))
    second = start("--lease-name", f"{world.namespace}-b")
    wait(lambda: "OtherOperatorActs" in world.events("chat"))
    wait(lambda: world.condition("chat", "Conflicted") == ("False", "OtherOperatorHolds"))
    load.rate = 120
    wait(lambda: sum(n * each for n, each in zip(world.replicas("chat"), (20, 4), strict=True)) >= 120)
    stays(lambda: second.decisions("chat"), [], 35)
    first.kill()
    load.rate = 180
    # Asked at most two minutes after the last answer, and half a minute for the next one.
    wait(lambda: sum(n * each for n, each in zip(world.replicas("chat"), (20, 4), strict=True)) >= 180, 240)
    lease = world.get("rlscalingpolicies", "chat")["status"]["operator"]["lease"]
    assert lease.endswith(f"/{world.namespace}-b")
    start()
    wait(lambda: world.condition("chat", "Conflicted") == ("False", "OtherOperatorHolds"))
    assert world.get("rlscalingpolicies", "chat")["status"]["operator"]["lease"] == lease
