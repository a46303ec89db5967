"""The bill of materials of an image, in CycloneDX: every Python distribution and every Debian package in it."""

from __future__ import annotations

import email.parser
import uuid
from collections.abc import Iterator
from pathlib import PurePosixPath

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from rlscaler_dev.cluster.images.content import Content

DPKG = "var/lib/dpkg/status"
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://rlscaler.io/images")


def wanted(path: str) -> bool:
    """Return whether this file of an image lists installed packages."""
    parts = PurePosixPath(path).parts
    return path == DPKG or (len(parts) > 1 and parts[-1] == "METADATA" and parts[-2].endswith(".dist-info"))


def render(name: str, version: str, content: Content) -> str:
    """The document as JSON. The serial number follows from the image's id: the same image, the same number."""
    image = Component(name=name, version=version, type=ComponentType.CONTAINER, bom_ref=f"{name}@{version}")
    bom = Bom(serial_number=uuid.uuid5(NAMESPACE, content.image_id))
    bom.metadata.component = image
    for component in components(content):
        bom.components.add(component)
    bom.register_dependency(image, bom.components)
    return JsonV1Dot6(bom).output_as_string(indent=2)


def components(content: Content) -> Iterator[Component]:
    """Installed packages, in the order in which they were found."""
    for path, text in content.texts.items():
        if path == DPKG:
            yield from map(_debian, _installed(text))
        else:
            yield _python(text)


def _python(metadata: str) -> Component:
    fields = email.parser.Parser().parsestr(metadata, headersonly=True)
    name, version = str(fields["Name"]), str(fields["Version"])
    purl = PackageURL("pypi", name=name.lower().replace("_", "-"), version=version)
    component = Component(name=name, version=version, purl=purl, bom_ref=str(purl), description=fields["Summary"])
    if license := _license(
        str(fields["License-Expression"] or fields["License"] or ""), fields.get_all("Classifier", [])
    ):
        component.licenses.add(LicenseFactory().make_from_string(license))
    return component


def _license(declared: str, classifiers: list[str]) -> str:
    """An expression, a short name, or the name in the classifiers: many put the whole text into the field."""
    if declared.strip() and "\n" not in declared and len(declared) < 60:
        return declared.strip()
    named = [line.rsplit(" :: ", 1)[1] for line in classifiers if line.startswith("License :: ")]
    return named[0] if named else ""


def _installed(status: str) -> Iterator[dict[str, str]]:
    for block in status.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and not line.startswith(" "))
        if fields.get("Status", "").endswith(" installed"):
            yield fields


def _debian(fields: dict[str, str]) -> Component:
    name, version = fields["Package"], fields["Version"]
    purl = PackageURL("deb", "debian", name, version, qualifiers={"arch": fields["Architecture"]})
    return Component(name=name, version=version, purl=purl, bom_ref=str(purl), description=fields.get("Description"))
