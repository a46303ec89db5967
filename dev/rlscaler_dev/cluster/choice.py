"""Where a binary comes from. The order is decided here, without touching disk or network."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rlscaler_dev.cluster.versions import Tool, Version, accepts, pinned, text

PATH, CACHE, RELEASE, BUILD = "path", "cache", "release", "build"
AUTO = "auto"


@dataclass(frozen=True)
class Found:
    """A binary on PATH or in $KUBEBUILDER_ASSETS; version None when it did not say."""

    path: str
    version: Version | None


@dataclass(frozen=True)
class Choice:
    """The source of one binary, and why."""

    tool: str
    source: str
    path: str | None
    reason: str


def choose(
    tool: Tool, found: Iterable[Found], cached: str | None, release_reachable: Callable[[], bool], source: str = AUTO
) -> Choice:
    """PATH with a version that will do, else our cache, else upstream's release, else a build.

    `cached` is the path of a current binary in our cache, which came from a release or a build before. The network is
    asked only when nothing is there yet. `source` 'release' or 'build' passes over what is found on PATH.
    """
    wanted = text(pinned(tool))
    refused: list[str] = []
    if source == AUTO:
        for candidate in found:
            if candidate.version is not None and accepts(tool, candidate.version):
                return Choice(tool.name, PATH, candidate.path, f"{text(candidate.version)} found at {candidate.path}")
            seen = text(candidate.version) if candidate.version else "of unknown version"
            refused.append(f"{candidate.path} is {seen}, not compatible with {wanted}")
    note = f" ({'; '.join(refused)})" if refused else ""
    if cached is not None:
        return Choice(tool.name, CACHE, cached, f"{wanted} in our cache{note}")
    if source == RELEASE or (source == AUTO and release_reachable()):
        return Choice(tool.name, RELEASE, None, f"{wanted} from upstream's release{note}")
    return Choice(tool.name, BUILD, None, f"{wanted} built from the Go module proxy{note}")
