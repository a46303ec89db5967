"""The model card of a policy: data, objective, scores, where it loses; every figure from a comparison's JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rlscaler_core.decision.manifest import Manifest
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.gate import PASSES
from rlscaler_rl.evaluation.report.firstpage import claims_table, headline, losses_table
from rlscaler_rl.evaluation.report.tables import title
from rlscaler_rl.evaluation.schema import ResultFile


def card(result: ResultFile, manifest: Manifest) -> str:
    """Markdown. Raises EvaluationError where the comparison is of another policy or invalid."""
    if result.digests.model != manifest.digest:
        raise EvaluationError(
            f"the comparison is of a policy with sha256 {result.digests.model[:12]}, the manifest of one with "
            f"{manifest.digest[:12]}; compare this policy first"
        )
    if not result.valid:
        raise EvaluationError(f"the comparison is invalid: {'; '.join(result.reasons)}")
    return "\n".join(_lines(result, manifest)) + "\n"


def _lines(result: ResultFile, manifest: Manifest) -> Iterator[str]:
    table = losses_table(result)
    yield f"# Model card: {manifest.name}"
    yield ""
    yield from (f"- {sentence}" for sentence in headline(result))
    yield ""
    yield "## Where it loses"
    yield ""
    lost = [row for row in result.gate.rows if row.status != PASSES]
    yield from (f"- **{title(row.workload)}** ({row.status}): {row.reason}." for row in lost)
    if not lost:
        yield "No workload fails the gate."
    yield ""
    yield f"## Scores ({result.level} level, test parts)"
    yield ""
    yield table.note
    yield ""
    yield from _markdown(table.header, table.rows)
    yield ""
    if result.claims:
        claims = claims_table(result)
        yield f"## {claims.title}"
        yield ""
        yield claims.note
        yield ""
        yield from _markdown(claims.header, claims.rows)
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
    yield from _bounds(manifest.envelope.model_dump(exclude={"observation"}))
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
