"""Downloading, verifying and unpacking a release. A server on loopback stands for upstream's addresses."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest

from rlscaler_dev.cluster import binaries, release, stamps
from rlscaler_dev.cluster.progress import Reporter
from rlscaler_dev.cluster.release import Release
from rlscaler_dev.cluster.versions import TOOLS
from rlscaler_dev.exceptions import BuildError
from tests.harness.serving import serving

ETCD = TOOLS["etcd"]
PROGRAM = b"#!/bin/sh\necho etcd Version: 3.6.11\n"


@pytest.fixture
def upstream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that upstream serves; etcd's release is in it."""
    folder = tmp_path / "upstream"
    folder.mkdir()
    with tarfile.open(folder / "etcd.tar.gz", "w:gz") as archive:
        entry = tarfile.TarInfo("etcd-v3/etcd")
        entry.size = len(PROGRAM)
        archive.addfile(entry, io.BytesIO(PROGRAM))
    digest = hashlib.sha256((folder / "etcd.tar.gz").read_bytes()).hexdigest()
    (folder / "SHA256SUMS").write_text(f"0000  other.tar.gz\n{digest}  etcd.tar.gz\n")
    monkeypatch.setattr(release, "host_reachable", lambda _: True)
    monkeypatch.setenv("PATH", "/nonexistent")
    with serving(partial(SimpleHTTPRequestHandler, directory=str(folder))) as url:
        found = Release(f"{url}/etcd.tar.gz", f"{url}/SHA256SUMS", "etcd-v3/etcd")
        monkeypatch.setattr(release, "locate", lambda _: found)
        yield folder


def test_a_release_is_downloaded_unpacked_and_stamped(upstream: Path) -> None:
    assert release.reachable(ETCD)
    assert binaries.provide(["etcd"], Reporter())["etcd"]["source"] == "release"
    assert stamps.binary(ETCD).read_bytes() == PROGRAM
    stamp = stamps.valid(ETCD)
    assert stamp is not None
    assert stamp.source == "release"
    (upstream / "etcd.tar.gz").unlink()
    assert binaries.provide(["etcd"], Reporter())["etcd"]["source"] == "cache"


def test_a_download_that_was_altered_is_refused(upstream: Path) -> None:
    (upstream / "SHA256SUMS").write_text("0123  etcd.tar.gz\n")
    with pytest.raises(BuildError, match="does not match"):
        binaries.provide(["etcd"], Reporter(), source="release")
    assert [entry for entry in stamps.binary(ETCD).parent.iterdir() if entry.is_file()] == []


def test_a_release_that_is_not_there_is_not_chosen(upstream: Path) -> None:
    (upstream / "etcd.tar.gz").unlink()
    assert not release.reachable(ETCD)
    assert binaries.plan(["etcd"])["etcd"].source == "build"
    with pytest.raises(BuildError, match="404"):
        binaries.provide(["etcd"], Reporter(), source="release")
