"""The Gateway API's definitions, of the standard channel."""

from __future__ import annotations

from typing import Any

from rlscaler_dev.cluster.definitions import Definitions
from rlscaler_dev.cluster.progress import Reporter
from rlscaler_dev.cluster.versions import GATEWAY_API

DEFINITIONS = Definitions("gateway-api", GATEWAY_API, "config/crd/standard")


def manifests(reporter: Reporter) -> list[dict[str, Any]]:
    """Downloads the module the first time (3 MB). Raises DevClusterError."""
    return DEFINITIONS.manifests(reporter)
