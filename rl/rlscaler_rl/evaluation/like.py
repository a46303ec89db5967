"""Like against like: what was set for one load beside what was set for that load, one setting for all beside others.

One network that serves every load is not what an HPA tuned for the very load should be held against alone: whoever
tunes an HPA for a load can as well tune the policy for it, and whoever does not tune has one setting of either.
"""

from __future__ import annotations

from typing import NamedTuple

from rlscaler_rl.evaluation.board import ALL, Board
from rlscaler_rl.evaluation.gate import closed, gate
from rlscaler_rl.evaluation.schema import Like

HINDSIGHT = ("hindsight_tuned", "hindsight")


class Scope(NamedTuple):
    """Who is set as hard as whom."""

    name: str
    title: str
    subject: str
    rivals: tuple[str, ...]


SCOPES = (
    Scope("load", "Each set for the load", "ppo_tuned", ("hpa_tuned", "rule_tuned")),
    Scope("all", "One setting for all loads", "ppo_tuned_all", ("hpa_tuned_all", "rule_tuned_all")),
)


def like_for_like(board: Board) -> list[Like]:
    """Of every scope that was played everywhere."""
    labels = {entry.name: entry.label for entry in board.entries}
    return [
        Like(
            name=scope.name,
            title=scope.title,
            subject=scope.subject,
            label=labels[scope.subject],
            gate=gate(board, scope.subject, [(rival,) for rival in scope.rivals]),
            closed=closed(board, scope.subject, (scope.rivals[0],), HINDSIGHT),
        )
        for scope in SCOPES
        if all(board.played(ALL, name) for name in (scope.subject, *scope.rivals))
    ]
