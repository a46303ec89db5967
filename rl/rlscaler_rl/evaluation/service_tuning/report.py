"""The verdict as text, for report.txt and the terminal."""

from __future__ import annotations

from rlscaler_rl.evaluation.board import POLICY
from rlscaler_rl.evaluation.schema import ServiceVerdict
from rlscaler_rl.evaluation.service_tuning.history import duration
from rlscaler_rl.evaluation.service_tuning.networks import FOUND_SPEC, GENERAL, OWN_SPEC
from rlscaler_rl.evaluation.service_tuning.verdict import PATCH_FILE, TUNED_RIVALS, to_yaml
from rlscaler_rl.results.table import Column, Table

NETWORKS = {GENERAL: "general", OWN_SPEC: "trained under your spec", FOUND_SPEC: "trained under a found one"}


def headline(verdict: ServiceVerdict) -> str:
    return "publish" if verdict.publish else "do not publish"


def text_report(verdict: ServiceVerdict) -> str:
    """The verdict with its reasons, the table, and the history and training behind it."""
    history, training = verdict.history, verdict.training
    kind = "smooth" if history.smooth else "bursty"
    best = f"the checkpoint at {training.best_steps:,}" if training.best_steps else "the start itself"
    over = " (ended by the clock)" if training.cut_short else ""
    tuned = "; ".join(f"{name} {j['default']:.2f} -> {j['tuned']:.2f}" for name, j in training.tuned.items())
    networks = "; ".join(
        f"{NETWORKS[name]} {j['own']:.2f} -> {j['found']:.2f}" for name, j in training.networks.items()
    )
    blocks = ", ".join(f"{count} to {part}" for part, count in history.blocks.items())
    peaks = ", ".join(f"{peak:.3g} ({part})" for part, peak in history.peak_rps.items())
    lines = [
        f"{verdict.namespace}/{verdict.name}: {headline(verdict)}",
        *(f"  - {reason}" for reason in verdict.reasons),
        *_spec(verdict),
        "",
        f"Held-back part: {verdict.episodes} episodes of {duration(verdict.episode_seconds)}, {verdict.level} level; "
        "differences are paired, with 95 % intervals.",
        *Table.of(COLUMNS, verdict.rows).text(),
        f"History: {history.source}, {duration(history.seconds)}, {kind} (rise {history.rise:.2f})",
        f"Stretches of one episode: {blocks}",
        f"99th percentiles of the load, requests/s: {peaks}",
        f"Training: from {training.start}, {training.steps:,} steps in {training.seconds:.0f} s{over}; chosen: {best}, "
        f"{NETWORKS[training.chosen]}",
        *([f"Under your spec -> the best one, J: {networks}"] if networks else []),
        f"Tuned on the same tune part, J: {tuned}",
        *(["Keep in mind:", *(f"  - {caveat}" for caveat in verdict.caveats)] if verdict.caveats else []),
    ]
    return "\n".join(lines) + "\n"


def _spec(verdict: ServiceVerdict) -> list[str]:
    """The recommended changes of the spec and their differences in J."""
    recommendation = verdict.recommendation
    if recommendation is None:
        return []
    if not recommendation.changes:
        return [f"Spec: {recommendation.reason}"]
    lines = [
        f"Spec changes ({PATCH_FILE}): {'apply' if recommendation.apply else 'do not apply'}",
        f"  - {recommendation.reason}",
    ]
    labels = {POLICY: "with the policy for this service", GENERAL: "with the general policy"} | {
        name: f"the policy under them, against {label}" for name, label in TUNED_RIVALS.items()
    }
    running = POLICY if verdict.publish else GENERAL
    lines += [
        f"  - {labels[name]}: J {difference.shown()}"
        for name, difference in recommendation.worth.items()
        if name != running
    ]
    return [*lines, f"  - {recommendation.together}", *(f"    {line}" for line in to_yaml(recommendation).splitlines())]


COLUMNS: dict[str, Column] = {
    "": "{0.label}",
    "J": "{0.j:.2f}",
    "cost/h": "{0.cost_per_hour:.2f}",
    "late %": "{0.late_percent:.2f}",
    "p95 ms": "{0.p95_ms:.0f}",
    "GPU": "{0.gpu_replicas:.1f}",
    "CPU": "{0.cpu_replicas:.1f}",
    "policy against it": lambda row: f"{row.difference.shown()} {row.difference.verdict}" if row.difference else "",
}
