"""Finding binaries on the machine, and the toolchain that builds them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlscaler_dev.cluster import binaries, paths, release, toolchain
from rlscaler_dev.cluster.cli import remove_built
from rlscaler_dev.cluster.progress import Reporter
from rlscaler_dev.cluster.versions import CONTROL_PLANE, TOOLS, pinned, text
from rlscaler_dev.exceptions import BuildError, ToolchainError

ETCD = TOOLS["etcd"]


def script(folder: Path, name: str, output: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{output}'\n")
    path.chmod(0o755)
    return path


def test_kubebuilder_assets_come_before_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = script(tmp_path / "path", "etcd", "etcd Version: 3.5.9")
    asset = script(tmp_path / "assets", "etcd", "etcd Version: 3.6.1")
    monkeypatch.setenv("PATH", f"{on_path.parent}:/bin")
    assert [found.version for found in binaries.search(ETCD)] == [(3, 5, 9)]
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(asset.parent))
    assert [found.version for found in binaries.search(ETCD)] == [(3, 6, 1), (3, 5, 9)]


def test_what_is_on_path_is_provided_without_building(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = script(tmp_path / "path", "etcd", "etcd Version: 3.6.1")
    monkeypatch.setenv("PATH", f"{on_path.parent}:/bin")
    assert binaries.provide(["etcd"], Reporter()) == {
        "etcd": {"path": str(on_path), "version": "3.6.1", "source": "path"}
    }


def test_an_unknown_source_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLSCALER_BINARIES", "nowhere")
    with pytest.raises(BuildError, match="auto, release, build"):
        binaries.plan(["etcd"])


def test_releases_are_located_where_upstream_publishes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    for name in CONTROL_PLANE:
        found = release.locate(TOOLS[name])
        assert found is not None
        assert text(pinned(TOOLS[name])) in found.url
        assert "arm64" in found.url
    assert release.locate(TOOLS["prometheus-adapter"]) is None
    assert release.locate(TOOLS["rlscaler-kube-scheduler"]) is None, "ours, from packages of Kubernetes"


@pytest.mark.parametrize(
    ("version", "switching", "enough"),
    [
        ((1, 26, 8), "local", True),
        ((1, 25, 0), "local", False),
        ((1, 25, 0), "auto", True),
        ((1, 20, 0), "auto", False),
    ],
)
def test_an_older_toolchain_will_do_when_it_may_fetch_a_newer_one(
    version: tuple[int, int, int], switching: str, enough: bool
) -> None:
    assert toolchain.new_enough(version, switching, (1, 26, 4)) is enough


def test_without_go_and_without_an_installer_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(toolchain, "_installer", lambda: None)
    with pytest.raises(ToolchainError, match=r"go\.dev/dl.*KUBEBUILDER_ASSETS.*--kubeconfig"):
        toolchain.find(Reporter())


def test_cleaning_copes_with_gos_read_only_folders() -> None:
    module = paths.go_dir() / "mod" / "example.com@v1.0.0"
    module.mkdir(parents=True)
    (module / "go.mod").write_text("module example.com\n")
    module.chmod(0o555)
    assert list(remove_built(["go"])) != []
    assert not paths.go_dir().exists()
