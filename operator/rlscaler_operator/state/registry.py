"""The registry of all policies that the operator keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rlscaler_core.api import Status
from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.sensing.subject import Subject
from rlscaler_operator.state.decision import DecisionState, PromotionState
from rlscaler_operator.state.observed import ObservedObject
from rlscaler_operator.state.ownership import NOT_ACTING, Claim, Conflict, Ownership, find_conflict
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.report import Outbox, ReportState, Revisions


class Registry:
    """All policies by (namespace, name)."""

    def __init__(
        self, load_seconds: Callable[[Subject], float] = lambda subject: 0.0, usage_seconds: float = 0.0
    ) -> None:
        """`load_seconds` returns the seconds over which the load of a service is measured; `usage_seconds` are those
        of utilization and latency."""
        self._load_seconds, self._usage_seconds = load_seconds, usage_seconds
        self._policies: dict[Key, Policy] = {}
        self._targets: dict[Key, list[Policy]] = {}
        """The policies by the Deployments that they name."""
        self.revision = 0
        """Grows with every policy that is new, gone, or has another spec."""

    def __iter__(self) -> Iterator[Policy]:
        return iter(list(self._policies.values()))

    def __len__(self) -> int:
        return len(self._policies)

    def get(self, key: Key) -> Policy | None:
        return self._policies.get(key)

    def drop(self, key: Key, uid: str = "") -> Policy | None:
        """Forget a policy; with `uid` only that very object."""
        policy = self._policies.get(key)
        if policy is None or (uid and policy.uid != uid):
            return None
        self.revision += 1
        self._unlist(policy)
        return self._policies.pop(key)

    def put(self, body: Mapping[str, Any]) -> Policy:
        """Take in a policy; an edit keeps its state, a new object of the same name starts anew."""
        metadata = body["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        policy = self._policies.get(key)
        if policy is None or policy.uid != metadata.get("uid", ""):
            return self._adopt(key, body)
        policy.outbox.watched(policy.observed.latest.get("status") or {}, body.get("status") or {})
        if policy.observed.generation == metadata.get("generation", 0):
            policy.observed.read(body)
            return policy
        self.revision += 1
        deployments = policy.observed.facts and policy.deployments
        self._unlist(policy)
        policy.observed.read(body)
        self._list(policy)
        if deployments and policy.observed.facts and deployments != policy.deployments:
            policy.ownership.originals = None
        return policy

    def adopt(self, policy: Policy) -> Policy:
        """Return the policy that starts anew from the object as last seen, in place of `policy`."""
        return self._adopt(policy.key, policy.observed.latest)

    def _adopt(self, key: Key, body: Mapping[str, Any]) -> Policy:
        """Return a policy that begins with the status of a former process, in place of the policy of its name."""
        self.revision += 1
        former = self._policies.get(key)
        observed = ObservedObject()
        observed.read(body)
        status = observed.parsed.status if observed.parsed else Status()
        policy = self._policies[key] = Policy(
            key=key,
            uid=body["metadata"].get("uid", ""),
            observed=observed,
            load_seconds=self._load_seconds,
            usage_seconds=self._usage_seconds,
            decision=DecisionState(learned=status.learned),
            promotion=PromotionState(status.promotion),
            ownership=Ownership(status.originals),
            report=ReportState(list(status.conditions), list(status.history), status.last_decision, status.observation),
            # What is never reported is never taken away by a report.
            outbox=Outbox(status.model_copy(update={"new_pods": None}).to_dict()),
        )
        if former is not None:
            self._unlist(former)
        self._list(policy)
        return policy

    def _list(self, policy: Policy) -> None:
        for _, key in policy.facts.targets if policy.observed.facts else ():
            self._targets.setdefault(key, []).append(policy)

    def _unlist(self, policy: Policy) -> None:
        for _, key in policy.facts.targets if policy.observed.facts else ():
            others = [other for other in self._targets.pop(key) if other is not policy]
            if others:
                self._targets[key] = others

    def of_deployment(self, key: Key) -> list[Policy]:
        """Return the policies that name a Deployment."""
        return self._targets.get(key, [])

    def claims(self, deployments: Iterable[Key]) -> dict[Key, list[Claim]]:
        """Return the claims of the policies that act on these Deployments."""
        return {key: [policy.facts.claim for policy in self.of_deployment(key) if policy.acts] for key in deployments}

    def conflict(self, policy: Policy, cache: WatchCache) -> Conflict | None:
        """Return the object that scales one of a policy's Deployments beside it; None where there is none."""
        claim = policy.facts.claim
        if policy.spec.mode != "Auto":
            claim = claim._replace(created=NOT_ACTING)
        return find_conflict(claim, self.claims(key for _, key in policy.facts.targets), cache)

    def waiting(self, policy: Policy) -> str:
        """Return the newer policies that wait for this one, which acts on a target of theirs; empty where none does."""
        own = policy.facts.claim
        return ", ".join(sorted({rival.name for rival in self._rivals(policy) if policy.acts and rival > own}))

    def _rivals(self, policy: Policy) -> list[Claim]:
        """Return the claims of the other policies that act on its Deployments."""
        others = [other for _, key in policy.facts.targets for other in self.of_deployment(key) if other is not policy]
        return [other.facts.claim for other in others if other.acts]

    def revisions(self, policy: Policy, cache: WatchCache) -> Revisions:
        """Return the versions of a report's inputs: the last report is stale once these differ."""
        keys, backends = [key for _, key in policy.facts.targets], policy.facts.backends
        route = cache.routes.get(backends[0]) if backends else None
        return Revisions(
            observed=policy.observed.revision,
            decision=policy.decision.revision,
            promotion=policy.promotion.revision,
            rivals=self._rivals(policy),
            targets=tuple(cache.revisions(key) for key in keys),
            route=None if route is None else route["metadata"]["resourceVersion"],
        )
