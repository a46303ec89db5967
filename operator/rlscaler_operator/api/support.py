"""Which fields are accepted but do not act in this version."""

from __future__ import annotations

from rlscaler_operator.api.base import Model
from rlscaler_operator.api.spec import Spec

WITHOUT_EFFECT: dict[str, str] = {
    "slo.objective": "the bundled actors were trained for 99 %: remove it",
    "slo.percentile": "the 95th percentile is displayed: remove it",
    "metrics.queries": "the built-in queries are used: remove it",
    "promotion.require": "no evidence is collected yet: set None and switch mode from Shadow to Auto yourself",
    "promotion.minDays": "no evidence is collected yet: remove it",
}
"""Field -> what happens instead and what to do."""


def unsupported(spec: Spec) -> list[tuple[str, str]]:
    """Path (from `spec.`) and message of every field that is set to something that does not act in this version."""
    return [
        (f"spec.{path}", f"has no effect in this version: {message}")
        for path, message in WITHOUT_EFFECT.items()
        if _is_set(spec, path)
    ]


def _is_set(spec: Spec, path: str) -> bool:
    """Whether the field differs from its default."""
    model: Model = spec
    *parents, last = path.split(".")
    for part in parents:
        model = getattr(model, _attribute(model, part))
    name = _attribute(model, last)
    return bool(getattr(model, name) != type(model).model_fields[name].get_default(call_default_factory=True))


def _attribute(model: Model, alias: str) -> str:
    return next(name for name, field in type(model).model_fields.items() if field.alias == alias)
