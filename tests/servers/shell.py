"""A newcomer's shell: each command as it is typed, with its seconds and what it says."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.harness.waiting import until


class Shell:
    """Runs commands in one folder, prints them and keeps what was printed in `transcript`."""

    def __init__(self, folder: Path, path: Path, variables: Mapping[str, str]) -> None:
        """`path` is a folder of programs beside those of this Python; `variables` are set as by `export`."""
        self.folder, self.transcript = folder, folder / "transcript.txt"
        search = os.pathsep.join((str(Path(sys.executable).parent), str(path), os.environ["PATH"]))
        self._environment = os.environ | {"PATH": search, "COLUMNS": "150"} | dict(variables)
        for name, value in variables.items():
            self.say(f"$ export {name}={value}")

    def say(self, text: str) -> None:
        with self.transcript.open("a") as file:
            file.write(text + "\n")
        print(text, flush=True)

    def run(self, command: str, codes: tuple[int, ...] = (0,)) -> str:
        """What a command prints; it has to end with one of the exit codes."""
        began = time.monotonic()
        code, said = self._done(command)
        self._show(command, time.monotonic() - began, said)
        assert code in codes, f"exit code {code} of {command}: {said}"
        return said

    def again(self, command: str, seconds: float, is_fine: Callable[[str], bool]) -> str:
        """Run a command until it succeeds and what it prints is fine; only the last time is shown."""
        began, last = time.monotonic(), ""

        def fine() -> bool:
            nonlocal last
            code, last = self._done(command)
            return code == 0 and is_fine(last)

        try:
            until(fine, seconds)
        finally:
            self._show(command, time.monotonic() - began, last)
        return last

    def _done(self, command: str) -> tuple[int, str]:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    def _show(self, command: str, seconds: float, said: str) -> None:
        self.say(f"$ {command}   # {seconds:.1f} s\n{said.rstrip()}")
