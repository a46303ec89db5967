"""Two operators that split the policies into two shards."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.exceptions import ApiError
from tests.harness.operators import Operator
from tests.harness.waiting import until

SHARDS = 2
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


@dataclass
class Split:
    """Operators that `run` starts, each with one of the shards once they are settled."""

    kube: KubeClient
    lease: str
    """Name of their Lease; those of the shards have their number behind it."""
    run: Callable[[], Operator]
    operators: list[Operator] = field(default_factory=list)

    def holder(self, shard: int) -> Operator | None:
        """The operator in the Lease of a shard; None where none of ours that lives is."""
        with suppress(ApiError, KeyError):
            identity = self.kube.get(f"{LEASES}/{self.lease}-{shard}")["spec"]["holderIdentity"]
            living = [one for one in self.operators if one.process.poll() is None]
            return next((one for one in living if f"-{one.process.pid}-" in identity), None)
        return None

    def settle(self, seconds: float = 90.0) -> tuple[Operator, Operator]:
        """Start what is missing of two operators and wait until each has a shard; gives them in the order of these."""
        while sum(one.process.poll() is None for one in self.operators) < SHARDS:
            self.operators.append(self.run())

        def spread() -> tuple[Operator, Operator] | None:
            first, second = self.holder(0), self.holder(1)
            return (first, second) if first and second and first is not second else None

        pair: tuple[Operator, Operator] = until(spread, seconds)
        return pair
