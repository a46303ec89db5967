"""Building binaries from the Go module proxy, once, into our cache.

Two builds may run at once: each binary has a lock, and the build that waited for it finds it done. A build that is
killed is taken up again: finished binaries are stamped, and Go's build cache keeps every finished package of the rest.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import tenacity

from rlscaler_dev.cluster import paths, stamps
from rlscaler_dev.cluster.progress import Reporter
from rlscaler_dev.cluster.stamps import Stamp
from rlscaler_dev.cluster.toolchain import Go
from rlscaler_dev.cluster.versions import Tool, linker_flags
from rlscaler_dev.exceptions import BuildError, ToolchainError

DISK_RESERVE_MB = 500
RETRY_SECONDS = 2.0
_PACKAGE = re.compile(r"[\w./~+-]+")
"""A line of `go build -v` about a package that it compiles; every other line is a complaint."""
_IN_CACHE = "true not installed but available in build cache"


def module_dir(modules: str) -> Path:
    """A writable copy of tools/MODULES, since the package may be installed read-only."""
    source = resources.files("rlscaler_dev.cluster").joinpath("tools", modules)
    target = paths.go_dir() / "modules" / modules
    for entry in source.iterdir():
        if entry.name.endswith((".go", ".mod", ".sum")):
            content, copy = entry.read_text(encoding="utf-8"), target / entry.name
            if not copy.exists() or copy.read_text(encoding="utf-8") != content:
                paths.replace(copy, content)
    return target


def module_source(module: str, modules: str, go: Go) -> Path:
    """The read-only source of a Go module in the version that tools/MODULES pins; downloaded the first time."""
    return Path(json.loads(go.run("mod", "download", "-json", module, cwd=module_dir(modules)))["Dir"])


def disk_needed_mb(tools: Sequence[Tool]) -> int:
    """Free space that building `tools` takes: their binaries, and Go's caches less their present size."""
    caches = sum(tool.disk_mb for tool in tools)
    present = sum(size_mb(paths.go_dir() / part) for part in ("build", "mod")) if caches else 0
    return sum(tool.size_mb for tool in tools) + max(0, caches - present)


def size_mb(directory: Path) -> int:
    """Disk space a directory takes; 0 when it is missing."""
    total = 0
    for folder, _, files in os.walk(directory):
        for name in files:
            try:
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
            except OSError:
                continue
    return total >> 20


def announce(tools: Sequence[Tool], reporter: Reporter) -> None:
    """Report time, download and disk of a build; raises BuildError when the disk is too small for it."""
    needed = disk_needed_mb(tools)
    paths.cache_root().mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(paths.cache_root()).free >> 20
    seconds = sum(tool.build_seconds for tool in tools)
    duration = f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds} s"
    download = sum(tool.download_mb for tool in tools)
    reporter.say(
        f"building {', '.join(tool.name for tool in tools)} once into {paths.cache_root()}: about {duration} on two "
        f"cores, at most {download} MB of Go modules to download, {needed / 1000:.1f} GB of disk "
        "(`rlscaler cluster clean --go` frees all but the binaries)"
    )
    if free < needed + DISK_RESERVE_MB:
        raise BuildError(
            f"the build needs {needed / 1000:.1f} GB and {paths.cache_root()} has {free / 1000:.1f} GB free: "
            "free some space or point RLSCALER_CACHE to a larger disk"
        )


def build(tool: Tool, go: Go, reporter: Reporter) -> Stamp:
    """Build one binary, unless another process has just done so; raises BuildError with the compiler's last words."""
    paths.bin_dir().mkdir(parents=True, exist_ok=True)
    with paths.hold(f"build-{tool.name}", reporter.say, f"another process that builds {tool.name}"):
        if stamp := stamps.valid(tool):
            return stamp
        began = time.monotonic()
        for left_by_killed in paths.bin_dir().glob(f".{tool.name}+*"):
            shutil.rmtree(left_by_killed, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=f".{tool.name}+", dir=paths.bin_dir()) as scratch:
            output = Path(scratch) / tool.name
            _compile_with_retry(tool, go, output, reporter)
            stamp = stamps.install(tool, output, "build")
        seconds = time.monotonic() - began
        reporter.finish(tool.name, f"{stamp.version} built in {seconds:.0f} s, {stamp.size >> 20} MB")
        return stamp


def _compile_with_retry(tool: Tool, go: Go, output: Path, reporter: Reporter) -> None:
    """Try once more after a failure: downloads break off, and compiled packages are kept, so this is cheap."""

    def announce_retry(retry: tenacity.RetryCallState) -> None:
        assert retry.outcome is not None
        reporter.say(f"trying {tool.name} once more: {retry.outcome.exception()}")

    tenacity.Retrying(
        stop=tenacity.stop_after_attempt(2),
        wait=tenacity.wait_fixed(RETRY_SECONDS),
        retry=tenacity.retry_if_exception_type((BuildError, ToolchainError)),
        before_sleep=announce_retry,
        reraise=True,
    )(_compile, tool, go, output, reporter)


def _compile(tool: Tool, go: Go, output: Path, reporter: Reporter) -> None:
    directory = module_dir(tool.modules)
    flags = ["-tags", ",".join(tool.tags), "-ldflags", linker_flags(tool)]
    reporter.step(tool.name, 0, 0)
    listed = go.run("list", "-deps", *flags, "-f", "{{.Stale}} {{.StaleReason}}", tool.package, cwd=directory)
    stale = sum(line.startswith("true") and line != _IN_CACHE for line in listed.splitlines())
    command = [str(go.command), "build", "-v", *flags, "-o", str(output), tool.package]
    # Not in /tmp, which may be small or swept while we build.
    environment = go.environment | {"GOTMPDIR": str(output.parent)}
    complaints: deque[str] = deque(maxlen=20)
    with subprocess.Popen(
        command, cwd=directory, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            for done, line in enumerate(process.stderr, start=1):
                reporter.step(tool.name, min(done, stale), stale)
                if not _PACKAGE.fullmatch(line.rstrip()):
                    complaints.append(line.rstrip())
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise BuildError(
            f"building {tool.name} failed with exit code {process.returncode}; run again to go on from here. "
            "The compiler's last lines:\n" + "\n".join(complaints)
        )
