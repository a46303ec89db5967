"""Model card of a network: losses on whole days first, then its scores, its origin and its envelope."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlscaler_core.decision.manifest import Manifest
from rlscaler_core.decision.units import LOADS
from rlscaler_rl.evaluation.days.table import DayTable, difference
from rlscaler_rl.results.statistics import Verdict
from rlscaler_rl.results.table import Table

RULE = "rule"

ALLOWED_PERCENT = 3.0
"""J above a rival's on one load, in percent, from which on the card names the load as lost."""

LAYMAN = (
    "This is a small neural network that looks at ten numbers about a service, such as how many requests arrive, how "
    "long they take and how busy its replicas are, and proposes again and again to keep a little more or less capacity "
    "on GPUs or on CPUs than a forecast asks for; rules written by people decide which of these proposals are carried "
    "out."
)
"""Description of the model for a reader who has never seen one."""


def model_card(table: DayTable, policy: str, manifest: Manifest) -> list[str]:
    """Return the model card of one network of the table as lines of Markdown."""
    lost = list(_lost(table, policy))
    none_lost = (
        f"On no load is it more than {ALLOWED_PERCENT:g} % above the rule or an untuned autoscaler,"
        " in the mean of its plays; single plays may be."
    )
    return [
        f"# Model card: {manifest.name}",
        "",
        LAYMAN,
        "",
        _headline(table),
        "",
        *_differences(table, policy).markdown(),
        "",
        *_against_rule(table, policy),
        "## Where it loses",
        "",
        *(lost or [none_lost]),
        "",
        f"## Scores ({table.level} level, {table.kind})",
        "",
        "J is cost in GPU replicas plus 0.5 for each percent of late requests; lower is better. (s): drawn seconds.",
        "",
        *_scores(table, policy).markdown(),
        "",
        "## Data, objective, network",
        "",
        *Table(("", ""), list(_origin(manifest))).markdown(),
        "",
        "## Envelope",
        "",
        "The operator does not let it act outside.",
        "",
        *Table(("condition", "from", "to"), list(_envelope(manifest))).markdown(),
    ]


def _headline(table: DayTable) -> str:
    days, origins = sum(len(load.days) for load in table.loads), len({load.group for load in table.loads})
    drawn = sum(load.drawn for load in table.loads)
    return (
        f"{days} plays of whole days of {len(table.loads)} loads of {origins} origins, of which {drawn} loads have "
        "drawn seconds; in the uncertain world a day is played at every error of the capacity and with every pool. "
        "Differences of J in percent, below 0 the network is better; intervals by bootstrap over origins."
    )


def _differences(table: DayTable, policy: str) -> Table:
    labels = {name: row.label for name, row in table.contenders().items() if name != policy}
    items = [item for name in labels if (item := difference(table, policy, name)) is not None]
    rows = [
        (labels[item.rival], item.interval.shown(), f"{item.worst_load} {item.worst:+.1f}", item.verdict)
        for item in sorted(items, key=lambda item: item.interval.mean, reverse=True)
    ]
    return Table(("J against", "% [95 % interval]", "worst load, %", "verdict"), rows)


def _against_rule(table: DayTable, policy: str) -> list[str]:
    against = difference(table, policy, RULE)
    if against is None:
        return []
    ahead = "ahead of" if against.verdict is Verdict.WIN else "not ahead of"
    return [f"It is {ahead} the forecast rule by an interval off zero.", ""]


def _lost(table: DayTable, policy: str) -> Iterator[str]:
    """Yield a line for each load on which another contender that does not know the load is far better."""
    rivals = [name for name, row in table.contenders().items() if name != policy and row.role != "reference"]
    for load in table.loads:
        own = table.of(load.name, policy)
        rows = [row for name in rivals if (row := table.of(load.name, name)) is not None]
        if own is None or not rows:
            continue
        best = min(rows, key=lambda row: row.mean("j"))
        above = 100 * (own.mean("j") / best.mean("j") - 1)
        if above > ALLOWED_PERCENT:
            yield (
                f"- **{load.name}**: {above:+.1f} % against {best.label}, with {own.mean('late_percent'):.2f} % late "
                f"instead of {best.mean('late_percent'):.2f} %."
            )


def _scores(table: DayTable, policy: str) -> Table:
    rows = []
    for load in table.loads:
        own, rule = table.of(load.name, policy), table.of(load.name, RULE)
        if own is None:
            continue
        figures = [f"{own.mean(metric):.2f}" for metric in ("j", "cost", "late_percent")]
        against = "-" if rule is None else f"{100 * (own.mean('j') / rule.mean('j') - 1):+.1f}"
        rows.append((f"{load.name}{' (s)' if load.drawn else ''}", str(len(load.days)), *figures, against))
    return Table(("load", "plays", "J", "cost", "late %", "against the rule, %"), rows)


def _origin(manifest: Manifest) -> Iterator[tuple[str, str]]:
    training = manifest.training
    yield "sha256", manifest.digest
    yield "input", f"{manifest.stack_size} stacked observations of contract {manifest.contract_version}"
    seeds = ", ".join(map(str, (training.model_extra or {}).get("seeds", [])))
    course = f"seeds {seeds} made into one" if seeds else f"to the best validation, seed {training.seed}"
    yield "training", f"{training.steps:,} steps, {course}, {training.date}"
    yield "source", str(training.git_revision)
    yield "versions", ", ".join(f"{name} {version}" for name, version in training.versions.items())
    for part in ("environment", "agent"):
        settings = training.hyperparameters.get(part, {})
        yield from ((name, str(value)) for name, value in settings.items() if value is not None)


def _envelope(manifest: Manifest) -> Iterator[tuple[str, str, str]]:
    if manifest.envelope is None:
        return
    yield from _bounds(manifest.envelope.model_dump(exclude={"observation", "units", "signals", "consumers"}))
    for unit, bounds in manifest.envelope.units.items():
        low, high = ("any", "any") if bounds is None else (f"{bounds[0]:g}", f"{bounds[1]:g}")
        yield f"a replica's capacity in {LOADS[unit]}", low, high
    if manifest.envelope.observation is not None:
        yield "Mahalanobis distance from training's observations", "0", f"{manifest.envelope.observation.limit:g}"


def _bounds(envelope: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    for name, value in envelope.items():
        if isinstance(value, dict):
            yield from _bounds(value, f"{name} ")
        else:
            yield f"{prefix}{name}", f"{value[0]:g}", f"{value[1]:g}"
