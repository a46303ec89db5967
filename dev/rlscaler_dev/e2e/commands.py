"""The commands of a user, run one after the other and written down: `transcript.txt`."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from rlscaler_dev.cluster.api import ClusterInfo
from rlscaler_dev.demo.exceptions import DemoError

SHOWN_LINES = 60
"""Of a command's output in the transcript."""


class Commands:
    """Runs kubectl and helm against one cluster.

    programs: name -> path of its binary.
    """

    def __init__(self, cluster: ClusterInfo, programs: Mapping[str, str], transcript: Path) -> None:
        self._programs, self._transcript = programs, transcript
        caches = {name: str(cluster.state_dir / name.lower()) for name in ("KUBECACHEDIR", "HELM_CACHE_HOME")}
        self.environment = {**os.environ, **caches, "KUBECONFIG": str(cluster.kubeconfig)}
        self._began = time.monotonic()

    def run(self, program: str, *arguments: str, timeout_seconds: float = 300.0, check: bool = True) -> str:
        """The output on both streams. Raises DemoError that shows it where the command fails and `check` is set."""
        command = [self._programs.get(program, program), *arguments]
        begin = time.monotonic()
        try:
            done = subprocess.run(
                command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=timeout_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            self._write(program, arguments, str(error.stdout or ""), timeout_seconds, "timeout")
            raise DemoError(f"{shlex.join([program, *arguments])}: no end within {timeout_seconds:.0f} s") from error
        self._write(program, arguments, done.stdout, time.monotonic() - begin, done.returncode)
        if done.returncode and check:
            raise DemoError(f"{shlex.join([program, *arguments])}: exit code {done.returncode}:\n{done.stdout}")
        return done.stdout

    def command(self, program: str, *arguments: str) -> list[str]:
        """For a process that goes on; its environment is `environment`."""
        return [self._programs.get(program, program), *arguments]

    def note(self, text: str) -> None:
        """Something that the transcript's reader should know."""
        with self._transcript.open("a") as file:
            file.write(f"# {time.monotonic() - self._began:.0f} s: {text}\n")

    def _write(self, program: str, arguments: tuple[str, ...], output: str, seconds: float, code: int | str) -> None:
        lines = output.rstrip().splitlines()
        shown = lines[:SHOWN_LINES] + [f"... {len(lines) - SHOWN_LINES} more lines"] * (len(lines) > SHOWN_LINES)
        ended = f"[{seconds:.1f} s{'' if code == 0 else f', exit code {code}'}]"
        with self._transcript.open("a") as file:
            file.write("\n".join([f"$ {shlex.join([program, *arguments])}", *shown, ended, "", ""]))
