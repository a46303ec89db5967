"""Builds image/Dockerfile into archives that containerd, Docker and kind load."""

from __future__ import annotations

import json
import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rlscaler_dev.cluster import paths
from rlscaler_dev.cluster.images import base, content, sbom
from rlscaler_dev.cluster.images.buildah import Buildah, check
from rlscaler_dev.cluster.progress import Reporter
from rlscaler_dev.exceptions import BuildError

IMAGES = {"rlscaler": "operator", "rlscaler-service": "service"}
"""Image and the stage of the Dockerfile that it is."""

DOCKERFILE = Path("image/Dockerfile")
PIP = ("PIP_INDEX_URL", "PIP_CERT")
"""Variables of pip that hold inside the build too, where they are set outside."""


def reference(name: str) -> str:
    """The image's full name."""
    return f"localhost/{name}:{version('rlscaler')}"


def archive(name: str) -> Path:
    """Return the path of the image's archive, which may not exist yet."""
    return paths.images_dir() / f"{name}-{version('rlscaler')}.tar"


def build(reporter: Reporter | None = None, source: Path | None = None) -> dict[str, Path]:
    """Build all images from the checkout `source` (default: the working directory); image -> archive.

    An unchanged image is not built again. Raises BuildError that names a missing program, or the log.
    """
    source, reporter = source or Path(), reporter or Reporter()
    if not (source / DOCKERFILE).is_file():
        raise BuildError(f"{source.absolute()} has no {DOCKERFILE}: images are built from a checkout, go there")
    check()
    with paths.hold("images", reporter.say, "another build of the images"):
        buildah = Buildah(paths.images_dir() / "build.log")
        buildah("rm", "--all")
        base.provide(buildah, reporter)
        return {name: _image(buildah, source, name, reporter) for name in IMAGES}


def sizes(name: str) -> dict[str, Any]:
    """Return the sizes that the last build measured, in bytes; empty before the first."""
    try:
        return dict(json.loads(_sizes_file(name).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _sizes_file(name: str) -> Path:
    return archive(name).with_suffix(".sizes.json")


def _image(buildah: Buildah, source: Path, name: str, reporter: Reporter) -> Path:
    file, full_name = archive(name), reference(name)
    reporter.say(f"building {full_name}")
    options = ["--isolation", "chroot", "--pull-never", "--layers", "--timestamp", "0", "--target", IMAGES[name]]
    options += ["--build-arg", f"PYTHON_IMAGE={base.RUNTIME}", "--build-arg", f"BUILD_IMAGE={base.TOOLS}"]
    options += ["--label", f"org.opencontainers.image.version={version('rlscaler')}"]
    options += ["--ignorefile", str(source / f"{DOCKERFILE}.dockerignore"), "--file", str(source / DOCKERFILE)]
    buildah("build", *options, *_pip_options(), "--tag", full_name, str(source))
    image_id = buildah("images", "--quiet", "--no-trunc", full_name).removeprefix("sha256:")
    if not (file.is_file() and sizes(name).get("image") == image_id):
        _write(buildah, name, image_id)
    return file


def _pip_options() -> list[str]:
    """Variables without their values, which may hold a password: buildah reads them from its environment."""
    options = [f"--build-arg={variable}" for variable in PIP if os.environ.get(variable)]
    if certificate := os.environ.get("PIP_CERT"):
        options.append(f"--volume={certificate}:{certificate}:ro")
    return options


def _write(buildah: Buildah, name: str, image_id: str) -> None:
    """The archive, its SBOM, and last its sizes: they say that all three are complete."""
    file, full_name = archive(name), reference(name)
    part = file.with_suffix(".part")
    part.unlink(missing_ok=True)
    buildah("push", full_name, f"docker-archive:{part}:{full_name}")
    image = content.read(part, sbom.wanted)
    _sizes_file(name).unlink(missing_ok=True)
    part.replace(file)
    file.with_suffix(".cdx.json").write_text(sbom.render(name, version("rlscaler"), image) + "\n", encoding="utf-8")
    below = len(json.loads(buildah("inspect", "--type", "image", base.RUNTIME))["OCIv1"]["rootfs"]["diff_ids"])
    measured = {
        "image": image_id,
        "over_base": image.over(below),
        "total": image.over(0),
        "layers": [sum(files.values()) for files in image.sizes],
        "packages": image.by_package(below),
    }
    _sizes_file(name).write_text(json.dumps(measured, indent=2) + "\n", encoding="utf-8")


LARGEST = 8
"""Libraries that are named."""


def table(measured: dict[str, dict[str, Any]]) -> str:
    """Three lines an image: the size over its base, its base, its archive; MB of 10^6 uncompressed bytes."""
    lines = []
    for name, sizes in measured.items():
        packages = list(sizes["packages"].items())
        largest = ", ".join(f"{package} {_mb(size)}" for package, size in packages[:LARGEST])
        rest = sum(size for _, size in packages[LARGEST:])
        lines += [
            f"{name:<17} {_mb(sizes['over_base'])} MB over its base, {_mb(sizes['total'])} MB in all",
            f"{'':<17} {largest}, others {_mb(rest)}",
            f"{'':<17} {sizes['archive']}",
        ]
    return "\n".join(lines)


def _mb(size: int) -> str:
    return f"{size / 1e6:.1f}"
