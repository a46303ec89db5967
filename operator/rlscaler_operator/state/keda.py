"""A HorizontalPodAutoscaler of KEDA that does not go by a policy whose recommendation its ScaledObject takes. Pure."""

from __future__ import annotations

from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.kinds import titled
from rlscaler_operator.state.ownership import Claim

REASON = "KEDAFallback"


def keda_fallback(claim: Claim, cache: WatchCache) -> str:
    """Return that KEDA scales a target by CPU in place of this policy, and the remedy; empty where it does not."""
    for target in claim.deployments:
        scalers = cache.autoscalers.all_of((claim.namespace, target))
        takes = {scaler.name for scaler in scalers if claim.name in scaler.policies}
        for scaler in scalers:
            if scaler.made_for in takes:
                return (
                    f"HPA {scaler.name} scales {titled(target)} by its CPU and not by this policy: KEDA made it while "
                    f"the external scaler did not answer. When the scaler answers, delete it, and KEDA makes it again: "
                    f"kubectl -n {claim.namespace} delete hpa {scaler.name}"
                )
    return ""
