"""The images as they are built here: what is in them, who runs them, how large they are."""

import json
import tarfile
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from rlscaler_dev.cluster import paths
from rlscaler_dev.cluster.images import content
from rlscaler_dev.cluster.images.buildah import Buildah
from rlscaler_dev.cluster.images.make import IMAGES, archive, build, reference, sizes
from rlscaler_dev.exceptions import BuildError

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
LIMIT = 250e6
"""Uncompressed bytes that the operator's image may add to its base."""

COMMANDS = {
    "rlscaler": [["operator", "run"], ["explain"], ["replay"], ["status"]],
    "rlscaler-service": [
        ["service", "pod"],
        ["service", "fleet"],
        ["load", "run"],
        ["load", "master"],
        ["load", "worker"],
    ],
}

NOT_OURS = {"torch", "locust", "numba", "gymnasium", "scipy", "pandas", "matplotlib", "pytest"}
"""Distributions that the operator has no use for."""


@pytest.fixture(scope="module", autouse=True)
def built() -> dict[str, Path]:
    return build(source=ROOT)


@pytest.fixture(scope="module", params=IMAGES)
def image(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def found(image: str) -> content.Content:
    return content.read(archive(image), lambda path: path == "etc/passwd" or path.startswith("app/"))


def test_operator_is_small() -> None:
    assert 50e6 < sizes("rlscaler")["over_base"] <= LIMIT


def test_runs_as_nobody_in_particular(found: content.Content) -> None:
    assert found.config["User"] == "65532:65532"
    assert found.config["Entrypoint"] == ["rlscaler"]
    assert not found.config.get("Cmd")
    assert "rlscaler:x:65532:65532::/tmp:/usr/sbin/nologin" in found.texts["etc/passwd"]


def test_carries_no_secret_of_the_build(found: content.Content) -> None:
    environment = " ".join(found.config["Env"])
    assert "PIP_" not in environment
    assert "PROXY" not in environment.upper()


def test_is_named_in_full(image: str) -> None:
    with tarfile.open(archive(image)) as tar:
        assert json.load(tar.extractfile("manifest.json"))[0]["RepoTags"] == [reference(image)]


def test_operator_holds_nothing_of_training() -> None:
    assert not NOT_OURS & {name.lower() for name in _bill("rlscaler")}
    assert {"kopf", "onnxruntime", "numpy", "grpcio"} <= set(_bill("rlscaler"))


def test_service_holds_locust_and_no_actor() -> None:
    assert {"locust", "aiohttp"} <= set(_bill("rlscaler-service"))
    assert not {"onnxruntime", "kopf", "torch"} & set(_bill("rlscaler-service"))


def test_bill_is_valid_and_complete(image: str, found: content.Content) -> None:
    text = archive(image).with_suffix(".cdx.json").read_text(encoding="utf-8")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bill = _bill(image)
    assert bill["rlscaler"] == version("rlscaler")
    assert {"python3.11", "libc6", "ca-certificates"} <= set(bill)
    installed = {path for path in found.texts if path.endswith(".dist-info/METADATA")}
    python = [part for part in _document(image)["components"] if part["purl"].startswith("pkg:pypi/")]
    assert len(installed) == len(python)


@pytest.fixture
def run(image: str) -> Iterator[Callable[..., str]]:
    """Runs the image's `rlscaler` as the image's user, in a changed root and without network."""
    buildah = Buildah(paths.images_dir() / "test.log")
    container = buildah("from", "--pull-never", reference(image))
    yield lambda *command: buildah("run", "--isolation", "chroot", container, "--", *command)
    buildah("rm", container)


def test_commands_start(image: str, run: Callable[..., str]) -> None:
    assert version("rlscaler") in run("rlscaler", "--version")
    for command in COMMANDS[image]:
        assert "Usage: rlscaler" in run("rlscaler", *command, "--help")
    assert run("id", "-u") == "65532"


def test_nothing_can_be_written_beside_tmp(run: Callable[..., str]) -> None:
    assert run("find", "/app", "/usr", "-writable", "-not", "-type", "l") == ""


@pytest.mark.parametrize("image", ["rlscaler"], indirect=True)
def test_operator_says_that_it_finds_no_cluster(run: Callable[..., str]) -> None:
    with pytest.raises(BuildError, match="cannot find a cluster in /none"):
        run("rlscaler", "operator", "run", "--kubeconfig", "/none")


def _bill(image: str) -> dict[str, str]:
    return {part["name"]: part["version"] for part in _document(image)["components"]}


def _document(image: str) -> dict:
    return json.loads(archive(image).with_suffix(".cdx.json").read_text(encoding="utf-8"))
