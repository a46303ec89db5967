"""A Grafana dashboard's JSON, as far as its queries and its looks go."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlscaler_dev.exceptions import DevClusterError

ROW = "row"
_LABEL_VALUES = re.compile(r"label_values\((?P<selector>.+),\s*(?P<label>\w+)\)")
_VARIABLE = re.compile(r"\$(\w+)|\$\{(\w+)\}")


@dataclass(frozen=True)
class Target:
    """One query of a panel."""

    expr: str
    legend: str
    """Name of a series, with `{{label}}` in place of its labels."""
    instant: bool
    """The newest value only."""

    def name(self, labels: Mapping[str, str]) -> str:
        """Return the name of a series in the legend."""
        return re.sub(r"{{\s*(\w+)\s*}}", lambda match: labels.get(match[1], ""), self.legend).strip()


@dataclass(frozen=True)
class Panel:
    """One panel, or the heading of a row of them."""

    title: str
    kind: str
    """`row`, `timeseries`, `stat`, `table` or `state-timeline`."""
    box: tuple[int, int, int, int]
    """x, y, width and height in a grid of 24 columns."""
    unit: str
    stacked: bool
    lowest: float | None
    highest: float | None
    columns: tuple[str, ...]
    """Columns of a table, in their order."""
    targets: tuple[Target, ...]
    steps: tuple[tuple[float, str], ...] = ()
    """Thresholds of a figure: from which value on it has which colour, lowest first."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Words that stand for values."""
    limits: str = ""
    """Pattern of the series that are limits, drawn as broken lines."""

    def colour(self, value: float) -> str:
        """The colour of the last threshold that a value reaches; empty = the panel has none."""
        reached = [colour for at, colour in self.steps if value >= at]
        return reached[-1] if reached else ""


@dataclass(frozen=True)
class Variable:
    """A variable whose values are those of a label."""

    name: str
    selector: str
    label: str
    every: bool
    """All values are chosen unless one is given."""


@dataclass(frozen=True)
class Dashboard:
    """The dashboard of one file."""

    title: str
    variables: tuple[Variable, ...]
    panels: tuple[Panel, ...]
    marks: tuple[Target, ...] = ()
    """Annotations: moments at which something happened."""


def load(path: Path) -> Dashboard:
    """Raises DevClusterError where the file is no dashboard that can be read here."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        variables = tuple(
            _variable(variable) for variable in content["templating"]["list"] if variable["type"] == "query"
        )
        annotations = content.get("annotations", {}).get("list", ())
        marks = tuple(
            Target(annotation["expr"], annotation["titleFormat"], False)
            for annotation in annotations
            if annotation.get("expr")
        )
        return Dashboard(content["title"], variables, tuple(_panel(panel) for panel in content["panels"]), marks)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DevClusterError(f"{path}: not a dashboard: {error!r}; export it from Grafana as JSON") from error


def expand(text: str, values: Mapping[str, str]) -> str:
    """The text with its variables replaced. Raises DevClusterError where one has no value."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in values:
            raise DevClusterError(f"the variable {name} has no value: give one with --var {name}=VALUE")
        return values[name]

    return _VARIABLE.sub(value, text)


def _variable(content: dict[str, Any]) -> Variable:
    query = content["query"]["query"]
    match = _LABEL_VALUES.fullmatch(query)
    if match is None:
        raise ValueError(f"variable {content['name']}: {query!r} is not label_values(SELECTOR, LABEL)")
    return Variable(content["name"], match["selector"], match["label"], content.get("includeAll", False))


def _panel(content: dict[str, Any]) -> Panel:
    grid = content["gridPos"]
    defaults = content.get("fieldConfig", {}).get("defaults", {})
    custom = defaults.get("custom", {})
    organized = [
        transformation["options"]
        for transformation in content.get("transformations", ())
        if transformation["id"] == "organize"
    ]
    steps = defaults.get("thresholds", {}).get("steps", ())
    broken = [
        override["matcher"]["options"]
        for override in content.get("fieldConfig", {}).get("overrides", ())
        if any(property_["id"] == "custom.lineStyle" for property_ in override["properties"])
    ]
    order = {name: at for options in organized for name, at in options["indexByName"].items()}
    return Panel(
        content["title"],
        content["type"],
        (grid["x"], grid["y"], grid["w"], grid["h"]),
        defaults.get("unit", "short"),
        custom.get("stacking", {}).get("mode") == "normal",
        defaults.get("min"),
        defaults.get("max"),
        tuple(sorted(order, key=order.__getitem__)),
        tuple(
            Target(t["expr"], t.get("legendFormat", ""), t.get("instant", False)) for t in content.get("targets", ())
        ),
        tuple((-math.inf if step["value"] is None else float(step["value"]), step["color"]) for step in steps),
        {
            value: shown["text"]
            for mapping in defaults.get("mappings", ())
            if mapping["type"] == "value"
            for value, shown in mapping["options"].items()
        },
        "|".join(broken),
    )
