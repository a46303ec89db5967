"""Run the commands of the first pages and print command, seconds and result: `make newcomer`, `make newcomer-root`."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.newcomer.documents import commands, manifest
from tests.newcomer.machine import Done, Machine
from tests.newcomer.plan import AFTER, FROM_HPA, PLAN, Group, Step

ROOT = Path(__file__).parents[2]
NEWEST_PIP = "$PYTHON -m venv .venv && .venv/bin/python -m pip install --quiet --upgrade pip && .venv/bin/pip --version"
"""Before the first target of make, so that .venv does not have the pip that comes with Python."""


def main() -> int:
    """Return 0 where every command did what its page says."""
    arguments = _arguments()
    group: Group = "root" if arguments.root else "user"
    if arguments.root and os.geteuid() != 0:
        print("newcomer-root needs root: run it with sudo -E", file=sys.stderr)
        return 2
    if unknown := [command for command in commands(ROOT) if command.text not in PLAN.get(command.page, {})]:
        for command in unknown:
            print(f"{command.page}: `{command.text}` has no row in tests/newcomer/plan.py", file=sys.stderr)
        return 2
    logs = Path(arguments.logs).absolute()
    logs.mkdir(parents=True, exist_ok=True)
    failed = 0
    for pip in arguments.pip.split(","):
        with tempfile.TemporaryDirectory(prefix="newcomer-", ignore_cleanup_errors=True) as folder:
            reuse = None if arguments.reuse is None else Path(arguments.reuse).expanduser()
            machine = Machine(Path(folder), ROOT, arguments.python, reuse)
            print(f"\n{group}, {pip} pip, clone {machine.clone}\n{'seconds':>8}  result  command", flush=True)
            for number, (command, watches, why) in enumerate(_script(machine, group, pip == "newest", arguments.only)):
                done = machine.run(command, logs / f"{group}-{pip}-{number:02}.log", arguments.limit, watches)
                failed += not done.fine
                _show(done, why)
    _show_never(group)
    return 1 if failed else 0


def _script(machine: Machine, group: Group, newest: bool, only: str | None) -> Iterator[tuple[str, bool, str]]:
    """Yield what is run in order: command, whether it goes on for ever, and why it differs from the page's."""
    if newest:
        yield NEWEST_PIP, False, "preparation"
    (machine.clone / "chat.yaml").write_text(manifest(ROOT, FROM_HPA), encoding="utf-8")
    for command in commands(ROOT):
        step = PLAN[command.page][command.text]
        if (
            step.group != group
            or (newest and not step.newest_pip)
            or (only and only not in f"{command.page} {command.text}")
        ):
            continue
        for first in step.before:
            yield first, False, "preparation"
        yield (
            step.instead or command.text,
            step.watches,
            f"in place of `{command.text}`: {step.why}" if step.instead else "",
        )
    if not newest:
        for last in AFTER[group]:
            yield last, False, "clearing away"


def _show(done: Done, why: str) -> None:
    result = "ok" if done.fine else "FAILED"
    print(f"{done.seconds:8.1f}  {result:<6}  {done.command}{f'   ({why})' if why else ''}", flush=True)
    if not done.fine:
        print(f"{'':18}{done.says}", flush=True)


def _show_never(group: Group) -> None:
    print("\nnot run")
    for page, steps in PLAN.items():
        for text, step in steps.items():
            if step.group != group:
                print(f"  {page}: {text}   ({step.why or f'make newcomer{_suffix(step)}'})")


def _suffix(step: Step) -> str:
    return "-root" if step.group == "root" else ""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.newcomer", description=__doc__)
    parser.add_argument("--root", action="store_true", help="what needs root, or longer than half an hour")
    parser.add_argument("--pip", default="bundled,newest", help="which pip .venv has: bundled, newest, or both")
    parser.add_argument("--python", default="python3", help="the interpreter that make takes")
    parser.add_argument(
        "--reuse", metavar="FOLDER", help="take built binaries from this cache, such as ~/.cache/rlscaler"
    )
    parser.add_argument(
        "--only", metavar="TEXT", help="only commands with this in their page or text, with preparations"
    )
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds that one command may take")
    parser.add_argument("--logs", default="results/newcomer", help="folder of the commands' outputs")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
