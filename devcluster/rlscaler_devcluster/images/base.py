"""What the images stand on here: Debian's Python, from the mirror that apt uses.

Elsewhere that is the official Python image (image/Dockerfile); this one serves machines without a registry. It has the
packages of Debian's release without later security updates: good for tests, not for production.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rlscaler_devcluster import paths
from rlscaler_devcluster.images.buildah import Buildah
from rlscaler_devcluster.progress import Reporter
from rlscaler_devcluster.realnode import packages

SUITE = "bookworm"
"""Debian's release with Python 3.11."""

DOCKERFILE = """\
FROM scratch
ADD root.tar /
ENV PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
"""

UNUSED = ["var/cache/apt", "var/lib/apt/lists", "var/log", "usr/share/man", "usr/share/locale", "usr/share/info"]
"""Emptied. The copyright files of usr/share/doc stay: the licences ask for that."""


@dataclass(frozen=True)
class Base:
    """An image and the Debian packages in it beyond the smallest system."""

    image: str
    packages: tuple[str, ...]


RUNTIME = Base(f"localhost/rlscaler-python:{SUITE}", ("python3", "ca-certificates"))
TOOLS = Base(f"localhost/rlscaler-python-pip:{SUITE}", ("python3", "ca-certificates", "python3-pip"))


def provide(buildah: Buildah, reporter: Reporter) -> None:
    """Make the base images that are not there yet (a minute each)."""
    for base in (RUNTIME, TOOLS):
        if not buildah.exists(base.image):
            reporter.say(f"making {base.image} with debootstrap")
            _make(buildah, base)


def _make(buildah: Buildah, base: Base) -> None:
    debs = paths.images_dir() / "debs"
    debs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=paths.images_dir()) as folder:
        context, root = Path(folder), Path(folder) / "root"
        options = ["--variant=minbase", f"--include={','.join(base.packages)}", f"--cache-dir={debs}"]
        buildah.run(packages.needed("debootstrap"), *options, SUITE, str(root), *_mirror())
        _clean(root)
        options = ["--create", "--numeric-owner", "--sort=name", f"--file={context / 'root.tar'}"]
        buildah.run("tar", *options, "--directory", str(root), ".")
        (context / "Dockerfile").write_text(DOCKERFILE, encoding="utf-8")
        buildah("build", "--timestamp", "0", "--ignorefile", os.devnull, "--tag", base.image, str(context))


def _mirror() -> list[str]:
    """The mirror that apt takes this release from; none = debootstrap's own choice."""
    if shutil.which("apt-get") is None:
        return []
    chosen = ["Created-By: Packages", f"Codename: {SUITE}"]
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", *chosen]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()[:1]


def _clean(root: Path) -> None:
    for folder in UNUSED:
        _empty(root / folder)
    for folder in (root / "dev", root / "proc", root / "sys"):
        _empty(folder)
    for document in (root / "usr/share/doc").glob("*/*"):
        if document.name != "copyright":
            _remove(document)
    for cache in root.glob("usr/**/__pycache__"):
        shutil.rmtree(cache)


def _empty(folder: Path) -> None:
    for entry in folder.iterdir() if folder.is_dir() else ():
        _remove(entry)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
