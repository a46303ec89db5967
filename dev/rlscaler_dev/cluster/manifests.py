"""Manifests that a cluster starts with: those of this package, and definitions taken from Go modules."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from rlscaler_dev.cluster import builder, paths, toolchain
from rlscaler_dev.cluster.progress import Reporter
from rlscaler_dev.cluster.versions import GATEWAY_API, requirements
from rlscaler_dev.exceptions import BuildError


def text(name: str) -> str:
    """The file `data/NAME`."""
    return resources.files("rlscaler_dev.cluster").joinpath("data", name).read_text()


def documents(name: str, port: int) -> list[dict[str, Any]]:
    """Return the documents of the manifest, with the port of the process behind them."""
    return list(yaml.safe_load_all(text(name).replace("PORT", str(port))))


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads a plain `=` as the text that it is in YAML 1.2."""


_Loader.add_constructor("tag:yaml.org,2002:value", _Loader.construct_yaml_str)


@dataclass(frozen=True)
class Definitions:
    """CustomResourceDefinitions of a project, from its Go module; cached as JSON, since YAML is slow to read."""

    name: str
    """Name of the file in our cache, and in messages."""
    module: str
    folder: str
    """Folder inside the module."""
    files: tuple[str, ...] = ("*.yaml",)
    """Patterns of the files' names."""
    modules: str = "cluster"
    """Folder under tools/ with the go.mod that pins the module."""

    @property
    def cached_file(self) -> Path:
        """File with the definitions of the pinned version."""
        return paths.manifests_dir() / f"{self.name}-{requirements(self.modules)[self.module]}.json"

    def manifests(self, reporter: Reporter) -> list[dict[str, Any]]:
        """The definitions; downloads the module the first time. Raises DevClusterError."""
        with paths.hold(self.name):
            if not self.cached_file.exists():
                version = requirements(self.modules)[self.module]
                reporter.say(f"fetching the definitions of {self.name} {version} from its Go module")
                content = self._from_module(toolchain.find(reporter, self.modules))
                paths.replace(self.cached_file, json.dumps(content))
            definitions: list[dict[str, Any]] = json.loads(self.cached_file.read_text())
        return definitions

    def _from_module(self, go: toolchain.Go) -> list[dict[str, Any]]:
        folder = builder.module_source(self.module, self.modules, go) / self.folder
        documents = [
            document
            for pattern in self.files
            for path in sorted(folder.glob(pattern))
            for document in yaml.load_all(path.read_text(), _Loader)
            if document and document["kind"] == "CustomResourceDefinition"
        ]
        if not documents:
            raise BuildError(f"{folder} holds no CustomResourceDefinitions")
        return documents


GATEWAY = Definitions("gateway-api", GATEWAY_API, "config/crd/standard")
"""The Gateway API, standard channel; its module has 3 MB."""

MONITORING = Definitions(
    "prometheus-operator",
    "github.com/prometheus-operator/prometheus-operator",
    "example/prometheus-operator-crd",
    tuple(f"monitoring.coreos.com_{plural}.yaml" for plural in ("servicemonitors", "podmonitors", "prometheusrules")),
    "monitoring",
)
"""ServiceMonitor, PodMonitor and PrometheusRule of the Prometheus operator (10 MB). Nothing here acts on them."""
