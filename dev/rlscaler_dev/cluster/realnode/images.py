"""Container images without an engine or a registry: written as archives, imported into containerd."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlscaler_dev.cluster.realnode import packages
from rlscaler_dev.cluster.release import architecture
from rlscaler_dev.exceptions import DevClusterError

PAUSE = "localhost/pause:1"
"""Holds a pod's network; containerd starts one for each pod."""
PROMETHEUS = "localhost/prometheus:1"
NAMESPACE = "k8s.io"
"""containerd's namespace of the kubelet's images."""
_NOBODY = 65534


@dataclass(frozen=True)
class Image:
    """An image of nothing but one statically linked program."""

    name: str
    program: Path
    entrypoint: tuple[str, ...]
    """The first is where the program is put."""
    user: int = _NOBODY


def pause() -> Image:
    """catatonit as a pause process: it reaps, and ends when asked."""
    return Image(PAUSE, Path(packages.needed("catatonit")), ("/catatonit", "-P"))


def prometheus(binary: Path) -> Image:
    """Our build, which discovers pods and nodes."""
    return Image(PROMETHEUS, binary, ("/bin/prometheus",))


def write(image: Image, target: Path) -> Path:
    """Write the image as `docker save` does; the same program gives the same archive.

    Layout: https://github.com/moby/docker-image-spec/blob/main/v1.2.md
    """
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        _add(archive, image.entrypoint[0].lstrip("/"), image.program.read_bytes(), 0o755)
    config = _json(
        {
            "architecture": architecture(),
            "os": "linux",
            "config": {"User": str(image.user), "Entrypoint": list(image.entrypoint), "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{_digest(layer.getvalue())}"]},
        }
    )
    name = f"{_digest(config)}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, "w") as archive:
        _add(archive, "manifest.json", _json([{"Config": name, "RepoTags": [image.name], "Layers": ["layer.tar"]}]))
        _add(archive, name, config)
        _add(archive, "layer.tar", layer.getvalue())
    return target


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def _json(content: Any) -> bytes:
    return json.dumps(content, sort_keys=True).encode()


def _digest(blob: bytes) -> str:
    return hashlib.sha256(blob).hexdigest()


def load(prefix: Sequence[str], archives: Sequence[Path]) -> list[str]:
    """Import archives (OCI or Docker) into the node behind `prefix`; return containerd's message for each.

    Raises DevClusterError that names the file.
    """
    messages = []
    for path in archives:
        if not path.is_file():
            raise DevClusterError(f"no image archive at {path}: `make images` writes those of this project")
        with path.open("rb") as archive:
            done = subprocess.run(
                [*prefix, packages.needed("ctr"), "--namespace", NAMESPACE, "images", "import", "-"],
                stdin=archive,
                capture_output=True,
                text=True,
                check=False,
            )
        if done.returncode:
            raise DevClusterError(f"{path} cannot be imported as an OCI or Docker archive: {done.stderr.strip()}")
        messages += done.stdout.splitlines()
    return messages
