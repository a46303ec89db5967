"""Letting go of policies: what is removed, what is left, and who may act meanwhile."""

from __future__ import annotations

import logging
from copy import deepcopy

import pytest

from rlscaler_operator.cluster.kube import Kube
from rlscaler_operator.exceptions import KubeError, OperatorError
from rlscaler_operator.run import release as module
from rlscaler_operator.run.release import HOLD_SECONDS, release, release_if_namespace_ends
from rlscaler_operator.settings import Settings

OURS, OTHERS = "rlscaler.io/restore", "other.io/keep"
POLICIES = "/apis/rlscaler.io/v1alpha1/rlscalingpolicies"
POLICY = "/apis/rlscaler.io/v1alpha1/namespaces/ns/rlscalingpolicies/chat"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/system/leases/rlscaler"
NAMESPACE = "/api/v1/namespaces/system"


class Memory(Kube):
    """An API server of three objects; `conflicts` writes are refused before one is taken."""

    def __init__(self, finalizers=(OTHERS, OURS), deleting=False, conflicts=0):
        metadata = {"namespace": "ns", "name": "chat", "finalizers": list(finalizers)}
        gone = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {}
        self.objects = {
            POLICY: {"metadata": metadata, "spec": {}},
            LEASE: {"metadata": {"name": "rlscaler"}, "spec": {"holderIdentity": "leader", "leaseTransitions": 3}},
            NAMESPACE: {"metadata": {"name": "system", **gone}},
        }
        self.conflicts, self.refused, self.wrote = conflicts, 0, []

    async def request(self, method, path, body=None, **options):
        if method != "GET":
            if self.refused:
                raise KubeError(self.refused, "no")
            if self.conflicts:
                self.conflicts -= 1
                raise KubeError(409, "changed")
            self.wrote.append(path)
        if path == POLICIES and POLICY in self.objects:
            return {"items": [deepcopy(self.objects[POLICY])]}
        if path not in self.objects:
            raise KubeError(404, "not found")
        if method == "PUT":
            self.objects[path] = body
        if method == "PATCH":
            test, add = body
            assert test["value"] == self.objects[path]["metadata"]["finalizers"]
            self.objects[path]["metadata"]["finalizers"] = add["value"]
        return deepcopy(self.objects[path])

    @property
    def finalizers(self):
        return self.objects[POLICY]["metadata"]["finalizers"]


@pytest.fixture
def settings():
    """Settings with a Lease so short that no test waits for it."""
    return Settings.model_construct(lease_namespace="system", identity="me", lease_seconds=0.01)


@pytest.mark.parametrize("conflicts", [0, 3])
async def test_our_finalizer_goes_under_a_lease_that_is_ours(settings, conflicts):
    kube = Memory(conflicts=conflicts)
    assert await release(kube, settings) == ["ns/chat"]
    assert kube.finalizers == [OTHERS]
    assert kube.wrote[0] == LEASE
    spec = kube.objects[LEASE]["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("me", HOLD_SECONDS, 4)


async def test_nothing_is_touched_where_no_policy_needs_it(settings):
    kube = Memory(finalizers=(OTHERS,))
    assert await release(kube, settings) == []
    assert kube.wrote == []


async def test_policy_that_asks_for_it_later_is_kept_from_getting_one(settings):
    kube = Memory(finalizers=())
    kube.objects[POLICY]["spec"]["restoreOnDelete"] = True
    assert await release(kube, settings) == []
    assert kube.wrote == [LEASE]


@pytest.mark.parametrize("gone", [POLICY, LEASE])
async def test_what_is_gone_is_no_trouble(settings, gone):
    """The definition, and with it all policies, or a Lease that was deleted."""
    kube = Memory()
    del kube.objects[gone]
    assert await release(kube, settings) == (["ns/chat"] if gone == LEASE else [])


async def test_deletion_that_is_under_way_is_waited_for_while_an_operator_acts(settings, monkeypatch):
    kube = Memory()
    kube.objects[POLICY]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    async def operator_restores(seconds):
        kube.objects.pop(POLICY, None)

    monkeypatch.setattr(module.asyncio, "sleep", operator_restores)
    assert await release(kube, settings) == []


async def test_refusal_is_raised(settings):
    kube = Memory()
    kube.refused = 403
    with pytest.raises(OperatorError, match="no"):
        await release(kube, settings)


async def test_endless_conflict_is_given_up(settings):
    with pytest.raises(OperatorError, match="changes faster than it can be taken"):
        await release(Memory(conflicts=99), settings)


@pytest.mark.parametrize("deleting", [False, True])
async def test_last_act_only_where_the_namespace_is_being_deleted(settings, deleting):
    kube = Memory(deleting=deleting)
    await release_if_namespace_ends(kube, settings)
    assert kube.finalizers == ([OTHERS] if deleting else [OTHERS, OURS])
    assert bool(kube.wrote) == deleting


async def test_last_act_that_fails_says_what_to_run(settings, caplog):
    kube = Memory(deleting=True)
    kube.refused = 403
    with caplog.at_level(logging.ERROR):
        await release_if_namespace_ends(kube, settings)
    assert "rlscaler operator release" in caplog.text


async def test_last_act_without_the_right_to_ask_is_none(settings):
    kube = Memory()
    del kube.objects[NAMESPACE]
    await release_if_namespace_ends(kube, settings)
    assert kube.wrote == []
