"""The newcomer's run knows every command of the first pages, and passes nothing of a developer's shell on."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.newcomer.documents import commands
from tests.newcomer.machine import Machine, passed_on
from tests.newcomer.plan import PLAN

ROOT = Path(__file__).parents[2]


def test_every_command_of_the_first_pages_has_a_row_and_every_row_a_command() -> None:
    in_pages = {(command.page, command.text) for command in commands(ROOT)}
    in_plan = {(page, text) for page, steps in PLAN.items() for text in steps}
    assert in_pages - in_plan == set(), "say in tests/newcomer/plan.py what is done with them"
    assert in_plan - in_pages == set(), "no page has these any more"


def test_what_is_not_run_or_replaced_says_why() -> None:
    for page, steps in PLAN.items():
        for text, step in steps.items():
            assert bool(step.why) == (step.group == "never" or bool(step.instead)), f"{page}: {text}"


def test_of_the_variables_only_those_of_package_clients_are_passed_on() -> None:
    ours = {"PIP_INDEX_URL": "a", "UV_CACHE_DIR": "b", "HTTPS_PROXY": "c", "SSL_CERT_FILE": "d"}
    assert passed_on(ours | {"VIRTUAL_ENV": "x", "KUBECONFIG": "y", "PYTHONPATH": "z", "RLSCALER_DEBUG": "1"}) == ours


def test_commands_run_as_in_one_shell(tmp_path: Path) -> None:
    source = tmp_path / "source"
    subprocess.run(["git", "init", "--quiet", str(source)], check=True)
    commit = ["git", "-C", str(source), "-c", "user.name=n", "-c", "user.email=n@n", "commit", "--quiet"]
    subprocess.run([*commit, "--allow-empty", "-m", "first"], check=True)
    machine = Machine(tmp_path / "disk", source, "python3", None)
    log = tmp_path / "log"
    assert machine.run("export FOUND=there", log, 30).fine
    assert machine.run('[ "$FOUND" = there ] && [ "$PWD" -ef clone ] || [ -d .git ]', log, 30).fine
    assert machine.run('[ "$(ls -A $HOME)" = "" ]', log, 30).fine
    failed = machine.run("echo why; false | cat", log, 30)
    assert (failed.fine, failed.says) == (False, "exit code 1: why")
    assert not machine.run("sleep 60", log, 0.2).fine
