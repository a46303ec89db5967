"""Base of every model of the API: camelCase names, strict types, rules that CEL and Python both check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, PydanticCustomError

GROUP = "rlscaler.io"
VERSION = "v1alpha1"
PLURAL = "rlscalingpolicies"
KIND = "RLScalingPolicy"


@dataclass(frozen=True, slots=True)
class Rule:
    """One requirement on a model, checked by the API server (`cel`) and by `parse` (`holds`) with one message."""

    cel: str
    """CEL over `self`, the JSON object of the model."""
    holds: Callable[[Any], bool]
    """The same requirement over the parsed model."""
    message: str
    """Text of the refusal; it names the field and the remedy."""
    field: str
    """Path of the offending field below the model, such as `gpu.minReplicas`; empty = the model itself."""

    def validation(self) -> dict[str, str]:
        """The entry of `x-kubernetes-validations`."""
        path = {"fieldPath": "." + self.field} if self.field else {}
        return {"rule": self.cel, "message": self.message, **path}


class Model(BaseModel):
    """Base of the spec's models: an unknown field is an error, and no type is coerced."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )

    rules: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="after")
    def _obey_rules(self) -> Self:
        broken = [rule for rule in self.rules if not rule.holds(self)]
        if broken:
            raise PydanticCustomError(
                "rule", "{text}", {"text": "; ".join(rule.message for rule in broken), "rules": broken}
            )
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler.resolve_ref_schema(handler(core_schema))
        if cls.rules:
            schema["x-kubernetes-validations"] = [rule.validation() for rule in cls.rules]
        return schema

    def to_dict(self) -> dict[str, Any]:
        """The JSON object for the API server: camelCase names, absent where unknown."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class Reported(Model):
    """Base of the status' models: fields written by a newer operator are passed over."""

    model_config = ConfigDict(extra="ignore")


def _utc(value: datetime) -> datetime:
    return value.astimezone(UTC)


def format_time(value: datetime) -> str:
    """RFC 3339 in UTC as Kubernetes prints it: whole seconds without a fraction, else microseconds."""
    value = value.astimezone(UTC)
    return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if value.microsecond else "%Y-%m-%dT%H:%M:%SZ")


Text = Annotated[str, Field(max_length=32_768)]
"""A message for people."""

Count = Annotated[int, Field(json_schema_extra={"format": "int32"})]

Word = Annotated[str, Field(max_length=316)]
"""A reason or a name."""

LabelName = Annotated[str, Field(max_length=316)]
"""Name of a label, with its prefix."""

Label = Annotated[str, Field(max_length=63)]
"""Value of a label."""

Time = Annotated[AwareDatetime, Field(strict=False), AfterValidator(_utc), PlainSerializer(format_time, str)]
"""A point in time, RFC 3339."""

ObjectName = Annotated[
    str,
    Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"),
]
"""Name of a Kubernetes object: a DNS subdomain (RFC 1123)."""

ServiceName = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$")]
"""Name of a Service: a DNS label (RFC 1035)."""

Replicas = Annotated[int, Field(ge=0, le=10_000, json_schema_extra={"format": "int32"})]
"""A number of replicas."""
