"""Reading image archives, the bill of materials, trimming, and what is said where images cannot be built."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tarfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from rlscaler_dev.cluster.images import buildah, content, sbom
from rlscaler_dev.cluster.images.make import build
from rlscaler_dev.cluster.realnode import packages
from rlscaler_dev.exceptions import BuildError

ROOT = Path(__file__).parents[3]
REQUIREMENTS = ROOT / "requirements"

STATUS = """\
Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9
Description: GNU C Library
 over several lines

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1
"""

METADATA = (
    "Name: Some_Package\nVersion: 1.2\nLicense: {license}\nClassifier: License :: OSI Approved :: MIT License\n\nText"
)


def _tar(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode("latin-1"))
            archive.addfile(entry, io.BytesIO(text.encode("latin-1")))
    return buffer.getvalue()


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Three layers: a base, one that adds two distributions, one that takes one of them away again."""
    layers = {
        "base.tar": _tar({"./var/lib/dpkg/status": STATUS, "./etc/passwd": "root"}),
        "more.tar": _tar(
            {
                "app/lib/numpy/core.py": "x" * 100,
                "app/lib/numpy-2.0.dist-info/METADATA": METADATA.format(license="BSD-3-Clause"),
                "app/lib/old-1.0.dist-info/METADATA": METADATA.format(license="MIT"),
                "app/rlscaler/rlscaler_operator/run/main.py": "y" * 10,
            }
        ),
        "less.tar": _tar({"app/lib/.wh.old-1.0.dist-info": ""}),
    }
    config = {"config": {"User": "65532"}, "rootfs": {"diff_ids": ["sha256:a", "sha256:b", "sha256:c"]}}
    manifest = [{"Config": "abc.json", "RepoTags": ["localhost/x:1"], "Layers": list(layers)}]
    files = {name: data.decode("latin-1") for name, data in layers.items()}
    archive = tmp_path / "x.tar"
    archive.write_bytes(_tar({"manifest.json": json.dumps(manifest), "abc.json": json.dumps(config), **files}))
    return archive


def test_content_is_what_a_container_sees(image: Path) -> None:
    found = content.read(image, sbom.wanted)
    assert found.image_id == "abc"
    assert found.config == {"User": "65532"}
    assert set(found.texts) == {"var/lib/dpkg/status", "app/lib/numpy-2.0.dist-info/METADATA"}


def test_file_that_is_no_archive_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "x.tar"
    broken.write_text("nothing")
    with pytest.raises(BuildError, match=r"x\.tar is no image archive .*make images"):
        content.read(broken)


def test_bill_names_python_and_debian_packages(image: Path) -> None:
    bill = json.loads(sbom.render("rlscaler", "1.0", content.read(image, sbom.wanted)))
    assert bill["metadata"]["component"]["name"] == "rlscaler"
    assert {part["purl"] for part in bill["components"]} == {
        "pkg:deb/debian/libc6@2.36-9?arch=amd64",
        "pkg:pypi/some-package@1.2",
    }


def test_everything_that_is_missing_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(packages, "locate", lambda _: None)
    with pytest.raises(BuildError, match=r"root .*debootstrap, buildah missing: `make e2e-packages`.*docker build"):
        buildah.check()


def test_images_are_built_from_a_checkout(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=re.escape(f"{tmp_path} has no image/Dockerfile")):
        build(source=tmp_path)


def test_trimming_keeps_what_is_loaded(tmp_path: Path) -> None:
    models = tmp_path / "kubernetes" / "client" / "models"
    for name, text in {
        "kubernetes/__init__.py": "",
        "kubernetes/client/__init__.py": "",
        "kubernetes/client/models/__init__.py": "",
        "kubernetes/client/models/used.py": "",
        "kubernetes/client/models/unused.py": "",
        "program.py": "from kubernetes.client.models import used\n\ndef main(): ...",
        "numpy/tests/test_x.py": "",
        "numpy/x.pyi": "",
        "bin/tool": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    _trim(tmp_path, "program:main")
    assert {path.name for path in models.glob("*.py")} == {"__init__.py", "used.py"}
    assert not (tmp_path / "bin").exists()
    assert not list(tmp_path.glob("numpy/*"))
    assert list((tmp_path / "__pycache__").glob("program.*.pyc"))


def test_every_module_that_an_image_starts_from_exists() -> None:
    text = (ROOT / "image" / "Dockerfile").read_text().replace("\\\n", " ")
    names = [name for line in re.findall(r"trim\.py /app/lib (.*)", text) for name in line.split()]
    modules = [name for name in names if name.startswith("rlscaler_")]
    assert len(modules) > 7
    # Not imported: Locust patches the standard library.
    assert [name for name in modules if find_spec(name) is None] == []


def test_trimming_fails_where_a_name_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        _trim(tmp_path, "nothing.of.this.name")


def _trim(folder: Path, *names: str) -> None:
    command = [sys.executable, str(ROOT / "image" / "trim.py"), str(folder), *names]
    environment = {"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin"}
    subprocess.run(command, check=True, env=environment, capture_output=True)


def _pins(name: str) -> dict[str, str]:
    lines = (REQUIREMENTS / name).read_text(encoding="utf-8").splitlines()
    return dict(re.match(r"([a-z0-9._-]+)==(\S+)", line).groups() for line in lines if re.match(r"[a-z0-9]", line))


@pytest.mark.parametrize("name", ["demo.txt", "operator.txt", "service.txt", "build.txt"])
def test_demo_and_images_install_the_versions_of_the_lock(name: str) -> None:
    locked, pins = _pins("lock.txt"), _pins(name)
    assert pins
    assert {package: locked.get(package, pin) for package, pin in pins.items()} == pins


def test_demo_is_a_part_of_the_lock_without_training() -> None:
    pins = _pins("demo.txt")
    assert pins.items() <= _pins("lock.txt").items()
    assert {"kopf", "locust", "matplotlib", "psutil"} <= set(pins)
    assert not {"torch", "numba", "ray", "scipy", "stable-baselines3"} & set(pins)


def test_operator_image_installs_nothing_of_training() -> None:
    assert not {"torch", "locust", "numba", "gymnasium", "matplotlib", "pandas"} & set(_pins("operator.txt"))
    assert not {"onnxruntime", "kopf"} & set(_pins("service.txt"))
