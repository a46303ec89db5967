"""The reference pages of the kinds of objects, written from the schemas that the API server gets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rlscaler_core.api import conditions, status
from rlscaler_dev.generate.definition import BUDGET, NODE_SCORING, POLICY, Kind
from rlscaler_dev.generate.schema import Schema, default_text
from rlscaler_dev.markdown import table

WIDE = ("", " (with `-o wide`)")
"""Beside a column's name, by its priority."""

INTRODUCTION = """\
# RLScalingPolicy reference

`rlscaler.io/v1alpha1`, namespaced, short name `rlsp`. The shortest policy names the Deployments, what one
replica of each can answer, and the latency that counts; everything else has a default:

```yaml
apiVersion: rlscaler.io/v1alpha1
kind: RLScalingPolicy
metadata: {name: chat, namespace: workloads}
spec:
  targets:
    gpu: {deployment: chat-gpu, maxReplicas: 10, requestsPerSecond: 20}
    cpu: {deployment: chat-cpu, maxReplicas: 10, requestsPerSecond: 4}
  slo: {latencyMilliseconds: 1000}
```

The same text is on your cluster: `kubectl explain rlsp.spec.targets.gpu`.
"""

ANNOTATIONS = """\
## Annotations

| annotation | value | effect |
|---|---|---|
| `rlscaler.io/paused` | `"true"` | replicas stay as they are |
| `rlscaler.io/paused-replicas-gpu`, `rlscaler.io/paused-replicas-cpu` | a number | replicas are set to it and stay |
| `rlscaler.io/paused-scale-down` | `"true"` | replicas only rise |
| `rlscaler.io/traffic-weights` | written by the operator | `gpu=800,cpu=200`: shares of the traffic per mille |
"""


BUDGET_INTRODUCTION = """\
# RLScalingBudget reference

`rlscaler.io/v1alpha1`, cluster-scoped, short name `rlsb`. [Shared budgets](../budgets.md) says what it does.
The same text is on your cluster: `kubectl explain rlsb.spec.members`.
"""


NODE_SCORING_INTRODUCTION = """\
# NodeScoringPolicy reference

`rlscaler.io/v1alpha1`, cluster-scoped, short name `nsp`.
[Suggestions for kube-scheduler](../scheduler.md#for-pods-without-annotations) says what it does.
The same text is on your cluster: `kubectl explain nsp.spec`.
"""


REFUSED_BY = "By the API server on `kubectl apply`, each with the field that is wrong:\n\n"


def node_scoring() -> str:
    """Return the page of NodeScoringPolicies as Markdown."""
    return _page(NODE_SCORING, NODE_SCORING_INTRODUCTION)


def budget() -> str:
    """Return the page of budgets as Markdown."""
    return _page(BUDGET, BUDGET_INTRODUCTION)


def policy() -> str:
    """Return the page of policies as Markdown."""
    return _page(POLICY, INTRODUCTION, REFUSED_BY, ANNOTATIONS, _conditions())


def _page(kind: Kind, introduction: str, refused: str = "", annotations: str = "", conditions: str = "") -> str:
    schema = kind.schema()["properties"]
    status = "## Status\n\n" + _table(_fields(schema["status"], ""), defaults=False) if "status" in schema else ""
    columns = ((name + WIDE[wide], description) for name, _, _, description, wide in kind.columns)
    parts = [
        introduction,
        "## Spec\n\n" + _table(_fields(schema["spec"], "")),
        "## What is refused\n\n"
        + refused
        + "\n".join(f"- `{path}`: {message}" for path, message in _rules(schema["spec"], "spec")),
        annotations,
        status,
        conditions,
        f"## Columns of `kubectl get {kind.short}`\n\n" + table(("column", "meaning"), columns),
    ]
    return "\n\n".join(part.rstrip() for part in parts if part) + "\n"


def _fields(schema: Schema, path: str, seen: dict[str, str] | None = None) -> Iterator[tuple[str, Schema, bool]]:
    """Path, schema and whether it is required, of every field below, depth first; a shape is listed once."""
    seen = {} if seen is None else seen
    for name, child in schema.get("properties", {}).items():
        below = f"{path}.{name}" if path else name
        shape = json.dumps(child.get("properties"), sort_keys=True)
        first = seen.setdefault(shape, below)
        again = f" Fields as in `{first}`." if "properties" in child and first != below else ""
        yield below, {**child, "description": child["description"] + again}, name in schema.get("required", [])
        if not again:
            yield from _fields(child, below, seen)
        if "items" in child:
            yield from _fields(child["items"], f"{below}[]", seen)


def _table(rows: Iterator[tuple[str, Schema, bool]], defaults: bool = True) -> str:
    lines = []
    for path, schema, required in rows:
        cells = [f"`{path}`", _type(schema), *([_default(schema, required)] if defaults else [])]
        lines.append([*cells, schema["description"].removesuffix(default_text(schema))])
    return table(("field", "type", *(("default",) if defaults else ()), "meaning"), lines)


def _type(schema: Schema) -> str:
    if "enum" in schema:
        return " | ".join(f"`{value}`" for value in schema["enum"])
    if schema["type"] == "array":
        return f"list of {schema['items']['type']}, at most {schema['maxItems']}"
    if "additionalProperties" in schema:
        return f"map to {schema['additionalProperties']['type']}"
    kind = "time" if schema.get("format") == "date-time" else str(schema["type"])
    return " ".join(filter(None, [kind, _range(schema)]))


def _range(schema: Schema) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if low is None and high is None:
        return ""
    if high is None:
        return f"{'above' if above else 'from'} {_number(low)}"
    return f"{'above ' if above else ''}{_number(low)} to {'below ' if below else ''}{_number(high)}"


def _number(value: Any) -> str:
    return f"{value:g}" if abs(value) < 1_000_000 else f"{value:,.0f}"


def _default(schema: Schema, required: bool) -> str:
    if required:
        return "**required**"
    value = schema.get("default")
    if value is None or isinstance(value, dict):
        return ""
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _rules(schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    for rule in schema.get("x-kubernetes-validations", []):
        yield path + rule.get("fieldPath", ""), rule["message"]
    for name, child in schema.get("properties", {}).items():
        yield from _rules(child, f"{path}.{name}")


def _conditions() -> str:
    rows = ((f"`{name}`", meaning) for name, meaning in conditions.MEANING.items())
    note = f"`history` keeps the last {status.HISTORY} decisions; all of them are in the audit log."
    return "## Conditions\n\n" + table(("type", "true means"), rows) + "\n\n" + note
