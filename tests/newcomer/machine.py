"""A newcomer's machine: a clone, an empty home, and of the variables only those that package clients need."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PACKAGE_CLIENTS = (
    "PIP_",
    "UV_",
    "SSL_",
    "GOPROXY",
    "GONOSUMDB",
    "GOSUMDB",
    "GOFLAGS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
)
"""Beginnings of the variables that pip, uv, Go and curl are told a mirror and its certificate by."""

PROXIES = ("http_proxy", "https_proxy", "no_proxy")

WATCH_SECONDS = 15.0
"""How long a command that goes on for ever is watched."""

STOP_SECONDS = 20.0


@dataclass(frozen=True)
class Done:
    """What came of a command."""

    command: str
    seconds: float
    fine: bool
    says: str
    """The end of its output."""


class Machine:
    """Runs commands one after another as in one shell: variables and folder last."""

    def __init__(self, folder: Path, source: Path, python: str, reuse: Path | None) -> None:
        """`folder` becomes the machine's disk; `source` is cloned; binaries built before are taken from `reuse`."""
        self.home, self.clone, self._state = folder / "home", folder / "clone", folder / "variables"
        self.home.mkdir(parents=True)
        subprocess.run(["git", "clone", "--quiet", str(source), str(self.clone)], check=True)
        if reuse is not None:
            cache = self.home / ".cache/rlscaler"
            cache.mkdir(parents=True)
            # With the locks: what others build there at the same time must not be swept away.
            for built in ("bin", "go", "locks"):
                if (reuse / built).is_dir():
                    (cache / built).symlink_to(reuse / built)
        self.environment = {"HOME": str(self.home), "PATH": os.environ["PATH"], "PYTHON": python, "LANG": "C.UTF-8"}
        self.environment |= passed_on(os.environ)

    def run(self, command: str, log: Path, limit: float, watches: bool = False) -> Done:
        """Run one command in the clone; a command that `watches` is right to be running after WATCH_SECONDS."""
        began = time.monotonic()
        before = f"[ -f {self._state} ] && . {self._state}\nset -o pipefail"
        script = f"{before}\n{command}\nrc=$?\nexport -p >{self._state}\nexit $rc"
        with log.open("w", encoding="utf-8") as output:
            process = subprocess.Popen(
                ["bash", "-c", script],
                cwd=self.clone,
                env=self.environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                code: int | None = process.wait(WATCH_SECONDS if watches else limit)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end(process)
        last = next((line for line in reversed(log.read_text(errors="replace").splitlines()) if line.strip()), "")
        fine = code == 0 or (watches and code is None)
        if code is None:
            last = "goes on" if watches else f"not done after {limit:.0f} s; {last}"
        return Done(command, time.monotonic() - began, fine, last if fine else f"exit code {code}: {last}")

    def give_up(self) -> None:
        """Remove the disk."""
        shutil.rmtree(self.home.parent)


def passed_on(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that package clients need."""
    return {
        name: value for name, value in variables.items() if name.startswith(PACKAGE_CLIENTS) or name.lower() in PROXIES
    }


def _end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt what still runs of a command, as Ctrl-C would."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
