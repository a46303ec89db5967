"""Files as earlier commits have them."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.harness.setup import REPOSITORY


def commits(path: str) -> list[str]:
    """Those that changed `path`, the oldest first. Skips the test, and says why, where no history is at hand."""
    if shutil.which("git") is None:
        pytest.skip("git is not on PATH: it is asked for files of earlier commits")
    top = _git("rev-parse", "--show-toplevel")
    if top.returncode or Path(top.stdout.decode().strip()) != REPOSITORY.resolve():
        pytest.skip(f"{REPOSITORY} is no git checkout: {top.stderr.decode().strip() or 'it lies in another one'}")
    if _git("rev-parse", "--is-shallow-repository").stdout.strip() == b"true":
        pytest.skip("this is a shallow clone: `git fetch --unshallow` brings the earlier commits")
    return _git("log", "--reverse", "--format=%H", "--", path).stdout.decode().split()


def files(commit: str, folder: Path, *paths: str) -> Path:
    """`folder` with what the commit has under these paths."""
    done = _git("archive", "--format=tar", commit, "--", *paths)
    assert done.returncode == 0, done.stderr.decode()
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    """In this source tree, whatever repository a hook works for."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(REPOSITORY), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, check=False, timeout=60)
