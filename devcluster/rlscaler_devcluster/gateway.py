"""The Gateway API's definitions, taken from its Go module into our cache as JSON (YAML is slow to read)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import yaml

from rlscaler_devcluster import builder, locks, paths, toolchain
from rlscaler_devcluster.exceptions import BuildError
from rlscaler_devcluster.progress import Reporter
from rlscaler_devcluster.versions import GATEWAY_API, requirements


def cached_file() -> Path:
    """Where the definitions of the pinned version are kept."""
    return paths.manifests_dir() / f"gateway-api-{requirements()[GATEWAY_API]}.json"


def manifests(reporter: Reporter) -> list[dict[str, Any]]:
    """The CustomResourceDefinitions of the standard channel; downloads the module the first time (3 MB)."""
    target = cached_file()
    with locks.hold("gateway-api"):
        if not target.exists():
            reporter.say(f"fetching the Gateway API's definitions {requirements()[GATEWAY_API]} from its Go module")
            content = _from_module(toolchain.find(reporter))
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = target.with_suffix(f".{os.getpid()}.tmp")
            temporary.write_text(json.dumps(content))
            temporary.replace(target)
        found: list[dict[str, Any]] = json.loads(target.read_text())
    return found


def _from_module(go: toolchain.Go) -> list[dict[str, Any]]:
    source = builder.module_source(GATEWAY_API, "cluster", go)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    documents = [
        document
        for path in sorted((source / "config" / "crd" / "standard").glob("*.yaml"))
        for document in yaml.load_all(path.read_text(), loader)
        if document and document["kind"] == "CustomResourceDefinition"
    ]
    if not documents:
        raise BuildError(f"{source}/config/crd/standard holds no CustomResourceDefinitions")
    return documents
