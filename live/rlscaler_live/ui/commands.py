"""kubectl commands that change a policy. The page never sends them: a person copies them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

from rlscaler_operator.cli.pages import mode_of
from rlscaler_operator.sensing.measure import PAUSED, PAUSES

Body = Mapping[str, Any]


class Command(NamedTuple):
    """A command to copy."""

    label: str
    effect: str
    text: str


def commands_of(body: Body, context: str | None) -> list[Command]:
    """Return the commands that make sense for a policy as it is now."""
    annotations = body["metadata"].get("annotations") or {}
    paused = [name for name in PAUSES if name in annotations]
    commands = []
    if mode_of(body) == "Auto":
        commands.append(Command("Shadow", "decide and record, change nothing", _mode(body, "Shadow", context)))
    else:
        commands.append(Command("Auto", "let replicas follow the decisions", _mode(body, "Auto", context)))
    if paused:
        commands.append(Command("Resume", "let it scale again", _annotated(body, dict.fromkeys(paused), context)))
    else:
        commands.append(Command("Pause", "keep the replicas as they are", _annotated(body, {PAUSED: "true"}, context)))
    return commands


def patch(body: Body, change: Mapping[str, Any], context: str | None) -> str:
    """Return the command that merges a change into a policy, quoted for a shell."""
    metadata = body["metadata"]
    words = ["kubectl", "patch", "rlsp", metadata["name"], "-n", metadata["namespace"], "--type", "merge"]
    words += ["-p", json.dumps(change, separators=(",", ":"))]
    return shlex.join([*words, *(["--context", context] if context else [])])


def _mode(body: Body, mode: str, context: str | None) -> str:
    return patch(body, {"spec": {"mode": mode}}, context)


def _annotated(body: Body, annotations: Mapping[str, str | None], context: str | None) -> str:
    return patch(body, {"metadata": {"annotations": dict(annotations)}}, context)
