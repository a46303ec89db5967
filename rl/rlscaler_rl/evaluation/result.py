"""From what was played to the result file: rows, validity, digests, provenance."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rlscaler_rl.evaluation.board import METRICS
from rlscaler_rl.evaluation.claims import claims
from rlscaler_rl.evaluation.gate import closed, gate, training_seeds
from rlscaler_rl.evaluation.like import like_for_like
from rlscaler_rl.evaluation.models import Loaded
from rlscaler_rl.evaluation.play import Played
from rlscaler_rl.evaluation.rows import dependence, rows
from rlscaler_rl.evaluation.schema import Dependence, Digests, Model, ResultFile, Row

_PACKAGES = ("rlscaler", "numpy", "numba", "scipy", "onnxruntime")


def result_file(
    kind: str, played: Played, loaded: Sequence[Loaded], wall_seconds: float, files: list[str]
) -> ResultFile:
    """`kind` is evaluation or comparison; `loaded` the shipped model and its siblings from other training seeds;
    `files` are the names that lie beside the JSON."""
    board = played.board
    made, checks = rows(board), dependence(board)
    reasons = played.audit.reasons() + [_not_worse(check) for check in checks if not check.passed]
    settings = played.settings.model_dump(mode="json")
    return ResultFile(
        kind=kind,
        level=played.settings.level,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        versions={"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
        machine=f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        wall_seconds=round(wall_seconds, 2),
        valid=not reasons,
        reasons=reasons,
        settings=settings,
        model=_model(loaded[0]),
        seeds=[_model(sibling) for sibling in loaded[1:]],
        metrics=METRICS,
        workloads=played.workloads,
        rows=made,
        gate=gate(board),
        closed=closed(board),
        like_for_like=like_for_like(board),
        training_seeds=training_seeds(board),
        claims=claims(board),
        dependence=checks,
        invariants=played.audit.invariants(),
        digests=Digests(
            model=loaded[0].digest, settings=_sha256(settings), scenarios=played.digests, rows=rows_digest(made)
        ),
        files=files,
    )


def rows_digest(made: list[Row]) -> str:
    """Equal for two runs that saw the same numbers."""
    return _sha256([row.model_dump(mode="json") for row in made])


def write_json(result: ResultFile, path: Path) -> None:
    path.write_text(result.model_dump_json(indent=1) + "\n")


def _not_worse(check: Dependence) -> str:
    found = check.difference
    interval = f"policy - control {found.mean:+.2f} [{found.low:+.2f}, {found.high:+.2f}], {found.percent:+.1f} %"
    return (
        f"the outcome does not depend visibly on the network: {check.label} should score at least "
        f"{check.required_percent:g} % worse with an interval off zero ({interval})"
    )


def _model(loaded: Loaded) -> Model:
    manifest = loaded.actor.manifest
    return Model(
        name=loaded.name,
        path=str(loaded.path) if loaded.path else None,
        contract_version=manifest.contract_version,
        stack_size=manifest.stack_size,
        residual=manifest.residual,
        rule=manifest.rule.model_dump() if manifest.residual else None,
        provenance=manifest.training.model_dump(mode="json"),
    )


def _sha256(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
