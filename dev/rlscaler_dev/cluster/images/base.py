"""Base of the images on this machine: Debian's Python, from the mirror that apt uses.

Elsewhere that is the official Python image (image/Dockerfile); this one serves machines without a registry. It has the
packages of Debian's release without later security updates: good for tests, not for production.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rlscaler_dev.cluster import paths
from rlscaler_dev.cluster.images.buildah import Buildah
from rlscaler_dev.cluster.progress import Reporter
from rlscaler_dev.cluster.realnode import packages
from rlscaler_dev.exceptions import BuildError

SUITE = "bookworm"
"""Debian's release with Python 3.11."""

RUNTIME = f"localhost/rlscaler-python:{SUITE}"
TOOLS = f"localhost/rlscaler-python-pip:{SUITE}"
"""The same with pip, for the stages that install."""

PACKAGES = ("python3", "ca-certificates")
"""Beyond Debian's smallest system."""

RUNTIME_DOCKERFILE = """\
FROM scratch
ADD root.tar /
ENV PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
"""
TOOLS_DOCKERFILE = f"""\
FROM {RUNTIME}
COPY pip /usr/local/lib/python3.11/dist-packages/pip
"""

WORK = "work-"
"""Begin of the names of folders that a build which was killed may leave; the next one removes them."""

UNUSED = ["var/cache/apt", "var/lib/apt/lists", "var/log", "usr/share/man", "usr/share/locale", "usr/share/info"]
"""Emptied. The copyright files of usr/share/doc stay: the licences ask for that."""


def provide(buildah: Buildah, reporter: Reporter) -> None:
    """Make the base images that are not there yet (the first takes a minute)."""
    for left in paths.images_dir().glob(f"{WORK}*"):
        shutil.rmtree(left)
    for image, make in ((RUNTIME, _runtime), (TOOLS, _tools)):
        if not buildah.exists(image):
            reporter.say(f"making {image}")
            with tempfile.TemporaryDirectory(dir=paths.images_dir(), prefix=WORK) as folder:
                context = Path(folder)
                (context / "Dockerfile").write_text(make(buildah, context), encoding="utf-8")
                options = ["--pull-never", "--timestamp", "0", "--ignorefile", os.devnull, "--tag", image]
                buildah("build", *options, str(context))


def _runtime(buildah: Buildah, context: Path) -> str:
    """Puts a Debian system into `context`; the Dockerfile for it."""
    root, debs = context / "root", paths.images_dir() / "debs"
    debs.mkdir(parents=True, exist_ok=True)
    options = ["--variant=minbase", f"--include={','.join(PACKAGES)}", f"--cache-dir={debs}"]
    buildah.run(packages.needed("debootstrap"), *options, SUITE, str(root), *_mirror())
    _clean(root)
    options = ["--create", "--numeric-owner", "--sort=name", f"--file={context / 'root.tar'}"]
    buildah.run("tar", *options, "--directory", str(root), ".")
    return RUNTIME_DOCKERFILE


def _tools(buildah: Buildah, context: Path) -> str:
    """Puts the pip that comes with Python into `context`; the Dockerfile for it.

    It is taken from a new environment: where a pip is installed already, `ensurepip` may install none.
    """
    fresh = context / "environment"
    try:
        buildah.run(sys.executable, "-m", "venv", str(fresh))
    except BuildError as error:
        remedy = "python3-venv on Debian: apt-get install python3-venv"
        raise BuildError(
            f"no pip for the build image: this Python makes no virtual environment ({remedy})\n{error}"
        ) from error
    shutil.move(next(fresh.glob("lib/python*/site-packages/pip")), context / "pip")
    shutil.rmtree(fresh)
    return TOOLS_DOCKERFILE


def _mirror() -> list[str]:
    """The mirror that apt takes this release from; none = debootstrap's own choice."""
    if shutil.which("apt-get") is None:
        return []
    chosen = ["Created-By: Packages", f"Codename: {SUITE}"]
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", *chosen]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()[:1]


def _clean(root: Path) -> None:
    for folder in (*UNUSED, "dev", "proc", "sys"):
        _empty(root / folder)
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
