"""`rlscaler ui` as a process on the real API server: one watch, broken policies, and the rights of other users."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from tests.harness import setup

READ = {"apiGroups": ["rlscaler.io"], "resources": ["rlscalingpolicies"], "verbs": ["get", "list", "watch"]}


@contextmanager
def page(kubeconfig: Path, *options: str) -> Iterator[Callable[[str], str]]:
    """Run the command and yield a function that returns the text of a page."""
    command = [
        sys.executable,
        "-m",
        "rlscaler_live.cli",
        "ui",
        "--port",
        "0",
        "--kubeconfig",
        str(kubeconfig),
        *options,
    ]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            with requests.Session() as session:
                assert session.get(address, timeout=30).status_code == 200
                yield lambda path: session.get(address.partition("/?")[0] + path, timeout=60).text
        finally:
            process.terminate()


@pytest.fixture
def user(cluster, kube, tmp_path):
    """The kubeconfig of a person with these rules, in one namespace or in the whole cluster."""

    def make(name, rules, namespace=None):
        kube.request("POST", setup.ACCOUNTS, {"metadata": {"name": name}})
        if rules:
            setup.grant(kube, name, "page", rules, namespace)
        return setup.write_kubeconfig(tmp_path / name, cluster.kubeconfig, setup.token(kube, account=name))

    return make


def test_policies_come_and_go_and_a_broken_one_names_its_reason(user, world, start, wait):
    start()
    with page(user("viewer", [READ]), "-n", world.namespace) as show:
        assert "No RLScalingPolicy" in show("/")
        world.policy("lonely", mode="Shadow")
        wait(lambda: "lonely" in show("/"))
        wait(lambda: "broken" in show("/?only=attention"), 60)
        assert "Deployment" in show(f"/policies/{world.namespace}/lonely")
        assert "cannot get" in show(f"/policies/{world.namespace}/lonely/preflight"), "the missing right is named"
        world.delete("rlscalingpolicies", "lonely")
        wait(lambda: "No RLScalingPolicy" in show("/"))


def test_a_user_sees_what_the_rights_allow_and_reads_which_are_missing(user, world):
    world.policy("mine", mode="Shadow")
    with page(user("member", [READ], world.namespace), "-n", world.namespace) as show:
        assert "mine" in show("/")
    with page(user("stranger", [])) as show:
        assert "cannot list resource" in show("/")
        assert "mine" not in show("/")
