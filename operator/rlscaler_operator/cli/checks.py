"""Checks of `rlscaler operator verify` and `rlscaler preflight`, printed one a line or as JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Literal, NoReturn

import click

State = Literal["ok", "warn", "FAIL"]

COLORS: dict[State, str] = {"ok": "green", "warn": "yellow", "FAIL": "red"}


@dataclass(frozen=True)
class Check:
    """Result of one check."""

    title: str
    """The requirement that was checked."""
    trouble: str = ""
    """The fault and its remedy; empty = the requirement is met."""
    about: str = ""
    """Subject in one word, for programs."""
    stops: bool = True
    """Whether the trouble keeps the policy from working; otherwise it is a warning."""

    @property
    def state(self) -> State:
        if not self.trouble:
            return "ok"
        return "FAIL" if self.stops else "warn"

    @property
    def failed(self) -> bool:
        return self.state == "FAIL"


class CheckList:
    """Checks in their order. Each is printed when it is added; as JSON all of them are printed at the end."""

    def __init__(self, output: str) -> None:
        self.checks: list[Check] = []
        self._json = output == "json"

    def add(self, *checks: Check) -> None:
        self.checks += checks
        for check in () if self._json else checks:
            click.echo(f"{click.style(f'{check.state:<4}', fg=COLORS[check.state])} {check.title}")
            if check.trouble:
                click.echo(f"     {check.trouble}")

    def end(self, **facts: str) -> NoReturn:
        """Print the JSON object, which begins with `facts`, and exit: 1 where a check failed, else 0."""
        failed = any(check.failed for check in self.checks)
        if self._json:
            rows = [
                {"about": check.about, "state": check.state, "what": check.title, "trouble": check.trouble or None}
                for check in self.checks
            ]
            click.echo(json.dumps({**facts, "ok": not failed, "checks": rows}, indent=2))
        sys.exit(1 if failed else 0)
