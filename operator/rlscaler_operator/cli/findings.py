"""What a check found, and how `rlscaler operator verify` and `rlscaler preflight` print it: a line each, or JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import click

State = Literal["ok", "warn", "FAIL"]

COLORS: dict[State, str] = {"ok": "green", "warn": "yellow", "FAIL": "red"}


@dataclass(frozen=True)
class Finding:
    """What was checked, and what is wrong with it."""

    what: str
    trouble: str = ""
    """What is wrong and how to mend it; empty = nothing is wrong."""
    about: str = ""
    """One word for programs: what the check is about."""
    stops: bool = True
    """Does the trouble keep the policy from working? Otherwise it is worth knowing."""

    @property
    def state(self) -> State:
        if not self.trouble:
            return "ok"
        return "FAIL" if self.stops else "warn"

    @property
    def failed(self) -> bool:
        return self.state == "FAIL"


def show(finding: Finding) -> None:
    """Print a line for what was checked, and one below it for what is wrong."""
    click.echo(f"{click.style(f'{finding.state:<4}', fg=COLORS[finding.state])} {finding.what}")
    if finding.trouble:
        click.echo(f"     {finding.trouble}")


def as_json(findings: Sequence[Finding], **more: str) -> str:
    """Give all findings as one JSON object, with `ok` False where one of them failed."""
    checks = [
        {"about": one.about, "state": one.state, "what": one.what, "trouble": one.trouble or None} for one in findings
    ]
    return json.dumps({**more, "ok": not any(one.failed for one in findings), "checks": checks}, indent=2)
