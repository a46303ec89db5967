"""Deleting a policy: with `restoreOnDelete` the finalizer holds it until things are as before the first change."""

from __future__ import annotations

import asyncio
import json
import logging
import time

import numpy as np

from rlscaler_core.api import is_true
from rlscaler_core.api.conditions import CONFLICTED
from rlscaler_core.decision.decide import decide
from rlscaler_core.decision.guards import STAGES
from rlscaler_core.decision.types import POOLS
from rlscaler_operator.actuation.drain import Need
from rlscaler_operator.actuation.pod_sizes import Sizer
from rlscaler_operator.actuation.scale import write_replicas
from rlscaler_operator.actuation.weights import WeightWriter
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.concurrency import ConcurrencyLimiter
from rlscaler_operator.cluster.events import Events
from rlscaler_operator.cluster.kinds import for_kubectl
from rlscaler_operator.cluster.kube import Kube, policy_path
from rlscaler_operator.cluster.lease import Lease
from rlscaler_operator.cluster.shards import Shards
from rlscaler_operator.exceptions import KubeError, LeaseLostError
from rlscaler_operator.sensing.measure import samples_of, samples_row
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.clock import unix
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.registry import Registry
from rlscaler_operator.state.traffic import CONFIRM_SECONDS

log = logging.getLogger("rlscaler.restore")

FINALIZER = "rlscaler.io/restore"
RETRY_SECONDS = 2.0
"""Pause before a deletion that could not be completed is looked at again."""

TRIES = {"ScaleRefused": 5}
"""Attempts at putting replicas back, by the reason of the failure: a deliberate refusal is likely to be repeated."""

MOST_TRIES = 60
"""Attempts where they fail for another reason."""


class Deletion:
    """Restores the originals of policies with our finalizer."""

    def __init__(
        self,
        kube: Kube,
        shards: Shards,
        limiter: ConcurrencyLimiter,
        cache: WatchCache,
        registry: Registry,
        events: Events,
        settings: Settings,
        sizer: Sizer,
    ) -> None:
        self._sizer = sizer
        self._kube, self._shards, self._cache, self._registry, self._events = kube, shards, cache, registry, events
        self._patience = settings.drain_seconds + CONFIRM_SECONDS
        self._weight_writer = WeightWriter(kube, shards, limiter, cache, settings)

    async def run(self, policy: Policy) -> None:
        """Restore the originals where the policy asks for it, then remove the finalizer; failures are tried again."""
        if FINALIZER not in policy.observed.finalizers:
            await asyncio.sleep(RETRY_SECONDS)
            return
        lease = self._shards.of(policy.key)
        try:
            if self._held(policy):
                text = "something else scales the targets: the replicas were left as they are"
                await self._events.post(policy.reference, "Warning", "NotRestored", text)
            elif policy.observed.parsed is None and (
                written := (policy.observed.latest.get("status") or {}).get("originals")
            ):
                text = f"its spec cannot be read: {policy.observed.invalid}; the originals: {json.dumps(written)}"
                await self._events.post(policy.reference, "Warning", "NotRestored", text)
            elif (
                policy.observed.parsed is not None
                and policy.spec.restore_on_delete
                and not await self._all_restored(policy)
            ):
                await asyncio.sleep(RETRY_SECONDS)
                return
            await write_finalizer(lease, policy, False)
        except (KubeError, LeaseLostError) as error:
            log.warning("%s/%s: not restored yet: %s", *policy.key, error)
            await asyncio.sleep(RETRY_SECONDS)
        except Exception:
            log.exception("%s/%s: restoring failed", *policy.key)
            await asyncio.sleep(RETRY_SECONDS)

    def _held(self, policy: Policy) -> bool:
        """Return whether another object scales the targets, now or (a foreign writer) at the last look."""
        known = policy.observed.parsed is not None and self._registry.conflict(policy, self._cache) is not None
        return known or is_true(policy.report.conditions, CONFLICTED)

    async def _all_restored(self, policy: Policy) -> bool:
        """Put back weights, replicas and sizes; return False while something waits, for a bounded time."""
        now, traffic = time.monotonic(), policy.traffic
        traffic.restoring_since = now if traffic.restoring_since is None else traffic.restoring_since
        patient = now - traffic.restoring_since < self._patience
        if policy.ownership.originals is not None and not traffic.restored:
            try:
                traffic.restored = await self._restored(policy, patient)
            except LeaseLostError:
                raise
            except Exception as error:
                traffic.restore_tries += 1
                if traffic.restore_tries < TRIES.get(getattr(error, "reason", ""), MOST_TRIES):
                    raise
                await self._give_up(policy, error)
                traffic.restored = True
            if not traffic.restored:
                return False
        sizing = policy.decision.sizing
        sized = await self._sizer.restore(policy, sizing.sizes if sizing is not None else {})
        return sized or not patient

    async def _restored(self, policy: Policy, patient: bool) -> bool:
        """Put weights and replicas back; return False where a pool waits for its traffic to go."""
        replicas, need = self._replicas(policy)
        lease = self._shards.of(policy.key)
        waits = need if patient else None
        done, left = await restore(self._kube, lease, self._weight_writer, self._cache, policy, replicas, waits)
        if done or not left:
            text = "; ".join(done) or "nothing had changed"
            await self._events.post(policy.reference, "Normal", "Restored", text)
        return not left

    async def _give_up(self, policy: Policy, error: Exception) -> None:
        """Post the originals that were not restored, with commands that do: a deletion must not hang for ever."""
        assert policy.ownership.originals is not None
        commands = [
            f"kubectl -n {key[0]} scale {for_kubectl(key[1])} --replicas={wanted}"
            for pool, key in policy.facts.targets
            if (wanted := getattr(policy.ownership.originals.replicas, pool)) is not None
        ]
        text = f"given up after {policy.traffic.restore_tries} attempts: {error}; the originals: {', '.join(commands)}"
        await self._events.post(policy.reference, "Warning", "NotRestored", text)

    def _replicas(self, policy: Policy) -> tuple[dict[str, int], Need]:
        """Return the originals, raised to the floor while the load is known, and the need of the traffic."""
        assert policy.ownership.originals is not None
        original = policy.ownership.originals.replicas
        wanted = {pool: n for pool in POOLS if (n := getattr(original, pool)) is not None}
        deployments = policy.deployments_in(self._cache)
        if policy.decision.state is None or any(deployment is None for deployment in deployments.values()):
            return wanted, Need.unknown()
        now = time.monotonic()
        ready = [d.ready if (d := deployments.get(pool)) else 0 for pool in POOLS]
        row = samples_row(
            policy.decision.readings,
            now - policy.decision.read_at,
            unix(now),
            (wanted.get("gpu", 0), wanted.get("cpu", 0)),
            (ready[0], ready[1]),
            {},
        )
        params = policy.params()
        samples = samples_of([row])
        decision, _, _ = decide(params, policy.decision.state, samples, kind="floor")
        # The originals may be too few for today's load: the floor of a sensing tick raises them, up to maxReplicas.
        floor = np.minimum(decision.trail[0, STAGES.index("floor")], params.max_replicas[0])
        raised = {pool: max(n, int(floor[POOLS.index(pool)])) for pool, n in wanted.items()}
        return raised, Need.of(params, policy.decision.state, samples)


async def write_finalizer(lease: Lease, policy: Policy, wanted: bool) -> None:
    """Compare-and-swap on the whole list: another controller's finalizer is never lost."""
    others = [name for name in policy.observed.finalizers if name != FINALIZER]
    after = [*others, FINALIZER] if wanted else others
    if after == policy.observed.finalizers:
        return
    path = policy_path(policy.key)
    patch = [
        {"op": "test", "path": "/metadata/finalizers", "value": policy.observed.finalizers or None},
        {"op": "add", "path": "/metadata/finalizers", "value": after},
    ]
    try:
        await lease.patch(path, patch)
    except KubeError as error:
        if error.status != 404:
            raise
    policy.observed.wrote_finalizers(after)


async def restore(
    kube: Kube,
    lease: Lease,
    writer: WeightWriter,
    cache: WatchCache,
    policy: Policy,
    replicas: dict[str, int],
    need: Need | None,
) -> tuple[list[str], bool]:
    """Set weights and `replicas` by pool; return the changes in words, and whether anything is left for later.

    The weights go back first. A pool keeps the replicas that the traffic needs that may still be sent to it, by `need`;
    with None nothing waits for that. Raises KubeError where it should be tried again.
    """
    done = []
    originals = policy.ownership.originals
    deployments = policy.deployments_in(cache)
    running = tuple(d.replicas if (d := deployments.get(pool)) else 0 for pool in POOLS)
    needed = (0, 0)
    weights = originals.weights if originals else None
    if (
        weights is not None
        and weights.gpu is not None
        and weights.cpu is not None
        and policy.facts.backends is not None
    ):
        written, _ = await writer.write(policy, (weights.gpu, weights.cpu))
        if written.changed:
            done.append(f"HTTPRoute {policy.facts.backends[0][1]}: weights {weights.gpu} and {weights.cpu}")
        if need is not None:
            needed = writer.fewest(policy, need, written.in_force, (running[0], running[1]))
    left, failed = False, None
    for pool, wanted in replicas.items():
        name = policy.deployments[POOLS.index(pool)]
        deployment = cache.deployments.get((policy.key[0], name or ""))
        least = max(wanted, needed[POOLS.index(pool)])
        left |= least > wanted
        if name is None or deployment is None or deployment.replicas == least:
            continue
        key = (policy.key[0], name)
        write = await write_replicas(kube, lease, cache, key, deployment.replicas, least)
        if write.applied or write.outcome == "Missing":
            done.append(write.message)
        else:
            # The other pool is put back all the same.
            failed = KubeError(0, write.message, f"Scale{write.outcome}")
    if failed is not None:
        raise failed
    if not left:
        log.info("%s/%s: restored: %s", *policy.key, "; ".join(done) or "nothing had changed")
    return done, left
