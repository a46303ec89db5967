"""Leases on the real API server, under clocks of the test's own: deleted, made anew, split otherwise, at any moment."""

import random
from collections.abc import Iterator
from contextlib import asynccontextmanager

import pytest

from rlscaler_operator.cluster.kube import Kube, load_configuration
from rlscaler_operator.cluster.lease import VACANT, Lease
from rlscaler_operator.cluster.shards import Shards
from rlscaler_operator.settings import Settings
from tests.harness import setup

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
SECONDS = 10.0
POLICIES = [("team", f"service-{i}") for i in range(40)]


class Clock:
    """Monotonic seconds that pass when the test says so."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def name(request, kube) -> Iterator[str]:
    one = f"races-{abs(hash(request.node.name)) % 10**8}"
    yield one
    for lease in kube.get(LEASES)["items"]:
        if lease["metadata"]["name"].startswith(one):
            kube.delete(f"{LEASES}/{lease['metadata']['name']}")


@asynccontextmanager
async def client(kubeconfig):
    one = Kube(await load_configuration(Settings(kubeconfig=kubeconfig)))
    try:
        yield one
    finally:
        await one.close()


def settings(kubeconfig, name, identity, shards=1):
    return Settings(
        kubeconfig=kubeconfig,
        lease_name=name,
        lease_namespace="default",
        lease_seconds=SECONDS,
        identity=identity,
        shards=shards,
        write_timeout_seconds=0.05,
    )


async def test_the_first_operator_of_all_acts_after_one_duration(operator_kubeconfig, kube, name, clock):
    async with client(operator_kubeconfig) as api:
        lease = Lease(api, settings(operator_kubeconfig, name, "first"), clock)
        await lease.step()
        assert not lease.held
        assert kube.get(f"{LEASES}/{name}")["spec"]["holderIdentity"] == VACANT
        clock.now += SECONDS + 0.1
        await lease.step()
        assert lease.held


async def test_one_that_comes_just_after_the_lease_was_deleted_waits_for_the_holder(
    operator_kubeconfig, kube, name, clock
):
    """It has never seen the Lease, so that for all it knows nothing holds it; the holder still acts by its deadline."""
    async with client(operator_kubeconfig) as api:
        holder, late = (Lease(api, settings(operator_kubeconfig, name, who), clock) for who in ("holder", "late"))
        await holder.step()
        clock.now += SECONDS + 0.1
        await holder.step()
        assert holder.held
        kube.delete(f"{LEASES}/{name}")
        await late.step()
        assert (holder.held, late.held) == (True, False)
        clock.now += SECONDS / 5
        await holder.step()
        await late.step()
        assert (holder.held, late.held) == (False, False), "the holder finds the Lease made anew, and ends"
        clock.now += SECONDS + 0.1
        await late.step()
        await holder.step()
        assert (holder.held, late.held) == (False, True)


async def test_the_holder_makes_a_deleted_lease_again_without_a_pause(operator_kubeconfig, kube, name, clock):
    async with client(operator_kubeconfig) as api:
        holder, standby = (Lease(api, settings(operator_kubeconfig, name, who), clock) for who in ("holder", "standby"))
        await holder.step()
        clock.now += SECONDS + 0.1
        await holder.step()
        await standby.step()
        kube.delete(f"{LEASES}/{name}")
        await standby.step()
        await holder.step()
        assert (holder.held, standby.held) == (True, False)


async def test_an_operator_that_may_not_make_its_lease_says_so(cluster, kube, name, clock, tmp_path):
    kube.request("POST", setup.ACCOUNTS, {"metadata": {"name": name}})
    rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "update"]}
    setup.grant(kube, name, "lease", [rule], "default")
    kubeconfig = setup.write_kubeconfig(tmp_path / "config", cluster.kubeconfig, setup.token(kube, account=name))
    async with client(kubeconfig) as api:
        shards = Shards(api, settings(kubeconfig, name, "poor"), clock)
        await shards._step()
        assert "cannot create resource" in shards.trouble()
        assert "docs/operator-permissions.md" in shards.trouble()


@pytest.mark.parametrize("seed", range(4))
async def test_no_policy_has_two_operators_whatever_is_deleted_started_stopped_and_split(
    operator_kubeconfig, kube, name, clock, seed
):
    """Operators with one, two and three shards come, go, stand still and die, and Leases are deleted, at random."""
    draw = random.Random(seed)
    acted: set[int] = set()
    async with client(operator_kubeconfig) as api:
        living: list[Shards] = []
        for turn in range(120):
            what = draw.choice(["start", "stop", "die", "delete", *["step"] * 12])
            if what == "start" and len(living) < 4:
                number = draw.choice([1, 2, 3])
                living.append(Shards(api, settings(operator_kubeconfig, name, f"{turn}-of-{number}", number), clock))
            elif what == "stop" and living:
                await living.pop(draw.randrange(len(living)))._leave()
            elif what == "die" and living:
                living.pop(draw.randrange(len(living)))
            elif what == "delete":
                found = [lease["metadata"]["name"] for lease in kube.get(LEASES)["items"]]
                mine = [one for one in found if one.startswith(name)]
                if mine:
                    kube.delete(f"{LEASES}/{draw.choice(mine)}")
            else:
                # Some are slow: they miss a turn, and act by what they know.
                for one in draw.sample(living, k=max(1, len(living) - 1)) if living else ():
                    await one._step()
                clock.now += draw.choice([0.5, 1.0, 2.0, 2.0, 4.0])
            for policy in POLICIES:
                assert sum(one.of(policy).held for one in living) <= 1, (seed, turn, what)
            acted |= {one.number for one in living if one.held}
    assert len(acted) > 1, "the run is no test where only one number of shards ever acts"


async def test_another_number_of_shards_waits_for_the_old_one_and_then_acts(operator_kubeconfig, name, clock):
    async with client(operator_kubeconfig) as api:
        old = [Shards(api, settings(operator_kubeconfig, name, f"old-{i}", 2), clock) for i in range(2)]
        new = [Shards(api, settings(operator_kubeconfig, name, f"new-{i}", 3), clock) for i in range(2)]

        async def turns(seconds, *who):
            for _ in range(int(seconds / 2)):
                for one in who:
                    await one._step()
                clock.now += 2.0

        await turns(3 * SECONDS, *old)
        assert [len(one.holds()) for one in old] == [1, 1]
        await turns(3 * SECONDS, *old, *new)
        assert [len(one.holds()) for one in old] == [1, 1], "standing by, they take no share"
        assert not any(one.held for one in new)
        await old[0]._leave()
        await turns(2 * SECONDS, old[1], *new)
        assert set(old[1].holds()) == {0, 1}
        assert not any(one.held for one in new)
        await old[1]._leave()
        await turns(3 * SECONDS, *new)
        assert sorted(shard for one in new for shard in one.holds()) == [0, 1, 2]
        assert all(one.holds() for one in new)


@pytest.mark.parametrize("last_renewal", [0, 1])
async def test_the_last_of_several_hands_the_split_back_whoever_renewed_it_last(
    operator_kubeconfig, kube, name, clock, last_renewal
):
    async with client(operator_kubeconfig) as api:
        both = [Shards(api, settings(operator_kubeconfig, name, f"one-{i}", 2), clock) for i in range(2)]
        for turn in range(12):
            await both[turn % 2]._step()
            clock.now += 2.0
        await both[last_renewal]._step()
        await both[0]._leave()
        assert kube.get(f"{LEASES}/{name}")["spec"]["holderIdentity"] == "2 shards"
        await both[1]._leave()
        assert not kube.get(f"{LEASES}/{name}")["spec"]["holderIdentity"]
