"""Pages of the documentation that are written from the code, and the tables in them."""

from __future__ import annotations

import html
import inspect
import re
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import click
import yaml
from prometheus_client.metrics import MetricWrapperBase
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from rlscaler_core.decision.guards import GUARDS
from rlscaler_dev.markdown import table
from rlscaler_live.cli import EXIT_CODES, main
from rlscaler_operator.cli.operator import run
from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.reporting.series import LABELS, PerPolicy
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.status import flag_names


def code(value: str) -> str:
    """The value as inline code; empty where there is none.

    A backslash before a pipe is shown by some renderers and needed by others, so such a value is written in HTML.
    """
    if "|" in value:
        return f"<code>{html.escape(value).replace('|', '&#124;')}</code>"
    return f"`{value}`" if value else ""


def plain(text: str) -> str:
    """Text in which only backticks mean something, as Markdown."""
    parts = text.split("`")
    parts[::2] = [part.replace("*", "\\*").replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts)


ALERTS_INTRODUCTION = """\
# Alerts

The chart installs these rules as a PrometheusRule where the cluster has that kind
([`helm/rlscaler/rules/rlscaler.yaml`](../operations/monitoring.md)). Each has a runbook.

"""


def alerts(rules: Path) -> str:
    """The page of the alerts, from the rule file that the chart ships.

    Raises OSError or yaml.YAMLError where it cannot be read.
    """
    rows = [
        (
            f"[{rule['alert']}](../operations/runbooks/{page_name(rule['alert'])})",
            rule.get("labels", {}).get("severity", ""),
            rule.get("for", ""),
            plain(rule["annotations"]["summary"]),
        )
        for rule in alerting_rules(rules)
    ]
    recorded = [(code(rule["record"]), code(rule["expr"])) for rule in _rules(rules) if "record" in rule]
    page = ALERTS_INTRODUCTION + table(["alert", "severity", "for", "fires when"], rows) + "\n"
    if recorded:
        page += "\n## Recorded series\n\n" + table(["name", "expression"], recorded) + "\n"
    return page


def alerting_rules(rules: Path) -> list[dict[str, Any]]:
    """The alerting rules of the file."""
    return [rule for rule in _rules(rules) if "alert" in rule]


def page_name(alert: str) -> str:
    """The runbook's file: the alert's name in kebab case, with RLScaler, SLO and the like as one word."""
    words = re.findall(r"RLScaler|[A-Z]+(?![a-z])|[A-Z][a-z]*|[a-z]+|\d+", alert)
    return "-".join(words).lower() + ".md"


def _rules(path: Path) -> Iterator[dict[str, Any]]:
    for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]:
        yield from group["rules"]


COMMANDS_INTRODUCTION = """\
# Commands

`rlscaler COMMAND --help` prints the same. `RLSCALER_DEBUG=1` in the environment logs everything.

| exit code | meaning |
|---|---|
"""


def commands() -> str:
    """The page of all commands, from the same texts as `--help`."""
    codes = "".join(f"| {code} | {meaning} |\n" for code, meaning in EXIT_CODES.items())
    return (
        COMMANDS_INTRODUCTION
        + codes
        + "".join(f"\n{part}\n" for part in _command(click.Context(main, info_name="rlscaler"), 1))
    )


def _command(ctx: click.Context, depth: int) -> Iterator[str]:
    """The command and its subcommands, depth first."""
    command = ctx.command
    children = _children(ctx)
    if depth > 1:
        yield f"{'#' * min(depth, 4)} {ctx.command_path}"
        yield _text(command.help or "")
        if not children or _options(ctx):
            yield f"```text\n{' '.join([ctx.command_path, *command.collect_usage_pieces(ctx)])}\n```"
    if options := _options(ctx):
        yield table(["option", "meaning"], options)
    if children:
        rows = [(_link(child), plain(child.command.get_short_help_str(200))) for child in children]
        yield table(["command", "does"], rows)
    for child in children:
        yield from _command(child, depth + 1)


def _children(ctx: click.Context) -> list[click.Context]:
    if not isinstance(ctx.command, click.Group):
        return []
    commands = [(name, ctx.command.get_command(ctx, name)) for name in ctx.command.list_commands(ctx)]
    return [
        click.Context(command, info_name=name, parent=ctx)
        for name, command in commands
        if command and not command.hidden
    ]


def _options(ctx: click.Context) -> list[tuple[str, str]]:
    """Names and meaning as `--help` has them, with the home folder as ~."""
    help_option, home = ctx.command.get_help_option(ctx), str(Path.home())
    records = (option.get_help_record(ctx) for option in ctx.command.get_params(ctx) if option is not help_option)
    return [(code(names), plain(meaning.replace(home, "~"))) for names, meaning in filter(None, records) if meaning]


def _text(help: str) -> str:
    """Return click's help text as Markdown: paragraphs, and preformatted ones as blocks."""
    paragraphs = inspect.cleandoc(help).split("\f")[0].strip().split("\n\n")
    return "\n\n".join(
        "```text\n" + part.removeprefix("\b\n") + "\n```" if part.startswith("\b\n") else plain(part)
        for part in paragraphs
    )


def _link(ctx: click.Context) -> str:
    return f"[`{ctx.command_path}`](#{ctx.command_path.replace(' ', '-')})"


METRICS_INTRODUCTION = """\
# Metrics of the operator

Served on `/metrics` of [`--metrics-port`](settings.md). `namespace` and `policy` name the RLScalingPolicy; its series
go when it is deleted. A histogram has the series `_bucket`, `_sum` and `_count`. What a service has to export is on
[another page](../metrics.md), what to alert on among [the alerts](alerts.md).

"""

SUFFIX = {"counter": "_total"}


def metrics() -> str:
    """The page of the operator's own metrics, from the metrics themselves."""
    rows = [
        _metric_row(metric) for metric in vars(Metrics()).values() if isinstance(metric, MetricWrapperBase | PerPolicy)
    ]
    return (
        METRICS_INTRODUCTION
        + table(["name", "type", "labels", "meaning"], sorted(rows, key=lambda row: row[0].strip("`")))
        + "\n"
    )


def _metric_row(metric: MetricWrapperBase | PerPolicy) -> tuple[str, str, str, str]:
    if isinstance(metric, PerPolicy):
        family, names = metric.family(), (*LABELS, *metric.labels)
    else:
        (family,), names = metric.describe(), metric._labelnames
    labels = ", ".join(map(code, names))
    return code(family.name + SUFFIX.get(family.type, "")), family.type, labels, plain(family.documentation)


SETTINGS_INTRODUCTION = """\
# Settings of the operator

Every setting comes from the command line of `rlscaler operator run` or from the environment; the command line wins.
Lists are separated by commas in the environment. The [Helm chart](chart.md) sets what its values say.

"""


def settings() -> str:
    """The page of the operator's settings, from the fields of `Settings` and the options of `rlscaler operator run`."""
    flags = {parameter.name: parameter.opts[-1] for parameter in run.params if parameter.name}
    rows = [_setting_row(name, field, flags) for name, field in Settings.model_fields.items()]
    return SETTINGS_INTRODUCTION + table(["setting", "type", "default", "meaning"], rows) + "\n"


def _setting_row(name: str, field: FieldInfo, flags: Mapping[str, str]) -> tuple[str, str, str, str]:
    """Raises ValueError where a setting has no docstring."""
    if not field.description:
        raise ValueError(f"Settings.{name} has no docstring: write its meaning and its unit")
    prefix = Settings.model_config["env_prefix"]
    names = [code(f"{prefix}{name.upper()}"), code(flags.get(name, ""))]
    return "<br>".join(filter(None, names)), _type(field.annotation), _default(field), field.description


def _type(annotation: Any) -> str:
    """The type in words: Python's own names mean nothing to a reader who sets an environment variable."""
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


GUARDS_INTRODUCTION = """\
# Guards

What stands between the replicas that the actor proposes and those that are written. The guards run in this order,
each on what the one before it left. `status.lastDecision.guards` has the replicas after each one, and
`status.lastDecision.reasons` the reasons that are named here; [`rlscaler explain`](../decision-log.md) says what would
have come out without a guard. [The loop](../concepts.md) says where the proposal comes from, and
[behavior](../behavior.md) what its windows and rates are.

"""


def guards() -> str:
    """Markdown of the guards' page, from the table that the shield runs."""
    rows = [
        (code(guard.name), plain(guard.meaning), ", ".join(map(code, flag_names(guard.changes | guard.holds))))
        for guard in GUARDS
    ]
    return GUARDS_INTRODUCTION + table(["guard", "what it does", "reason"], rows) + "\n"
