"""CustomResourceDefinitions taken from Go modules into our cache as JSON (YAML is slow to read)."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rlscaler_dev.cluster import builder, locks, paths, toolchain
from rlscaler_dev.cluster.exceptions import BuildError
from rlscaler_dev.cluster.progress import Reporter
from rlscaler_dev.cluster.versions import requirements


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads a plain `=` as the text that it is in YAML 1.2."""


_Loader.add_constructor("tag:yaml.org,2002:value", _Loader.construct_yaml_str)


@dataclass(frozen=True)
class Definitions:
    """Where a project keeps its definitions."""

    name: str
    """Of the file in our cache, and in messages."""
    module: str
    folder: str
    """Inside the module."""
    files: tuple[str, ...] = ("*.yaml",)
    """Patterns of their names."""
    modules: str = "cluster"
    """Folder under tools/ with the go.mod that pins the module."""

    @property
    def cached_file(self) -> Path:
        """Where the definitions of the pinned version are kept."""
        return paths.manifests_dir() / f"{self.name}-{requirements(self.modules)[self.module]}.json"

    def manifests(self, reporter: Reporter) -> list[dict[str, Any]]:
        """The definitions; downloads the module the first time. Raises DevClusterError."""
        with locks.hold(self.name):
            if not self.cached_file.exists():
                version = requirements(self.modules)[self.module]
                reporter.say(f"fetching the definitions of {self.name} {version} from its Go module")
                content = self._from_module(toolchain.find(reporter, self.modules))
                self.cached_file.parent.mkdir(parents=True, exist_ok=True)
                temporary = self.cached_file.with_suffix(f".{os.getpid()}.tmp")
                temporary.write_text(json.dumps(content))
                temporary.replace(self.cached_file)
            found: list[dict[str, Any]] = json.loads(self.cached_file.read_text())
        return found

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
