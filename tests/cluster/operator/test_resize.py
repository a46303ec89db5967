"""Running pods are resized on a real API server; kwok plays the kubelets."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pytest

from rlscaler_core.vertical.size import PodSize
from rlscaler_operator.actuation.resize import Resized, Resizer
from rlscaler_operator.actuation.resize_plan import AT_ONCE, PATIENCE_SECONDS
from rlscaler_operator.cluster.concurrency import ConcurrencyLimiter
from rlscaler_operator.cluster.kube import Kube, load_configuration
from rlscaler_operator.cluster.shards import Shards
from rlscaler_operator.cluster.sized_pods import SizedPods
from rlscaler_operator.exceptions import KubeError
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.pod_sizes import Failures
from tests.harness import setup
from tests.harness.world import World

SMALL = {"requests": {"cpu": "200m", "memory": "64Mi"}, "limits": {"cpu": "400m", "memory": "64Mi"}}
ACCOUNT = "resizer"


class Rounds:
    """An operator's rounds for one Deployment; another one knows nothing of what this one remembers."""

    def __init__(self, world: World, deployment: str, kubeconfig, kube: Kube, later: float = 0.0) -> None:
        self._world, self._deployment, self.later = world, deployment, later
        self._pods, self.failures = SizedPods(), Failures()
        shards = Shards(kube, Settings(kubeconfig=kubeconfig))
        self._lease = shards.leases[0]
        self._lease._deadline = math.inf
        self._resizer = Resizer(ConcurrencyLimiter(8), self._pods, lambda: time.time() + self.later)

    async def once(self, cpu: float, memory: float = math.nan) -> Resized:
        """Look at the pods as the API server has them, and do one round."""
        target = (self._world.namespace, self._deployment)
        for body in self._world.pods(self._deployment):
            self._pods.put(target, body)
        return await self._resizer.resize(self._lease, target, PodSize(cpu, memory), None, self.failures)

    async def until(self, fine: Callable[[Resized], bool], cpu: float, memory: float = math.nan) -> list[Resized]:
        """Do rounds until one comes out as it should; each of them waits for the API server."""
        rounds, deadline = [await self.once(cpu, memory)], time.monotonic() + 60
        while not fine(rounds[-1]):
            assert time.monotonic() < deadline, rounds[-1]
            rounds.append(await self.once(cpu, memory))
        return rounds


@pytest.fixture(scope="module")
def account(cluster, kube, world, tmp_path_factory):
    setup.permit(kube, ACCOUNT, world.namespace)
    path = tmp_path_factory.mktemp("resize") / "kubeconfig"
    return setup.write_kubeconfig(path, cluster.kubeconfig, setup.token(kube, account=ACCOUNT))


@pytest.fixture
async def client(account) -> AsyncIterator[Kube]:
    one = Kube(await load_configuration(Settings(kubeconfig=account)))
    yield one
    await one.close()


@pytest.fixture(scope="module")
def granted(kube, world, account) -> None:
    setup.grant(kube, ACCOUNT, "resizes", setup.shipped_roles()["rlscaler-pod-resize"]["rules"], world.namespace)


@pytest.fixture
def pool(world, wait) -> Callable[..., str]:
    """Make a Deployment whose pods run."""

    def make(name: str, replicas: int, **more) -> str:
        world.deployment(name, "cpu", replicas, resources=SMALL, **more)
        wait(lambda: sum(pod["status"]["phase"] == "Running" for pod in world.pods(name)) == replicas, 60)
        return name

    return make


def runs_with(world, name, kind="requests", resource="cpu"):
    """What the containers run with, as their kubelets say."""
    return {pod["status"]["containerStatuses"][0]["resources"][kind][resource] for pod in world.pods(name)}


def asks_for(world, name):
    return {pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] for pod in world.pods(name)}


async def test_without_the_right_nothing_is_resized_and_the_grant_is_named(world, pool, account, client):
    rounds = Rounds(world, pool("forbidden", 1), account, client)
    (problem,) = (await rounds.once(0.3)).problems
    assert problem.reason == "ResizeForbidden"
    assert "rbac-optional.yaml" in problem.message
    assert asks_for(world, "forbidden") == {"200m"}


async def test_the_right_to_resize_changes_nothing_else_of_a_pod(granted, world, pool, client):
    name = pool("bounded", 1)
    before = world.pods(name)[0]
    path = world.path("pods", before["metadata"]["name"], "resize")
    for change in (
        {"metadata": {"labels": {"app": "other"}, "annotations": {"a": "b"}}},
        {"spec": {"containers": [{**before["spec"]["containers"][0], "image": "other"}]}},
        {"spec": {"activeDeadlineSeconds": 1}},
    ):
        with suppress(KubeError):
            await client.patch(path, change)
    after = world.pods(name)[0]
    assert after["spec"] == before["spec"]
    for part in ("labels", "annotations", "ownerReferences", "finalizers"):
        assert after["metadata"].get(part) == before["metadata"].get(part)
    with pytest.raises(KubeError, match="forbidden"):
        await client.patch(world.path("pods", before["metadata"]["name"]), {"metadata": {"labels": {"a": "b"}}})


async def test_pods_are_resized_few_at_a_time_and_another_operator_goes_on(granted, world, pool, account, client):
    name = pool("many", AT_ONCE + 2)
    before = {pod["metadata"]["uid"] for pod in world.pods(name)}
    first = await Rounds(world, name, account, client).once(0.3, 128 << 20)
    assert len(first.patched) == AT_ONCE
    rounds = await Rounds(world, name, account, client).until(lambda one: not one.unsettled, 0.3, 128 << 20)
    patched = [*first.patched, *(pod for one in rounds for pod in one.patched)]
    assert sorted(patched) == sorted(pod["metadata"]["name"] for pod in world.pods(name)), "each of them once"
    assert runs_with(world, name) == {"300m"}
    assert runs_with(world, name, "limits") == {"600m"}, "in the same ratio"
    assert runs_with(world, name, "limits", "memory") == {"128Mi"}
    assert {pod["metadata"]["uid"] for pod in world.pods(name)} == before
    assert {pod["status"]["containerStatuses"][0]["restartCount"] for pod in world.pods(name)} == {0}


@pytest.mark.parametrize("said", ["Deferred", "Infeasible"])
async def test_what_a_node_has_no_room_for_is_taken_back_and_not_tried_for_a_while(
    granted, world, pool, account, client, said, wait
):
    name = pool(f"no-room-{said.lower()}", 1, annotations={"rlscaler.io/resize": said})
    rounds = Rounds(world, name, account, client)
    await rounds.until(lambda one: bool(one.patched), 0.3)
    wait(lambda: [c for c in world.pods(name)[0]["status"]["conditions"] if c.get("reason") == said])
    if said == "Deferred":
        assert not (await rounds.once(0.3)).patched, "it has its time"
    rounds.later = PATIENCE_SECONDS + 60
    taken_back = (await rounds.until(lambda one: bool(one.problems), 0.3))[-1]
    (problem,) = taken_back.problems
    assert problem.reason == f"Resize{said}"
    assert taken_back.patched[0] in problem.message
    assert asks_for(world, name) == {"200m"}
    # Once more at once, in case it was a moment's want of room; after that it waits.
    await rounds.until(lambda one: rounds.failures.taken_back[taken_back.patched[0]].backoff.seconds > 0, 0.3)
    wait(lambda: not _pending(world, name))
    again = await rounds.once(0.3)
    assert not again.patched
    assert again.problems == taken_back.problems
    assert asks_for(world, name) == {"200m"}


def _pending(world, name):
    return [c for c in world.pods(name)[0]["status"]["conditions"] if c["type"] == "PodResizePending"]


async def test_a_quota_that_refuses_is_named_and_not_asked_at_every_round(
    granted, kube, world, pool, account, client, wait
):
    name = pool("quota", 2)
    path = f"/api/v1/namespaces/{world.namespace}/resourcequotas"
    kube.request("POST", path, {"metadata": {"name": "small"}, "spec": {"hard": {"requests.cpu": "4"}}})
    try:
        wait(lambda: kube.request("GET", f"{path}/small").get("status", {}).get("used"), 60)
        rounds = Rounds(world, name, account, client)
        first = await rounds.until(lambda one: bool(one.problems), 3.5)
        (problem,) = first[-1].problems
        assert problem.reason == "ResizeOverQuota"
        assert any(pod["metadata"]["name"] in problem.message for pod in world.pods(name))
        assert "small" in problem.message
        await rounds.once(3.5)
        refused = rounds.failures.refused
        assert refused is not None
        assert refused.backoff.seconds > 0
        last = refused.backoff.last
        assert (await rounds.once(3.5)).problems == (refused.problem,)
        assert rounds.failures.refused.backoff.last == last, "it was not asked again"
    finally:
        kube.delete(f"{path}/small")
    after = await rounds.until(lambda one: not one.unsettled, 1.0)
    assert after[-1].problems == (), "another size is tried at once"
    assert runs_with(world, name) == {"1"}
