"""Parts of KEDA's objects that are read: triggers of ScaledObjects, and the scalers that are made for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MADE_FOR = "scaledobject.keda.sh/name"
"""Label of a HorizontalPodAutoscaler that KEDA has made."""

METRIC = "rlscaler-"
"""Part of the name of the external scaler's metric (`keda/service.py`), which KEDA numbers."""

EXTERNAL = ("external", "external-push")


def policies_of(body: Mapping[str, Any]) -> frozenset[str]:
    """Return the policies whose recommendations a ScaledObject takes, by the metadata of its external triggers."""
    triggers = body.get("spec", {}).get("triggers") or ()
    named = (trigger.get("metadata") or {} for trigger in triggers if trigger.get("type") in EXTERNAL)
    return frozenset(str(metadata["policy"]) for metadata in named if metadata.get("policy") and metadata.get("pool"))


def lacks_metrics_of(body: Mapping[str, Any]) -> str:
    """Return the ScaledObject that a HorizontalPodAutoscaler was made for without a policy's metric; else empty.

    KEDA makes one while the external scaler does not answer, with no metric, for which Kubernetes puts CPU at 80 %.
    """
    made_for: str = (body["metadata"].get("labels") or {}).get(MADE_FOR, "")
    metrics = body.get("spec", {}).get("metrics") or ()
    named = (((metric.get("external") or {}).get("metric") or {}).get("name") or "" for metric in metrics)
    return "" if any(METRIC in name for name in named) else made_for
