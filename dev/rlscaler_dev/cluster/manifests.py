"""Manifests that come with the package; PORT in them is replaced when they are applied."""

from __future__ import annotations

from importlib import resources
from typing import Any

import yaml


def text(name: str) -> str:
    """The file `data/NAME`."""
    return resources.files("rlscaler_dev.cluster").joinpath("data", name).read_text()


def documents(name: str, port: int) -> list[dict[str, Any]]:
    """Its documents, with the port of the process behind them."""
    return list(yaml.safe_load_all(text(name).replace("PORT", str(port))))
