"""The page of the operator's settings, from the fields of `Settings` and the options of `rlscaler operator run`."""

from __future__ import annotations

import types
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from rlscaler_dev.generate.docs.markdown import code, table
from rlscaler_operator.cli.operator import run
from rlscaler_operator.settings import Settings

INTRODUCTION = """\
# Settings of the operator

Every setting comes from the command line of `rlscaler operator run` or from the environment; the command line wins.
Lists are separated by commas in the environment. The [Helm chart](chart.md) sets what its values say.

"""


def render() -> str:
    """The page as Markdown."""
    flags = {parameter.name: parameter.opts[-1] for parameter in run.params if parameter.name}
    rows = [_row(name, field, flags) for name, field in Settings.model_fields.items()]
    return INTRODUCTION + table(["setting", "type", "default", "meaning"], rows) + "\n"


def _row(name: str, field: FieldInfo, flags: Mapping[str, str]) -> tuple[str, str, str, str]:
    """Raises ValueError where a setting has no docstring."""
    if not field.description:
        raise ValueError(f"Settings.{name} has no docstring: say what it means and its unit")
    prefix = Settings.model_config["env_prefix"]
    names = [code(f"{prefix}{name.upper()}"), code(flags.get(name, ""))]
    return "<br>".join(filter(None, names)), _type(field.annotation), _default(field), field.description


def _type(annotation: Any) -> str:
    """In words: Python's own names mean nothing to who sets an environment variable."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(arguments[0])
    if origin in (Union, types.UnionType):
        return _type(next(argument for argument in arguments if argument is not type(None)))
    if origin is tuple:
        return "list"
    return {Path: "path", str: "text", int: "integer", float: "number", bool: "true or false"}[annotation]


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined or field.default in (None, ()):
        return ""
    if isinstance(field.default, bool):
        return code(str(field.default).lower())
    return code(f"{field.default:g}" if isinstance(field.default, float) else str(field.default))
