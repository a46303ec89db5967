"""Getting the binaries a cluster runs: found, cached, downloaded or built."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rlscaler_dev.cluster import builder, paths, release, stamps, toolchain
from rlscaler_dev.cluster.progress import Reporter
from rlscaler_dev.cluster.versions import TOOLS, Tool, Version, accepts, parse, pinned, text
from rlscaler_dev.exceptions import BuildError

PATH, CACHE, RELEASE, BUILD = "path", "cache", "release", "build"
AUTO = "auto"
SOURCE_VARIABLE = "RLSCALER_BINARIES"
ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"
_PROBE_TIMEOUT_SECONDS = 20.0

Provided = dict[str, dict[str, str]]
"""Tool -> path, version and source."""


@dataclass(frozen=True)
class Found:
    """A binary on PATH or in $KUBEBUILDER_ASSETS; version None when it did not say."""

    path: str
    version: Version | None


@dataclass(frozen=True)
class Choice:
    """The source of one binary; path and version where it is there already."""

    source: str
    path: str = ""
    version: Version | None = None


def choose(
    tool: Tool,
    candidates: Iterable[Found],
    cached: str | None,
    release_reachable: Callable[[], bool],
    source: str = AUTO,
) -> Choice:
    """Choose a binary on PATH with a compatible version, else our cache, else upstream's release, else a build.

    `cached` is the path of a current binary in our cache, from an earlier release or build. The network is used only
    when neither PATH nor the cache has a binary. `source` 'release' or 'build' passes over binaries on PATH.
    """
    for candidate in candidates if source == AUTO else ():
        if candidate.version is not None and accepts(tool, candidate.version):
            return Choice(PATH, candidate.path, candidate.version)
    if cached is not None:
        return Choice(CACHE, cached, pinned(tool))
    if source == RELEASE or (source == AUTO and release_reachable()):
        return Choice(RELEASE)
    return Choice(BUILD)


def installed_version(tool: Tool, path: Path) -> Version | None:
    """Return the version that the binary prints; None when it prints none."""
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


def plan(names: Sequence[str], source: str | None = None) -> dict[str, Choice]:
    """Return the source of each binary; asks the network only for those that are nowhere yet."""
    wanted = source or os.environ.get(SOURCE_VARIABLE, AUTO)
    if wanted not in (AUTO, RELEASE, BUILD):
        raise BuildError(f"{SOURCE_VARIABLE}={wanted!r} is not one of auto, release, build")
    choices = {}
    for name in names:
        tool = TOOLS[name]
        cached = str(stamps.binary(tool)) if stamps.valid(tool) else None
        candidates = search(tool) if wanted == AUTO else []
        choices[name] = choose(tool, candidates, cached, partial(release.reachable, tool), wanted)
    return choices


def provide(names: Sequence[str], reporter: Reporter, source: str | None = None) -> Provided:
    """Make sure that every binary is there; download or build the missing ones.

    Raises BuildError or ToolchainError, both with a remedy.
    """
    paths.bin_dir().mkdir(parents=True, exist_ok=True)
    provided: Provided = {}
    to_build = []
    for name, chosen in plan(names, source).items():
        tool = TOOLS[name]
        if chosen.version is not None:
            provided[name] = {"path": chosen.path, "version": text(chosen.version), "source": chosen.source}
        elif chosen.source == RELEASE and _downloaded(tool, reporter, strict=source == RELEASE):
            provided[name] = _cached(tool, RELEASE)
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
        with paths.hold(f"build-{tool.name}", reporter.say, f"another process that gets {tool.name}"):
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
