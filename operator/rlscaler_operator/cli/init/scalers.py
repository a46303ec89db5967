"""Fields of a policy from an HPA or a ScaledObject, and a comment for each of theirs that is not taken over. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from rlscaler_operator.cli.init.draft import Draft
from rlscaler_operator.cluster.kube import Json
from rlscaler_operator.sensing.answer import shorten
from rlscaler_operator.sensing.fallbacks import REMEDY, measured

RULES = ("stabilizationWindowSeconds", "selectPolicy", "policies")
"""Fields of an HPA's behavior that a policy has too."""

SECRET = re.compile(r"(?i)header|password|token|secret|connection|key|auth|parameter|user")
"""Names in a trigger's metadata whose values are not written into a file."""

LOAD = "a policy scales by the load: set spec.metrics.queries.arrivalRate or load, or spec.metrics.preset"

TAKEN = ("serverAddress", "query", "threshold", "metricName", "metricType")
"""Metadata of a Prometheus trigger that a policy has, or needs not."""

TRIGGER = {
    "customHeaders": "set a tenant in spec.metrics.prometheus.auth.tenant from a Secret",
    "cortexOrgID": "set it in spec.metrics.prometheus.auth.tenant from a Secret",
    "authModes": "set spec.metrics.prometheus.auth from Secrets",
    "authenticationRef": "set spec.metrics.prometheus.auth from Secrets",
    "ignoreNullValues": "a query without a sample is unknown here, and holds the replicas",
    "unsafeSsl": "name the authority in spec.metrics.prometheus.auth.tls.ca",
    "activationThreshold": "spec.guards and minReplicas decide on the last replica",
}
"""Remedy by a field of a Prometheus trigger."""

OBJECT = {
    "idleReplicaCount": "minReplicas is the least",
    "fallback": "see spec.fallback",
    "cooldownPeriod": "the ceiling looks back over spec.guards.ceilingSeconds",
    "initialCooldownPeriod": "the ceiling looks back over spec.guards.ceilingSeconds",
    "pollingInterval": "see spec.intervalSeconds",
}
"""Remedy by a field of a ScaledObject."""


def take_over(draft: Draft, scaler: Json, pool: str) -> None:
    """Set the fields for which a policy has an equivalent, and note the scaler's other settings."""
    source, spec = f"{scaler['kind']} {scaler['metadata']['name']}", scaler["spec"]
    if scaler["kind"] == "ScaledObject":
        lost = [*_triggers(draft, source, spec, pool), *_rest(spec)]
        behavior = ((spec.get("advanced") or {}).get("horizontalPodAutoscalerConfig") or {}).get("behavior")
    else:
        lost = list(_metrics(draft, source, spec, pool))
        behavior = spec.get("behavior")
    lost += _behavior(draft, source, behavior or {})
    draft.lost += [f"{source}: {text}." for text in lost]


def _behavior(draft: Draft, source: str, behavior: Mapping[str, Any]) -> Iterator[str]:
    if not behavior:
        draft.leave(
            "spec.behavior",
            "None, as the scaler sets none. An HPA waits 300 s before it scales down; here the ceiling looks back over "
            "guards.ceilingSeconds instead.",
        )
    rules = {
        way: {name: value for name in RULES if (value := fields.get(name)) is not None}
        for way, fields in behavior.items()
        if fields and way in ("scaleUp", "scaleDown")
    }
    if rules := {way: fields for way, fields in rules.items() if fields}:
        draft.set("spec.behavior", rules, f"From {source}; see docs/behavior.md.")
    for way, fields in behavior.items():
        for name in sorted(set(fields or {}) - set(RULES)):
            yield f"behavior.{way}.{name}: {_shown(fields[name])}; the guards of spec.guards damp small changes"


def _metrics(draft: Draft, source: str, spec: Json, pool: str) -> Iterator[str]:
    """Set the target of the CPU utilization; yield the metrics that a policy does not have."""
    for i, metric in enumerate(spec.get("metrics") or ()):
        kind = str(metric.get("type", ""))
        body = metric.get(kind[:1].lower() + kind[1:]) or {}
        percent = (body.get("target") or {}).get("averageUtilization")
        title = f"metrics[{i}], {kind} {_shown(body)}"
        if kind not in ("Resource", "ContainerResource"):
            yield f"{title}: {LOAD}"
        elif body.get("name") != "cpu" or not percent:
            yield f"{title}: utilization is a guard here, and that of CPU alone; {LOAD}"
        elif text := _utilization(draft, source, pool, percent):
            yield f"{title}: {text}"
        elif body.get("container"):
            yield f"{title}: taken over for all containers of a pod together, and not for {body['container']} alone"


def _utilization(draft: Draft, source: str, pool: str, percent: Any) -> str:
    """Set the target of the utilization; return why it is not set, and otherwise an empty text."""
    path = f"spec.guards.targetUtilization.{pool}"
    if pool != "cpu":
        return f"its pods are the pool of GPUs, whose target is {path}, in % of GPU utilization"
    if path in draft.fields:
        return f"{path} is set already: the first one counts"
    try:
        value = int(float(percent))
    except (ValueError, TypeError, OverflowError):
        return f"{percent!r} is no number of percent"
    draft.set(path, min(value, 100), f"From {source}.")
    return "" if value <= 100 else f"{path} is at most 100, and {value} is asked for"


def _triggers(draft: Draft, source: str, spec: Json, pool: str) -> Iterator[str]:
    """Set address, query and threshold of KEDA's Prometheus trigger; yield all that a policy does not have."""
    taken = False
    for i, trigger in enumerate(spec.get("triggers") or ()):
        kind, metadata = trigger.get("type"), trigger.get("metadata") or {}
        title = f"triggers[{i}], {kind}"
        if kind == "cpu" and metadata.get("value") and trigger.get("metricType", "Utilization") == "Utilization":
            if text := _utilization(draft, source, pool, metadata["value"]):
                yield f"{title} {_shown(metadata)}: {text}"
        elif kind == "cron":
            yield f"{title} {_shown(metadata)}: the forecast learns times of day; minReplicas is the least at all times"
        elif kind != "prometheus" or taken:
            yield f"{title} {_shown(metadata)}: {LOAD}"
        else:
            taken = True
            yield from _prometheus(draft, source, title, trigger, pool)


def _prometheus(draft: Draft, source: str, title: str, trigger: Json, pool: str) -> Iterator[str]:
    metadata = trigger.get("metadata") or {}
    if address := metadata.get("serverAddress"):
        why = f"From {source}; the operator's administrator has to allow it. Left out: the operator's own."
        draft.set("spec.metrics.prometheus.url", address, why)
    query, threshold = metadata.get("query", ""), metadata.get("threshold", "")
    if "rate(" in query:
        part = measured(query)
        without = f" Left out of it: `{part.left_out}`, which would pass for no load in an outage; {REMEDY}."
        draft.set(
            "spec.metrics.queries.arrivalRate",
            part.promql.strip(),
            f"GUESS: the query of {source}. It has to be requests/s of the whole service as they arrive, "
            f"not as they are answered.{without if part.left_out else ''}",
        )
        if "spec.capacity.unit" not in draft.fields:
            draft.leave(
                f"spec.targets.{pool}.requestsPerSecond",
                f"{source} adds a replica for each {threshold}: what can a replica answer, in requests/s? "
                "Left out it is measured under load, and until then nothing is scaled down.",
            )
    else:
        yield f"{title}, query `{shorten(str(query))}`, threshold {threshold}: it is no rate of requests; {LOAD}"
    rest = {name: value for name, value in metadata.items() if name not in TAKEN}
    if trigger.get("authenticationRef"):
        rest["authenticationRef"] = trigger["authenticationRef"]
    for name in rest:
        remedy = f"; {TRIGGER[name]}" if name in TRIGGER else ""
        yield f"{title}, {_shown({name: rest[name]})}{remedy}"


def _rest(spec: Json) -> Iterator[str]:
    """Yield the fields of a ScaledObject that a policy does not have."""
    for name, remedy in OBJECT.items():
        if spec.get(name) is not None:
            yield f"{name}: {_shown(spec[name])}; {remedy}"
    advanced = spec.get("advanced") or {}
    for name in sorted(set(advanced) - {"horizontalPodAutoscalerConfig"}):
        yield f"advanced.{name}: {_shown(advanced[name])}"


def _shown(value: Any) -> str:
    """Return a value in one line, without possible secrets."""
    if isinstance(value, Mapping):
        value = {name: "…" if SECRET.search(name) and isinstance(text, str) else text for name, text in value.items()}
    return shorten(json.dumps(value, ensure_ascii=False))
