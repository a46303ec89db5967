"""RLScalingPolicy as a whole, and its parsing at the edge."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from rlscaler_core.api.base import Model, Rule
from rlscaler_core.api.exceptions import MISSING, InvalidPolicy, Problem
from rlscaler_core.api.spec import Spec
from rlscaler_core.api.status import Status

logger = logging.getLogger(__name__)


class Metadata(BaseModel):
    """The part of `metadata` that the operator reads; the rest is kept as it came."""

    model_config = ConfigDict(extra="allow", alias_generator=to_camel, populate_by_name=True)

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    annotations: dict[str, str] = Field(default_factory=dict)


class RLScalingPolicy(Model):
    """Scales the GPU and the CPU Deployment of one service together."""

    api_version: Literal["rlscaler.io/v1alpha1"] = "rlscaler.io/v1alpha1"
    """Group and version of this representation of the object."""
    kind: Literal["RLScalingPolicy"] = "RLScalingPolicy"
    """Kind of the object."""
    metadata: Metadata = Metadata()
    """Standard object's metadata."""
    spec: Spec
    """Scaling of the service's replicas."""
    status: Status = Status()
    """Observations and actions of the operator; written by the operator only."""

    @property
    def service(self) -> str:
        """Value of the label `service` on the inference metrics."""
        return self.spec.metrics.service or self.metadata.name


def parse(body: Mapping[str, Any]) -> RLScalingPolicy:
    """Parse the policy in `body`, an object as the API server returns it.

    Invalid fields of the status are dropped with a warning, since only the operator writes it.

    Raises:
        InvalidPolicy: with the path, the value and the remedy of every wrong field.
    """
    values: dict[str, Any] = plain(body)
    values["status"] = _readable_status(values)
    try:
        return RLScalingPolicy.model_validate(values, by_alias=True, by_name=False)
    except ValidationError as error:
        problems = [problem for detail in error.errors() for problem in _problems(detail)]
        raise InvalidPolicy(_name(values), problems) from error


def plain(value: Any) -> Any:
    """Turn views of the object (such as kopf's) into plain dicts and lists, which strict models insist on."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def _name(body: Mapping[str, Any]) -> str:
    metadata = body.get("metadata") or {}
    return f"{metadata.get('namespace', '?')}/{metadata.get('name', '?')}"


def _readable_status(body: dict[str, Any]) -> dict[str, Any]:
    status = body.get("status")
    status = status if isinstance(status, dict) else {}
    try:
        Status.model_validate(status, by_alias=True, by_name=False)
    except ValidationError as error:
        wrong = {str(detail["loc"][0]) for detail in error.errors()}
        logger.warning("RLScalingPolicy %s: status fields %s are not readable: dropped", _name(body), sorted(wrong))
        return {key: value for key, value in status.items() if key not in wrong}
    return status


def _problems(detail: ErrorDetails) -> list[Problem]:
    path = ".".join(str(part) for part in detail["loc"] if part != "[key]") or "object"
    context = detail.get("ctx", {})
    if detail["type"] == "rule":
        rules: list[Rule] = context["rules"]
        return [Problem(f"{path}.{rule.field}" if rule.field else path, MISSING, rule.message) for rule in rules]
    value = MISSING if detail["type"] == "missing" else detail["input"]
    return [Problem(path, value, _message(detail, context))]


def _message(detail: ErrorDetails, context: Mapping[str, Any]) -> str:
    kind, name = detail["type"], str(detail["loc"][-1]) if detail["loc"] else ""
    if kind == "missing":
        return "required: add it"
    if kind == "extra_forbidden":
        return f"unknown field: {_suggestion(detail['loc'], name)}"
    if kind == "literal_error":
        quoted = " (quote Off in YAML)" if detail["input"] is False else ""
        return f"use one of {context['expected']}{quoted}"
    return detail["msg"][:1].lower() + detail["msg"][1:]


def _suggestion(location: tuple[int | str, ...], name: str) -> str:
    model: Any = RLScalingPolicy
    for part in location[:-1]:
        model = _child(model, str(part))
    known = [field.alias or key for key, field in getattr(model, "model_fields", {}).items()]
    close = get_close_matches(name, known, 1)
    return f"did you mean {close[0]}?" if close else "remove it or correct its spelling"


def _child(model: Any, alias: str) -> Any:
    """Return the model of the field `alias`; None where there is none."""
    for key, field in getattr(model, "model_fields", {}).items():
        if alias in (key, field.alias):
            parts = (field.annotation, *getattr(field.annotation, "__args__", ()))
            return next((part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)), None)
    return model if alias.isdigit() else None
