"""Verdict of the held-back part: the rows, whether to publish the policy, and the worth of the spec changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import yaml

from rlscaler_rl.evaluation.board import POLICY, Board
from rlscaler_rl.evaluation.gate import PASSES, judge
from rlscaler_rl.evaluation.invariants import Audit
from rlscaler_rl.evaluation.lineup import Entry, standing
from rlscaler_rl.evaluation.play import play_entry, scores_of
from rlscaler_rl.evaluation.rows import difference
from rlscaler_rl.evaluation.schema import Recommendation, ServiceRow
from rlscaler_rl.evaluation.service_tuning import spec
from rlscaler_rl.evaluation.service_tuning.episodes import Score, replayed
from rlscaler_rl.evaluation.service_tuning.history import FEWEST, History, duration
from rlscaler_rl.evaluation.service_tuning.networks import GENERAL, Choice
from rlscaler_rl.evaluation.service_tuning.rivals import GENERAL_SPEC, POLICY_SPEC, TUNED
from rlscaler_rl.evaluation.service_tuning.service import Service
from rlscaler_rl.simulation.levels import LevelName
from rlscaler_rl.simulation.scenario import Scenarios
from rlscaler_rl.training.files import write_atomically
from rlscaler_rl.training.finetune import FineTuned
from rlscaler_rl.workloads import Part

PATCH_FILE = "spec-patch.yaml"
TUNED_RIVALS = {f"{name}_tuned": label for name, label in TUNED.items()}


def play(
    name: str, entries: Sequence[Entry], episodes: Scenarios, runs: int, score: Score, level: LevelName
) -> tuple[Board, Audit]:
    """All entries on the same arrivals with the same cold starts; J is that of the service `name`."""
    board, audit = Board(entries), Audit()
    blocks = replayed(episodes, runs)
    for entry in entries:
        own = episodes
        if entry.replicas is not None:
            own = standing(episodes, np.where(episodes.present, entry.replicas, 0))
        done = play_entry(entry, own, name, audit, level)
        j = score.j(done.result).reshape(runs, -1)
        board.add(name, entry.name, scores_of([done], runs) | {"j": j}, blocks)
    return board, audit


def rows(
    board: Board, workload: str, entries: Sequence[Entry], service: Service, seconds: int
) -> tuple[ServiceRow, ...]:
    """One row per entry, in their order. `seconds`: the length of an episode."""

    def row(entry: Entry) -> ServiceRow:
        def mean(metric: str) -> float:
            return board.mean(workload, entry.name, metric)

        return ServiceRow(
            name=entry.name,
            label=entry.label,
            role=entry.role,
            j=mean("j"),
            cost_per_hour=mean("cost") * service.gpu_cost_per_hour,
            late_percent=mean("late_percent"),
            p95_ms=mean("p95_ms"),
            gpu_replicas=mean("gpu_replica_seconds") / seconds,
            cpu_replicas=mean("cpu_replica_seconds") / seconds,
            difference=None if entry.name == POLICY else difference(board, workload, entry.name),
        )

    return tuple(row(entry) for entry in entries)


def decide(
    rows: Sequence[ServiceRow], history: History, tuned: FineTuned, service: Service, broken: Sequence[str]
) -> tuple[bool, tuple[str, ...]]:
    """(publish, reasons): every reason against, or the one for it."""
    against = list(broken)
    if history.missing_seconds:
        against.append(
            f"too little history: {duration(history.seconds)} hold {history.blocks(Part.TEST, service)} stretches of "
            f"{duration(service.episode_seconds)} to test on and {FEWEST[Part.TEST]} are needed; "
            f"{duration(history.missing_seconds)} more"
        )
    if tuned.best.steps == 0:
        against.append("training found nothing better than the general policy on the tune part: keep that one")
    gate = [(row.label, row.difference) for row in rows if row.role == "tuned" and row.difference]
    status, reason = judge(gate, smooth=history.smooth)
    if status != PASSES:
        kind = "within 2 % of" if history.smooth else "better than"
        against.append(f"not shown to be {kind} both tuned rivals: {reason}")
    against += [
        f"{row.label} is better by {row.difference.percent:.1f} % "
        f"[{row.difference.low_percent:.1f}, {row.difference.high_percent:.1f}]"
        for row in rows
        if row.difference and row.difference.verdict == "loss" and row.role in ("today", "contender")
    ]
    return (False, tuple(against)) if against else (True, (_in_favour(reason, rows),))


def _in_favour(reason: str, rows: Sequence[ServiceRow]) -> str:
    shown = [f"{row.difference.shown()} against {row.label}" for row in rows if row.role == "tuned" and row.difference]
    return f"{reason}: J {' and '.join(shown)}"


def recommendation(
    board: Board, workload: str, choice: Choice, service: Service, history: History, *, publish: bool
) -> Recommendation:
    """The changes that the tune part chose, as the held-back part judges them around the network that is to run."""
    gain = choice.gain
    if not choice.found:
        why = "none was better than yours on the tune part" if gain is None else f"on the tune part J {gain.shown()}"
        return Recommendation(apply=False, reason=f"nothing to change: {why}", changes={}, tune=gain, worth={})
    worth = {
        POLICY: difference(board, workload, POLICY, POLICY_SPEC),
        GENERAL: difference(board, workload, GENERAL, GENERAL_SPEC),
        **{name: difference(board, workload, name, POLICY_SPEC) for name in TUNED_RIVALS},
    }
    runs = POLICY if publish else GENERAL
    label = "the policy for this service" if publish else "the general policy, which stays"
    against_own = worth[runs]
    comparison = {"win": "better", "loss": "worse"}.get(against_own.verdict, "not shown to be better")
    _, together = judge([(label, worth[name]) for name, label in TUNED_RIVALS.items()], smooth=history.smooth)
    return Recommendation(
        apply=against_own.verdict == "win",
        reason=f"with {label}, {comparison} than your spec on the held-back part: J {against_own.shown()}",
        changes=spec.patch(service, choice.found),
        tune=gain,
        worth=worth,
        together=f"publishing and changing the spec, against both tuned rivals: {together}",
    )


def patch_file(recommended: Recommendation, service: Service) -> str:
    """The changes as `kubectl patch --type merge --patch-file` takes them."""
    name, namespace = service.name, service.namespace
    verdict = "apply" if recommended.apply else "do not apply"
    return (
        f"# Spec changes for RLScalingPolicy {namespace}/{name}: {verdict}\n"
        f"# {recommended.reason}\n"
        f"# kubectl patch rlsp {name} -n {namespace} --type merge --patch-file {PATCH_FILE}\n{to_yaml(recommended)}"
    )


def to_yaml(recommended: Recommendation) -> str:
    return yaml.safe_dump(recommended.changes, sort_keys=False)


def write_patch(recommended: Recommendation, service: Service, folder: Path) -> None:
    """Write the file beside the report; an earlier one is removed where nothing is recommended."""
    if recommended.changes:
        write_atomically(folder / PATCH_FILE, patch_file(recommended, service))
    else:
        (folder / PATCH_FILE).unlink(missing_ok=True)
