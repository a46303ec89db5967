"""Policies split over several operators, one of which dies and comes back."""

from contextlib import suppress

from rlscaler_dev.exceptions import ApiError
from rlscaler_operator.cluster.shards import shard_of

CANDIDATES = [f"part-{i}" for i in range(40)]
SPLIT = ("--shards", "2", "--lease-seconds", "15")
"""A pause of the machine that is longer than a Lease would hand a shard over while both operators live."""


def test_every_policy_has_one_operator_and_the_others_take_over_what_the_dead_one_had(start, world, wait, kube):
    of = {name: shard_of((world.namespace, name), 2) for name in CANDIDATES}
    names = [name for shard in range(2) for name in [one for one in CANDIDATES if of[one] == shard][:3]]
    loads = {name: world.service(name, rate=5) for name in names}
    for name in names:
        world.deployments(name)
        world.policy(name)

    def holders():
        path = f"/apis/coordination.k8s.io/v1/namespaces/default/leases/{world.namespace}"
        with suppress(ApiError, KeyError):
            return tuple(kube.get(f"{path}-{i}")["spec"]["holderIdentity"] for i in range(2))
        return ("", "")

    def spread():
        both = holders()
        return both if both[0] and both[1] and both[0] != both[1] else None

    def scaled(replicas):
        return all(sum(world.replicas(name)) > replicas for name in names)

    operators = [start(*SPLIT), start(*SPLIT)]
    wait(spread, 60)
    # The first of them may have had both shards, and decided for both, before the other came.
    earlier = [{name: len(one.decisions(name)) for name in names} for one in operators]

    def deciding():
        pairs = zip(operators, earlier, strict=True)
        return [{name for name in names if len(one.decisions(name)) > seen[name]} for one, seen in pairs]

    wait(lambda: all(world.condition(name, "Ready")[0] == "True" for name in names), 60)
    wait(lambda: set(names) <= set.union(*deciding()), 60)
    assert all(len({of[name] for name in decided}) == 1 for decided in deciding())

    dead, survivor = operators
    dead.kill()
    before = max(sum(world.replicas(name)) for name in names)
    for load in loads.values():
        load.rate = 60
    wait(lambda: scaled(before), 60)
    assert len(set(holders())) == 1
    wait(lambda: set(names) == {name for name in names if survivor.decisions(name)})

    third = start(*SPLIT)
    wait(spread, 60)
    wait(lambda: {of[name] for name in names if third.decisions(name)}, 60)
    assert survivor.stop() == 0
    wait(lambda: len(set(holders())) == 1 and holders()[0], 30)
    assert third.stop() == 0


def test_operators_with_another_number_of_shards_stand_by_until_the_old_ones_have_ended(
    start, world, wait, stays, kube
):
    """A rollout from one shard to two: the new pods are there before the old one goes."""
    load = world.service("rollout", rate=5)
    world.deployments("rollout")
    world.policy("rollout")
    # Those of the other test have left its shards' Leases behind, under the same name.
    old = start("--shards", "1")
    wait(lambda: world.condition("rollout", "Ready")[0] == "True", 60)
    new = [start("--shards", "2"), start("--shards", "2")]
    wait(lambda: all("standing by" in one.log.read_text() for one in new), 60)
    load.rate = 60
    wait(lambda: sum(world.replicas("rollout")) > 2, 60)
    stays(lambda: [one.decisions("rollout") for one in new], [[], []], 7)
    assert old.stop() == 0
    wait(lambda: any(one.decisions("rollout") for one in new), 60)
    assert sum(bool(one.decisions("rollout")) for one in new) == 1
    last = max(float(decision["time"]) for decision in old.decisions("rollout"))
    first = min(float(decision["time"]) for one in new for decision in one.decisions("rollout"))
    assert first > last
    for one in new:
        assert one.stop() == 0
    path = f"/apis/coordination.k8s.io/v1/namespaces/default/leases/{world.namespace}"
    assert not kube.get(path)["spec"]["holderIdentity"], "handed back by the last one that left"
