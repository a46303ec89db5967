"""Getting the binaries a cluster runs: found, cached, downloaded or built."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from rlscaler_dev.cluster import builder, choice, locks, paths, release, stamps, toolchain
from rlscaler_dev.cluster.choice import AUTO, BUILD, RELEASE, Choice, Found
from rlscaler_dev.cluster.exceptions import BuildError
from rlscaler_dev.cluster.progress import Reporter
from rlscaler_dev.cluster.versions import TOOLS, Tool, Version, parse, pinned, text

SOURCE_VARIABLE = "RLSCALER_BINARIES"
ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"
_PROBE_TIMEOUT_SECONDS = 20.0

Provided = dict[str, dict[str, str]]
"""Tool -> path, version and source."""


def installed_version(tool: Tool, path: Path) -> Version | None:
    """What the binary says of itself; None when it says nothing."""
    try:
        done = subprocess.run(
            [path, *tool.version_arguments],
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse(done.stdout + done.stderr)


def search(tool: Tool) -> list[Found]:
    """The tool in $KUBEBUILDER_ASSETS, then on PATH; our own cache's folder is not counted."""
    places = [os.environ.get(ASSETS_VARIABLE, ""), os.environ.get("PATH", "")]
    candidates = [shutil.which(tool.name, path=place) for place in places if place]
    own = stamps.binary(tool)
    distinct = dict.fromkeys(path for path in candidates if path and Path(path) != own)
    return [Found(path, installed_version(tool, Path(path))) for path in distinct]


def plan(names: Sequence[str], source: str | None = None) -> list[Choice]:
    """Where each binary will come from; asks the network only for those that are nowhere yet."""
    wanted = source or os.environ.get(SOURCE_VARIABLE, AUTO)
    if wanted not in (AUTO, RELEASE, BUILD):
        raise BuildError(f"{SOURCE_VARIABLE}={wanted!r} is not one of auto, release, build")
    return [_choose(TOOLS[name], wanted) for name in names]


def _choose(tool: Tool, source: str) -> Choice:
    cached = str(stamps.binary(tool)) if stamps.valid(tool) else None
    found = search(tool) if source == AUTO else []
    return choice.choose(tool, found, cached, lambda: release.reachable(tool), source)


def provide(names: Sequence[str], reporter: Reporter, source: str | None = None) -> Provided:
    """Make sure that every binary is there; downloads and builds what is missing.

    Raises BuildError or ToolchainError, both with a remedy.
    """
    paths.bin_dir().mkdir(parents=True, exist_ok=True)
    choices = plan(names, source)
    provided: Provided = {}
    to_build = []
    for chosen in choices:
        tool = TOOLS[chosen.tool]
        if chosen.path is not None:
            provided[tool.name] = {"path": chosen.path, "version": _version(tool, chosen), "source": chosen.source}
        elif chosen.source == RELEASE and _downloaded(tool, reporter, strict=source == RELEASE):
            provided[tool.name] = _cached(tool, RELEASE)
        else:
            to_build.append(tool)
    if to_build:
        _build(to_build, reporter)
        provided |= {tool.name: _cached(tool, BUILD) for tool in to_build}
    return provided


def _build(tools: Sequence[Tool], reporter: Reporter) -> None:
    builder.announce(tools, reporter)
    go = toolchain.find(reporter, tools[0].modules)
    with reporter:
        reporter.plan([(tool.name, tool.build_seconds) for tool in tools])
        for tool in tools:
            builder.build(tool, go, reporter)


def _downloaded(tool: Tool, reporter: Reporter, strict: bool) -> bool:
    """Download the release; on failure False (then it is built), or BuildError when `strict`."""
    try:
        with locks.hold(f"build-{tool.name}", reporter.say, f"another process that gets {tool.name}"):
            if not stamps.valid(tool):
                reporter.say(f"downloading {tool.name} {text(pinned(tool))}")
                release.download(tool, reporter)
    except BuildError as error:
        if strict:
            raise
        reporter.say(f"{error.message}; building it instead")
        return False
    reporter.finish(tool.name, f"{text(pinned(tool))} downloaded")
    return True


def _cached(tool: Tool, source: str) -> dict[str, str]:
    return {"path": str(stamps.binary(tool)), "version": text(pinned(tool)), "source": source}


def _version(tool: Tool, chosen: Choice) -> str:
    if chosen.source == choice.CACHE:
        return text(pinned(tool))
    version = installed_version(tool, Path(chosen.path or ""))
    return text(version) if version else ""
