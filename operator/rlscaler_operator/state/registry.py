"""The registry of all policies that the operator keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rlscaler_core.api import InvalidPolicy, RLScalingPolicy, Status, parse
from rlscaler_operator.cluster.cache import Key
from rlscaler_operator.state.ownership import Claim
from rlscaler_operator.state.policy import Policy


class Registry:
    """All policies by (namespace, name)."""

    def __init__(self) -> None:
        self._policies: dict[Key, Policy] = {}
        self._targets: dict[Key, list[Policy]] = {}

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
        self._unlist(policy)
        return self._policies.pop(key)

    def put(self, body: Mapping[str, Any]) -> Policy:
        """Take in a policy; an edit keeps what was remembered, a new object of the same name starts anew."""
        metadata = body["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        old, deleting = self._policies.get(key), "deletionTimestamp" in metadata
        if old is None or old.uid != metadata.get("uid", ""):
            if old is not None:
                self._unlist(old)
            old = self._policies[key] = _adopt(key, body)
            self._list(old)
        elif old.generation != metadata.get("generation", 0):
            self._unlist(old)
            old.generation = metadata.get("generation", 0)
            before = old.parsed and old.deployments
            old.parsed, old.invalid = _parse(body)
            self._list(old)
            if before and old.parsed and before != old.deployments:
                old.originals = None
        old.latest = _without_managed_fields(body)
        old.annotations = dict(metadata.get("annotations") or {})
        old.finalizers = list(metadata.get("finalizers") or ())
        old.deleting = deleting
        return old

    def _list(self, policy: Policy) -> None:
        for _, key in policy.facts.targets if policy.parsed else ():
            self._targets.setdefault(key, []).append(policy)

    def _unlist(self, policy: Policy) -> None:
        for _, key in policy.facts.targets if policy.parsed else ():
            others = [other for other in self._targets.pop(key) if other is not policy]
            if others:
                self._targets[key] = others

    def adopt_again(self, which: Callable[[Key], bool] = lambda _: True) -> int:
        """Start every policy of `which` anew from its object as last seen; their number."""
        chosen = [policy for policy in self._policies.values() if which(policy.key)]
        for policy in chosen:
            self.drop(policy.key)
            self.put(policy.latest)
        return len(chosen)

    def of_deployment(self, key: Key) -> list[Policy]:
        """The policies that name a Deployment."""
        return self._targets.get(key, [])

    def rivals(self, policy: Policy) -> list[Claim]:
        """The other policies that act on its Deployments."""
        others = [other for _, key in policy.facts.targets for other in self.of_deployment(key) if other is not policy]
        return [other.facts.claim for other in others if other.acts]

    def claims(self, deployments: Iterable[Key]) -> dict[Key, list[Claim]]:
        """Who acts on these Deployments."""
        return {key: [policy.facts.claim for policy in self.of_deployment(key) if policy.acts] for key in deployments}


def _adopt(key: Key, body: Mapping[str, Any]) -> Policy:
    metadata = body["metadata"]
    parsed, invalid = _parse(body)
    status = parsed.status if parsed else Status()
    return Policy(
        key=key,
        uid=metadata.get("uid", ""),
        created=metadata.get("creationTimestamp", ""),
        generation=metadata.get("generation", 0),
        annotations={},
        finalizers=[],
        deleting=False,
        parsed=parsed,
        invalid=invalid,
        status=status.to_dict(),
        conditions=list(status.conditions),
        history=list(status.history),
        last=status.last_decision,
        observation=status.observation,
        learned=status.learned,
        promotion=status.promotion,
        originals=status.originals,
        latest=body,
    )


def _without_managed_fields(body: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = {name: value for name, value in body["metadata"].items() if name != "managedFields"}
    return {name: body[name] for name in body if name != "metadata"} | {"metadata": metadata}


def _parse(body: Mapping[str, Any]) -> tuple[RLScalingPolicy | None, str]:
    try:
        return parse(body), ""
    except InvalidPolicy as error:
        return None, str(error)
