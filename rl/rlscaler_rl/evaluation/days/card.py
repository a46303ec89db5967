"""The model card of a network: what it is, where it loses on whole days, its scores, its origin and its envelope.

Every figure is of a comparison's `days.json` or of the manifest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rlscaler_core.decision.manifest import Manifest
from rlscaler_core.decision.units import LOADS
from rlscaler_rl.evaluation.days.table import DayTable, Difference, difference
from rlscaler_rl.evaluation.statistics import Verdict

RULE = "rule"

ALLOWED_PERCENT = 3.0
"""J above a rival's on one load, in percent, from which on the card names the load as lost."""

LAYMAN = (
    "This is a small neural network that looks at ten numbers about a service, such as how many requests arrive, how "
    "long they take and how busy its replicas are, and proposes again and again whether to add or to remove a replica "
    "on GPUs or on CPUs; rules written by people decide what of that is done."
)
"""What a model is, for a reader who has never seen one."""


def card(table: DayTable, policy: str, manifest: Manifest) -> str:
    """Return the model card of one network of the table as Markdown."""
    return "\n".join(_lines(table, policy, manifest)) + "\n"


def _lines(table: DayTable, policy: str, manifest: Manifest) -> Iterator[str]:
    rivals = [row for name, row in table.contenders().items() if name != policy]
    against = {row.contender: difference(table, policy, row.contender) for row in rivals}
    found = [one for one in against.values() if one is not None]
    labels = {row.contender: row.label for row in rivals}
    yield f"# Model card: {manifest.name}"
    yield ""
    yield LAYMAN
    yield ""
    yield _headline(table)
    yield ""
    yield from _markdown(
        ("J against", "mean %", "95 % interval", "worst load, %", ""),
        [_row(one, labels[one.rival]) for one in sorted(found, key=lambda one: one.mean, reverse=True)],
    )
    yield ""
    if (rule := against.get(RULE)) is not None:
        ahead = rule.verdict is Verdict.WIN
        yield f"It is {'ahead of' if ahead else 'not ahead of'} the forecast rule by an interval off zero."
        yield ""
    yield "## Where it loses"
    yield ""
    lost = list(_lost(table, policy))
    yield from lost or [f"On no load is it more than {ALLOWED_PERCENT:g} % above the rule or an untuned autoscaler."]
    yield ""
    yield f"## Scores ({table.level} level, {table.kind})"
    yield ""
    yield "J is cost in GPU replicas plus 0.5 for each percent of late requests; lower is better. (s): drawn seconds."
    yield ""
    yield from _markdown(("load", "days", "J", "cost", "late %", "against the rule, %"), list(_scores(table, policy)))
    yield ""
    yield "## Data, objective, network"
    yield ""
    yield from _markdown(("", ""), list(_origin(manifest)))
    yield ""
    yield "## Envelope"
    yield ""
    yield "The operator does not let it act outside."
    yield ""
    yield from _markdown(("condition", "from", "to"), list(_envelope(manifest)))


def _headline(table: DayTable) -> str:
    days, origins = sum(len(load.days) for load in table.loads), len({load.group for load in table.loads})
    drawn = sum(load.drawn for load in table.loads)
    return (
        f"{days} whole days of {len(table.loads)} loads of {origins} origins, of which {drawn} loads have drawn "
        "seconds. Differences of J in percent, below 0 the network is better; intervals by bootstrap over origins."
    )


def _row(one: Difference, label: str) -> tuple[str, ...]:
    worst = f"{one.worst_load} {one.worst:+.1f}"
    return label, f"{one.mean:+.1f}", f"{one.low:+.1f} to {one.high:+.1f}", worst, str(one.verdict)


def _lost(table: DayTable, policy: str) -> Iterator[str]:
    """Give a line for each load on which another contender that could be had instead is far better."""
    could = [name for name, row in table.contenders().items() if name != policy and row.role != "reference"]
    for load in table.loads:
        own = table.of(load.name, policy)
        rows = [row for name in could if (row := table.of(load.name, name)) is not None]
        if own is None or not rows:
            continue
        best = min(rows, key=lambda row: row.mean("j"))
        above = 100 * (own.mean("j") / best.mean("j") - 1)
        if above > ALLOWED_PERCENT:
            yield (
                f"- **{load.name}**: {above:+.1f} % against {best.label}, with {own.mean('late_percent'):.2f} % late "
                f"instead of {best.mean('late_percent'):.2f} %."
            )


def _scores(table: DayTable, policy: str) -> Iterator[tuple[str, ...]]:
    for load in table.loads:
        own, rule = table.of(load.name, policy), table.of(load.name, RULE)
        if own is None:
            continue
        figures = [f"{own.mean(metric):.2f}" for metric in ("j", "cost", "late_percent")]
        against = "-" if rule is None else f"{100 * (own.mean('j') / rule.mean('j') - 1):+.1f}"
        yield f"{load.name}{' (s)' if load.drawn else ''}", str(len(load.days)), *figures, against


def _origin(manifest: Manifest) -> Iterator[tuple[str, str]]:
    training = manifest.training
    environment, agent = (training.hyperparameters.get(part, {}) for part in ("environment", "agent"))
    yield "sha256", manifest.digest
    yield "input", f"{manifest.stack_size} stacked observations of contract {manifest.contract_version}"
    yield "training", f"{training.steps:,} steps to the best validation, seed {training.seed}, {training.date}"
    yield "source", str(training.git_revision)
    yield "versions", ", ".join(f"{name} {version}" for name, version in training.versions.items())
    for part in (environment, agent):
        yield from ((name, str(value)) for name, value in part.items() if value is not None)


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


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"
