"""What commands say when something beside them is wrong: one line that names it, no traceback, one exit code each."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from rlscaler_dev.generate.pages import commands
from rlscaler_live import train_cli
from rlscaler_live.cli import EXIT_CODES, LazyGroup, main

KUBECONFIGS = {
    "no YAML": b"not: [a kubeconfig",
    "empty": b"",
    "a list": b"[]",
    "no text": b"\xff\xfe\x00",
    "clusters are no list": b"clusters: 3\ncontexts: []\ncurrent-context: x\n",
    "no such context": b"apiVersion: v1\nkind: Config\nclusters: []\ncontexts: []\nusers: []\ncurrent-context: x\n",
    "context of nothing": b"current-context: x\nclusters: []\nusers: []\ncontexts: [{name: x}]\n",
    "no base64": (
        b"current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
        b"clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1', certificate-authority-data: '***'}}]\n"
        b"users: [{name: u, user: {client-certificate-data: '***', client-key-data: 1}}]\n"
    ),
    "a name of numbers": b"current-context: 3\ncontexts: [{name: 3, context: [1]}]\nclusters: {}\nusers: 1\n",
}

CALLS = {
    "status": ["status"],
    "explain": ["explain", "chat"],
    "promote": ["promote", "chat", "-n", "shop", "--context", "x"],
    "operator run": ["operator", "run", "--metrics-port", "0"],
    "operator verify": ["operator", "verify"],
    "operator release": ["operator", "release"],
    "service fleet": ["service", "fleet", "--gpu-deployment", "a", "--cpu-deployment", "b", "--port", "0"],
    "demo": ["demo", "--out", "results"],
}


def said(done: Result) -> str:
    """The one line of an error, after a usage if there is one."""
    assert isinstance(done.exception, SystemExit), repr(done.exception)
    assert "Traceback" not in done.output
    (line,) = [line for line in done.output.splitlines() if line.startswith("Error: ")]
    return line


@pytest.mark.parametrize("content", KUBECONFIGS.values(), ids=KUBECONFIGS)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_malformed_kubeconfig_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: list[str], content: bytes
) -> None:
    file = tmp_path / "kubeconfig"
    file.write_bytes(content)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    options = ["--metrics-port", "0"] if call[0] == "service" else []
    done = CliRunner().invoke(main, [*call, *options, "--kubeconfig", str(file)])
    line = said(done)
    assert done.exit_code == 1, done.output
    assert str(file) in line
    assert len(line) < 500


@pytest.mark.parametrize("call", [["status"], ["operator", "verify"], ["operator", "release"], ["operator", "run"]])
def test_a_wrong_variable_is_named_without_the_librarys_words(monkeypatch: pytest.MonkeyPatch, call: list[str]) -> None:
    monkeypatch.setenv("RLSCALER_SHARDS", "zero")
    done = CliRunner().invoke(main, call)
    line = said(done)
    assert done.exit_code == 2
    assert "RLSCALER_SHARDS" in line
    assert "pydantic" not in done.output
    assert "validation error" not in done.output


def test_a_wrong_configuration_of_a_training_is_a_wrong_call(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"environment": {"no_such_field": 1}}')
    done = CliRunner().invoke(main, ["train", "--config", str(tmp_path / "config.json"), "--out", str(tmp_path / "o")])
    assert "no_such_field" in said(done)
    assert done.exit_code == 2


def test_what_ctrl_c_ends_says_so_by_its_exit_code() -> None:
    @click.command()
    def endless() -> None:
        raise KeyboardInterrupt

    class Group(LazyGroup):
        def list_commands(self, ctx: click.Context) -> list[str]:
            return ["endless"]

        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
            return endless

    assert CliRunner().invoke(Group("rlscaler"), ["endless"]).exit_code == 130


def test_the_exit_codes_are_documented_in_one_table() -> None:
    page = commands()
    for code, meaning in EXIT_CODES.items():
        assert f"| {code} | {meaning} |" in page


WITHOUT_EXTRAS = """
import sys, importlib.abc
EXTRAS = {names}

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
from rlscaler_live.cli import main
main({arguments}, prog_name="rlscaler")
"""

EXTRAS = {"numba", "torch", "scipy", "gymnasium", "optuna", "locust", "matplotlib", "onnx", "ray", "grpc"}


def without_extras(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = WITHOUT_EXTRAS.format(names=EXTRAS, arguments=list(arguments))
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_help_needs_no_extra() -> None:
    for command in main.list_commands(click.Context(main)):
        done = CliRunner().invoke(main, [command, "--help"])
        assert done.exit_code == 0, command
    done = without_extras("train", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "least_loaded" in done.stdout


def test_routers_are_those_of_the_simulator() -> None:
    from rlscaler_rl.simulation.cluster import LEAST_LOADED, ROUTERS

    assert (train_cli.ROUTERS, LEAST_LOADED) == (ROUTERS, 0)


def leaves(command: click.Command, context: click.Context, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command that is no group, by its words."""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from leaves(child, click.Context(child, parent=context), f"{path} {name}".strip())
    else:
        yield path, command


ANSWERS = {
    *("estimate", "explain", "init", "pause", "preflight", "promote", "resume", "simulate", "status"),
    *("operator verify", "replay", "trace days", "trace list", "cluster status", "cluster up", "structure measure"),
    *("evaluate", "compare", "days", "tune", "publish", "tenants compare", "tenants evaluate", "tenants study"),
    *("scheduler explain", "streams simulate"),
}
"""Commands that answer a question; what others make lies in files."""


def test_json_is_asked_for_with_the_same_option_everywhere() -> None:
    found = dict(leaves(main, click.Context(main)))
    assert set(found) >= ANSWERS
    for name, command in found.items():
        options = {word: one for one in command.params for word in one.opts}
        assert "--json" not in options, name
        if name in ANSWERS or "-o" in options:
            assert options["-o"] is options["--output"], name
            assert isinstance(options["-o"].type, click.Choice), name
            assert "json" in options["-o"].type.choices, name
