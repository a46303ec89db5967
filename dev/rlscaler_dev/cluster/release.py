"""Release binaries as upstream publishes them, at the addresses that kwokctl downloads from."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import tarfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import requests

from rlscaler_dev.cluster import paths, stamps
from rlscaler_dev.cluster.progress import Reporter
from rlscaler_dev.cluster.versions import Tool, pinned, text
from rlscaler_dev.exceptions import BuildError

PROBE_TIMEOUT_SECONDS = 3.0
DOWNLOAD_TIMEOUT_SECONDS = 30.0
_CHUNK_BYTES = 1 << 20
_GITHUB = "https://github.com"


@dataclass(frozen=True)
class Release:
    """Place at which a binary is published."""

    url: str
    checksum_url: str | None
    """A file with the SHA-256 sums, alone or beside file names; None where upstream publishes none."""
    member: str | None = None
    """Path inside the archive; None when the download is the binary itself."""


def architecture() -> str:
    """Go's name of this machine's architecture."""
    machine = platform.machine().lower()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def locate(tool: Tool) -> Release | None:
    """The release of the pinned version for Linux on this architecture; None when upstream publishes images only."""
    version, arch = text(pinned(tool)), architecture()
    if tool.package.startswith("k8s.io/kubernetes/"):
        url = f"https://dl.k8s.io/release/v{version}/bin/linux/{arch}/{tool.name}"
        return Release(url, f"{url}.sha256")
    if tool.name == "etcd":
        base = f"{_GITHUB}/etcd-io/etcd/releases/download/v{version}"
        folder = f"etcd-v{version}-linux-{arch}"
        return Release(f"{base}/{folder}.tar.gz", f"{base}/SHA256SUMS", f"{folder}/etcd")
    if tool.name == "prometheus":
        base = f"{_GITHUB}/prometheus/prometheus/releases/download/v{version}"
        folder = f"prometheus-{version}.linux-{arch}"
        return Release(f"{base}/{folder}.tar.gz", f"{base}/sha256sums.txt", f"{folder}/prometheus")
    if tool.name in ("kwok", "metrics-server"):
        base = f"{_GITHUB}/kubernetes-sigs/{tool.name}/releases/download/v{version}"
        return Release(f"{base}/{tool.name}-linux-{arch}", None)
    return None


@cache
def host_reachable(host: str) -> bool:
    """Whether the network lets us reach a download host; asked once per run."""
    try:
        requests.head(f"https://{host}/", timeout=PROBE_TIMEOUT_SECONDS, allow_redirects=False)
    except requests.RequestException:
        return False
    return True


def reachable(tool: Tool) -> bool:
    """Whether the tool's release exists and can be downloaded from here."""
    release = locate(tool)
    if release is None or not host_reachable(urlsplit(release.url).netloc):
        return False
    try:
        return requests.head(release.url, timeout=PROBE_TIMEOUT_SECONDS, allow_redirects=True).ok
    except requests.RequestException:
        return False


def download(tool: Tool, reporter: Reporter) -> stamps.Stamp:
    """Download, verify and install the release; raises BuildError."""
    release = locate(tool)
    if release is None:
        raise BuildError(f"upstream publishes no {tool.name} binary: use --source build")
    target = paths.bin_dir() / f".{tool.name}.{os.getpid()}.download"
    try:
        digest = _fetch(release.url, target, tool.name, reporter)
        if release.checksum_url:
            _verify(release, digest)
        if release.member:
            target = _extract(target, release.member)
        return stamps.install(tool, target, "release")
    except (requests.RequestException, OSError, tarfile.TarError, KeyError) as error:
        raise BuildError(f"cannot download {tool.name} from {release.url}: {error}") from error
    finally:
        target.unlink(missing_ok=True)


def _fetch(url: str, target: Path, name: str, reporter: Reporter) -> str:
    """Save the answer's body; its SHA-256 in hexadecimal."""
    digest = hashlib.sha256()
    with requests.get(url, stream=True, timeout=DOWNLOAD_TIMEOUT_SECONDS) as answer, target.open("wb") as file:
        answer.raise_for_status()
        total, done = int(answer.headers.get("Content-Length", 0)), 0
        for chunk in answer.iter_content(_CHUNK_BYTES):
            file.write(chunk)
            digest.update(chunk)
            done += len(chunk)
            reporter.step(name, done >> 20, max(total, done) >> 20)
    return digest.hexdigest()


def _verify(release: Release, digest: str) -> None:
    assert release.checksum_url is not None
    answer = requests.get(release.checksum_url, timeout=DOWNLOAD_TIMEOUT_SECONDS)
    answer.raise_for_status()
    if digest != checksum(answer.text, release.url.rsplit("/", 1)[1]):
        raise BuildError(f"{release.url} does not match {release.checksum_url}: the download was cut short or altered")


def checksum(sums: str, file_name: str) -> str:
    """The SHA-256 of `file_name` in a checksum file; a file with a single bare sum stands for any name."""
    for line in sums.splitlines():
        digest, _, name = line.partition(" ")
        if name.strip().lstrip("*") in (file_name, ""):
            return digest
    raise KeyError(f"no checksum of {file_name}")


def _extract(archive: Path, member: str) -> Path:
    """The one file out of a gzipped tar archive, which is removed."""
    target = archive.with_suffix(".binary")
    with tarfile.open(archive) as content:
        source = content.extractfile(member)
        if source is None:
            raise KeyError(f"{member} is not a file in the archive")
        with source, target.open("wb") as file:
            shutil.copyfileobj(source, file)
    archive.unlink()
    return target
